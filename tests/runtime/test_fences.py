"""Each fence and step of a round, taken out one at a time, is caught by wrong bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Request
from tokenspeed.runtime.simulated import SimulatedDevice

from .mutations import DEVICES, EXECUTORS, without_fence
from .toy import Toy, ToyLayer, alone
from .world import draw, play

SEEDS = range(16)
"""Worlds within which each has to be caught; the same worlds are clean with all in place."""

LATER_ROUNDS = "no fence: later rounds after load"
"""Matters only where a model stops before its last layer: it has its own test below."""

CAUGHT = (IndexError, AssertionError, ValueError)
"""Wrong bytes: in a cache, in an answer, or in an index that then points nowhere."""


@pytest.mark.parametrize("name", [name for name in EXECUTORS if name != LATER_ROUNDS])
def test_a_round_without_it_is_caught(name: str) -> None:
    assert _caught(executor_type=EXECUTORS[name])


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_without_it_is_caught(name: str) -> None:
    assert _caught(device_type=DEVICES[name])


def _caught(**mutation: Callable[..., object]) -> bool:
    for seed in SEEDS:
        try:
            play(draw(seed, pressed=True), **mutation)  # type: ignore[arg-type]
        except CAUGHT:
            return True
    return False


def test_with_all_in_place_nothing_is() -> None:
    for seed in SEEDS:
        play(draw(seed, pressed=True))


@pytest.mark.parametrize("whole", [True, False])
def test_later_rounds_take_a_load_as_whole(whole: bool) -> None:
    """A forward that fails before its first layer waits for no load, and what was loaded for it is
    cached: the next request that meets it must not be early."""
    executor = RoundExecutor if whole else without_fence("later rounds after load")
    right = [_after_a_failed_load(executor, seed) for seed in range(8)]
    assert all(right) if whole else not all(right)


def _after_a_failed_load(executor: type[RoundExecutor], seed: int) -> bool:
    toy = Toy([ToyLayer("full")], page_tokens=2)
    config = toy.recipe().scheduler_config(
        num_device_pages=40, num_host_pages=40, max_scheduled_tokens=64, max_batch_size=4
    )
    device = SimulatedDevice(seed, "copies last")
    loop = EngineLoop(config, toy, device, inline=True, executor_type=executor)
    prompt = list(range(1, 22))
    loop.submit(Request("a", prompt, 2))
    while loop.has_work:
        loop.step()
    assert loop.scheduler.clear_l1_cache()
    toy.raises, toy.raises_early = {"b": 0}, True
    loop.submit(Request("b", prompt, 2))
    (failed,) = loop.step()
    assert failed.finish_reason == "error"
    loop.submit(Request("c", prompt, 4))
    said: list[int] = []
    while loop.has_work:
        for output in loop.step():
            said += output.tokens
    loop.close()
    return said == alone(toy, prompt, 4).generated
