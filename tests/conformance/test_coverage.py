"""The worlds are worth playing: everything that can happen does, and often."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from .coverage import FEATURES
from .generate import BOUNDED_REPLAY, STORAGE, world_from_seed
from .side import Side
from .workers import Pool

THEIRS = "tokenspeed_scheduler"
pytest.importorskip(THEIRS, reason="the reference has no wheel here")

WORLDS = 400
#: Worlds in which each feature must occur, at least.
OFTEN = {
    "retraction": 80,
    "readmission": 80,
    "load-back": 40,
    "store, stream-ordered": 40,
    "eviction": 200,
    "promotion boundary": 60,
    "skipped decode": 60,
}
EVER = 3


@pytest.fixture(scope="module")
def features() -> Iterator[Counter[str]]:
    side = partial(Side, THEIRS)
    with Pool(side, side, jobs=os.cpu_count() or 1) as pool:
        outcomes = pool.play(world_from_seed(seed) for seed in range(WORLDS))
        yield Counter(feature for outcome in outcomes for feature in outcome.features)


#: What no world can show while our side refuses the configuration (see `generate`).
NOT_YET = {
    *(() if BOUNDED_REPLAY else ("replayable group", "re-fed window")),
    *(
        ()
        if STORAGE
        else ("storage behind the host tier", "fetch from storage", "fetch that missed")
    ),
}


@pytest.mark.parametrize("feature", [f for f in FEATURES if f not in NOT_YET])
def test_worlds_cover(features: Counter[str], feature: str) -> None:
    assert features[feature] >= OFTEN.get(feature, EVER)
