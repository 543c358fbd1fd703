"""A reference that ends its process or hangs costs one world's comparison and nothing else."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest

from . import workers
from .plan import Plan
from .play import AGREES, FINISHES
from .player import ABORTS
from .side import Side
from .workers import Pool
from .world import Group, Request, World

THEIRS = "tokenspeed_scheduler"
pytest.importorskip(THEIRS, reason="the reference has no wheel here")

HONEST = partial(Side, THEIRS)


def world(timing: int) -> World:
    return World(
        groups=(Group("full"),),
        requests=(Request("a", prompt=((1, 6),), output_stream=2, output=4),),
        timing=timing,
    )


class Fatal(Side):
    """Ends its process in round 2 of the worlds with an odd timing."""

    def __init__(self, world: World) -> None:
        super().__init__(THEIRS, world)
        self._is_fatal = world.timing % 2 == 1

    def plan(self, round_: int) -> Plan:
        if self._is_fatal and round_ == 2:
            self._die()
        return super().plan(round_)

    def _die(self) -> None:
        os.abort()


class Hanging(Fatal):
    """Never returns instead."""

    def _die(self) -> None:
        time.sleep(60)


@pytest.mark.parametrize("fatal", [Fatal, Hanging])
def test_a_fatal_reference_ends_one_comparison(
    fatal: type[Fatal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WORLD_TIMEOUT_S", 3.0)
    with Pool(HONEST, fatal, jobs=1) as pool:
        outcomes = {o.world.timing: o for o in pool.play(map(world, range(4)))}
    assert {timing: o.verdict for timing, o in outcomes.items()} == {
        0: AGREES,
        1: ABORTS,
        2: AGREES,
        3: ABORTS,
    }
    assert outcomes[1].round == 2
    assert all(o.ours == FINISHES and o.passed for o in outcomes.values())


def test_our_side_that_ends_the_process_has_failed() -> None:
    with Pool(Fatal, HONEST, jobs=1) as pool:
        (outcome,) = pool.play([world(1)])
    assert "ends the process" in outcome.ours
    assert not outcome.passed
