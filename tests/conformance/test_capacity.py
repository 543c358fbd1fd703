"""The capacity model gives the reference's answers, for every role."""

from __future__ import annotations

import pytest

from .capacity import capacity, compare_capacity
from .generate import world_from_seed
from .world import ROLES

OURS = "tokenspeed.scheduler"
THEIRS = "tokenspeed_scheduler"
pytest.importorskip(THEIRS, reason="the reference has no wheel here")

CONFIGURATIONS = 500


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("family", ["plain", "replay"])
def test_capacity_agrees(role: str, family: str) -> None:
    for seed in range(CONFIGURATIONS):
        world = world_from_seed(seed, role, family)
        differences = compare_capacity(OURS, THEIRS, world)
        report = "\n".join(map(str, differences))
        assert not differences, f"{role} {family} seed {seed}\n{world.literal()}\n{report}"


@pytest.mark.parametrize("role", ROLES)
def test_most_configurations_are_answered(role: str) -> None:
    """The comparison is not one of refusals."""
    worlds = [world_from_seed(seed, role) for seed in range(100)]
    refused = sum("ValueError" in map(str, capacity(THEIRS, w).values()) for w in worlds)
    assert refused < 20
