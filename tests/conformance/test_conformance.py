"""Plays random worlds against the reference in CI: each must agree, or differ for a reason that the
suite names, and must end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import pytest

from .generate import PLAYED, world_from_seed
from .play import Outcome
from .regressions import REGRESSIONS, STANDSTILLS
from .report import story
from .side import Side
from .workers import Pool
from .world import World

pytest.importorskip("tokenspeed_scheduler", reason="the reference has no wheel here")

OURS = "tokenspeed.scheduler"
THEIRS = "tokenspeed_scheduler"
CHUNK = 100


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(partial(Side, OURS), partial(Side, THEIRS), jobs=os.cpu_count() or 1) as pool:
        yield pool


@pytest.mark.parametrize(
    ("role", "family", "first"),
    [(*kind, first) for kind, worlds in PLAYED.items() for first in range(0, worlds, CHUNK)],
)
def test_worlds_agree(pool: Pool, role: str, family: str, first: int) -> None:
    worlds = [world_from_seed(seed, role, family) for seed in range(first, first + CHUNK)]
    outcomes = list(pool.play(worlds))
    assert len(outcomes) == CHUNK
    _assert_passed(outcomes)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions(pool: Pool, name: str) -> None:
    _assert_passed(list(pool.play([REGRESSIONS[name]])))


def test_nobody_waits_where_the_reference_stands_still() -> None:
    with Pool(partial(Side, OURS), None, jobs=1) as alone:
        worlds = [w for w in STANDSTILLS.values() if (w.role, _family(w)) in PLAYED]
        _assert_passed(list(alone.play(worlds)))


@pytest.mark.parametrize("role", ["Fused", "P", "D"])
def test_worlds_with_storage_end(role: str) -> None:
    with Pool(partial(Side, OURS), None, jobs=os.cpu_count() or 1) as alone:
        _assert_passed(list(alone.play(world_from_seed(s, role, "storage") for s in range(200))))


def _family(world: World) -> str:
    if world.storage:
        return "storage"
    return "replay" if any(group.kind == "replay" for group in world.groups) else "plain"


def _assert_passed(outcomes: list[Outcome]) -> None:
    failed = sorted((o for o in outcomes if not o.passed), key=lambda o: o.world.timing)
    if failed:
        seeds = [o.world.timing for o in failed]
        pytest.fail(
            f"{len(failed)} of {len(outcomes)} worlds fail, seeds {seeds}; the first:\n"
            + story(failed[0]),
            pytrace=False,
        )
