"""The worlds are worth playing: everything that can happen does, and often."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache, partial

import pytest

from .coverage import features_of
from .generate import PLAYED, world_from_seed
from .side import Side
from .workers import Pool

THEIRS = "tokenspeed_scheduler"
pytest.importorskip(THEIRS, reason="the reference has no wheel here")

WORLDS = 400
#: Worlds in which a feature must occur, at least, by role; `EVER` where nothing is said.
OFTEN = {
    "Fused": {
        "retraction": 80,
        "readmission": 80,
        "load-back": 40,
        "store, stream-ordered": 40,
        "eviction": 200,
        "promotion boundary": 60,
        "skipped decode": 60,
    },
    "P": {"handover that zeroes a block": 60, "eviction": 100, "load-back": 20},
    "D": {"retraction": 40, "local recovery": 40, "load-back": 10, "eviction": 200},
}
EVER = 3


@cache
def features(role: str, family: str) -> Counter[str]:
    """In how many worlds each feature occurs, played by the reference on both sides."""
    side = partial(Side, THEIRS)
    with Pool(side, side, jobs=os.cpu_count() or 1) as pool:
        outcomes = pool.play(world_from_seed(seed, role, family) for seed in range(WORLDS))
        return Counter(feature for outcome in outcomes for feature in outcome.features)


@pytest.mark.parametrize(
    ("role", "family", "feature"),
    [(*played, feature) for played in PLAYED for feature in features_of(*played)],
)
def test_worlds_cover(role: str, family: str, feature: str) -> None:
    least = OFTEN[role].get(feature, EVER) if family == "plain" else EVER
    assert features(role, family)[feature] >= least
