"""What a request generates does not depend on the pool (runtime.md, "Models and the engine")."""

from __future__ import annotations

from collections import Counter

import pytest
from tokenspeed.runtime.simulated import PACES

from .__main__ import play_seeds
from .checksums import WatchedCpu
from .world import draw, play

CHUNK = 25


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_any_world_says_what_each_request_says_alone(first: int) -> None:
    totals, wrong = play_seeds(range(first, first + CHUNK), "any")
    assert wrong == []
    assert totals["blocks stored"] and totals["tokens"]


def test_pressed_worlds_retract_and_reload() -> None:
    totals, wrong = play_seeds(range(25), "pressed")
    assert wrong == []
    for what in ("retractions", "ordered stores", "blocks loaded", "tokens hit"):
        assert totals[what] >= 25, totals


def test_a_world_plays_the_same_every_time() -> None:
    games = [play(draw(7)) for _ in range(2)]
    assert games[0] == games[1]


@pytest.mark.parametrize("first", [0, 5])
def test_with_a_forward_thread_too(first: int) -> None:
    for seed in range(first, first + 5):
        play(draw(seed, pressed=True), inline=False)


@pytest.mark.parametrize("inline", [True, False])
def test_on_the_cpu_device_too(inline: bool) -> None:
    for seed in range(10):
        play(draw(seed), device_type=WatchedCpu, inline=inline)


def test_worlds_cover_what_they_should() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200):
        world = draw(seed)
        seen.update(layer.kind for layer in world.toy.layers)
        seen[f"depth {world.config.overlap_schedule_depth}"] += 1
        seen[f"width {world.config.decode_input_tokens}"] += 1
        seen["no host"] += world.config.num_host_pages == 0
        seen["aborts"] += bool(world.aborts)
        seen["failures"] += bool(world.raises)
        seen[world.pace] += 1
    numbers = ["depth 0", "depth 1", "width 1", "width 2", "width 3"]
    kinds = ["full", "sliding", "state", "replay"]
    for name in [*kinds, *numbers, *PACES, "no host", "aborts", "failures"]:
        assert seen[name] >= 5, name
