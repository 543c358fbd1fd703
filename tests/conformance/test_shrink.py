"""The shrinker keeps the failure and drops what has no part in it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from .generate import world_from_seed
from .plan import Plan
from .shrink import edits, shrink
from .side import Side
from .workers import Pool
from .world import Group, Request, World

THEIRS = "tokenspeed_scheduler"
pytest.importorskip(THEIRS, reason="the reference has no wheel here")


class Forgetful(Side):
    """Leaves the last fresh block of a chunk's plan unzeroed if there are more than two."""

    def __init__(self, world: World) -> None:
        super().__init__(THEIRS, world)

    def plan(self, round_: int) -> Plan:
        plan = super().plan(round_)
        fresh = {g: ids[:-1] if len(ids) > 2 else ids for g, ids in plan.pages_to_zero.items()}
        return replace(plan, pages_to_zero=fresh)


def test_a_failing_world_becomes_small() -> None:
    with Pool(Forgetful, partial(Side, THEIRS), jobs=1) as pool:
        (first,) = pool.play([world_from_seed(0)])
        assert not first.passed
        small = shrink(first, pool)
    assert not small.passed
    assert small.verdict == first.verdict
    assert len(small.world.requests) == 1
    assert len(small.world.groups) == 1
    assert small.world.requests[0].prompt_tokens() <= 3 * small.world.granularity


def test_a_literal_builds_its_world() -> None:
    for seed in range(50):
        world = world_from_seed(seed)
        names = {"World": World, "Group": Group, "Request": Request}
        assert eval(world.literal(), names) == world


def test_no_edit_is_the_world_itself() -> None:
    for seed in range(20):
        world = world_from_seed(seed)
        assert all(edit != world for edit in edits(world))
