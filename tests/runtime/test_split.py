"""One engine prefills, another decodes: the output is that of the request alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenspeed.runtime.device import Device, Event
from tokenspeed.runtime.local_transfer import LocalTransfer

from .mutations import NothingZeroed
from .split import play_split
from .world import draw

CHUNK = 10
SEEDS = range(40)
"""Worlds within which each fence that is taken out has to be caught."""


@pytest.mark.parametrize("first", range(0, 60, CHUNK))
def test_two_engines_say_what_each_request_says_alone(first: int) -> None:
    games = [play_split(draw(seed)) for seed in range(first, first + CHUNK)]
    assert sum(game.landed for game in games) >= CHUNK
    assert sum(game.retractions for game in games)


def without_fence(name: str) -> type[LocalTransfer]:
    class Without(LocalTransfer):
        def _fence(self, fence: str, event: Event) -> None:
            if fence != name:
                super()._fence(fence, event)

    return Without


class SaysSoAtLaunch(LocalTransfer):
    """A prompt is told as landed when its copy is on its stream."""

    def _is_over(self, event: Event) -> bool:
        return True


# "transfer after prefill" is in `test_local_transfer.py`: here a prompt is handed over when its
# result has reached the host, so that its forward has run.
MUTATIONS: dict[str, Callable[[Device], LocalTransfer]] = {
    "transfer after zeroing": without_fence("transfer after zeroing"),
    "told at launch": SaysSoAtLaunch,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_transfer_without_it_is_caught(name: str) -> None:
    assert any(_goes_wrong(seed, transfer_type=MUTATIONS[name]) for seed in SEEDS)


def test_two_engines_that_zero_nothing_are_caught() -> None:
    assert any(_goes_wrong(seed, executor_type=NothingZeroed) for seed in SEEDS)


def _goes_wrong(seed: int, **mutation: Callable[..., object]) -> bool:
    try:
        play_split(draw(seed), **mutation)  # type: ignore[arg-type]
    except (AssertionError, IndexError, ValueError):
        return True
    return False
