"""What a request generates does not depend on the pool (runtime.md): greedy output equals that of
transformers' own `generate`, for the request alone, token for token."""

from __future__ import annotations

import itertools

import pytest

from .worlds import Seen, World

FAMILIES = ["glassllm", "gemma3_text", "falcon_h1", "qwen3_next"]
"""Trained and full; sliding and full; state beside full in each layer; state and full in turn."""


def played(family: str, seeds: range, width: int) -> Seen:
    """What happened in worlds of both overlap depths, with a host tier and without."""
    seen = Seen()
    for seed, depth, host in itertools.product(seeds, (0, 1), (False, True)):
        World(family, seed, depth, host, width, seen).play()
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_no_pool_changes_a_token(family: str) -> None:
    seen = played(family, range(2), width=1)
    assert seen.finished > 35
    assert seen.retractions > 5
    assert seen.loaded_blocks > 5
    assert seen.hit_tokens > 20
    assert seen.chunks > 5
    assert seen.mixed_rounds > 5


@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_changes_no_token(family: str) -> None:
    seen = played(family, range(1), width=4)
    assert seen.finished > 15
    assert seen.retractions > 0
    assert seen.accepted > 2
