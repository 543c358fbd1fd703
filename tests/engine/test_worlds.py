"""What a request generates does not depend on the pool (runtime.md): greedy output equals that of
transformers' own `generate`, for the request alone, token for token."""

from __future__ import annotations

import itertools

import pytest

from .worlds import Seen, World

FAMILIES = ["glassllm", "gemma3_text", "falcon_h1", "qwen3_next"]
"""Trained and full; sliding and full; state beside full in each layer; state and full in turn."""
SEEDS = 3


def total(worlds: list[World]) -> Seen:
    seen = Seen()
    for world in worlds:
        world.seen = seen
        world.play()
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_no_pool_changes_a_token(family: str) -> None:
    settings = itertools.product(range(SEEDS), (0, 1), (False, True))
    seen = total([World(family, seed, depth, host) for seed, depth, host in settings])
    assert seen.finished > 50
    assert seen.aborted > 0
    assert seen.retractions > 10
    assert seen.loaded_blocks > 5
    assert seen.hit_tokens > 20
    assert seen.chunks > 10
    assert seen.mixed_rounds > 20


@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_changes_no_token(family: str) -> None:
    settings = itertools.product(range(SEEDS), (0, 1), (False, True))
    seen = total([World(family, seed, depth, host, width=4) for seed, depth, host in settings])
    assert seen.finished > 50
    assert seen.retractions > 5
    assert seen.accepted > 5
