"""What may be given as tokens."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from tokenspeed.scheduler import ForwardEvent, RequestSpec, Scheduler

from .engine import config

TOKENS = [5, 0, 2**31 - 1, -1, 3]


@pytest.mark.parametrize(
    "given",
    [
        TOKENS,
        tuple(TOKENS),
        np.array(TOKENS, dtype=np.int32),
        np.repeat(np.array(TOKENS, dtype=np.int32), 2)[::2],
        np.array(TOKENS, dtype=np.int64),
        array.array("i", TOKENS),
        memoryview(array.array("i", TOKENS)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_integers_of_every_kind(given: Any) -> None:
    assert RequestSpec("a", given).tokens == TOKENS
    spec = RequestSpec()
    spec.tokens = given
    assert spec.tokens == TOKENS
    result = ForwardEvent.ExtendResult("a", given, spec_candidate_ids=given)
    assert result.tokens == result.spec_candidate_ids == TOKENS
    scheduler = Scheduler(config())
    assert len(scheduler.prefix_hashes_for_tokens(given)) == 1
    assert scheduler.prefix_hashes_for_tokens(given) == scheduler.prefix_hashes_for_tokens(TOKENS)


def test_nothing() -> None:
    assert RequestSpec().tokens == []
    assert RequestSpec(tokens=np.array([], dtype=np.int32)).tokens == []


def test_tokens_are_copied() -> None:
    prompt = np.arange(8, dtype=np.int32)
    spec = RequestSpec("a", prompt)
    prompt[:] = 0
    assert spec.tokens == list(range(8))
    spec.tokens.append(9)
    assert len(spec.tokens) == 8


@pytest.mark.parametrize(
    "given",
    ["abc", [1.5], [None], 5, None, np.ones(3), [2**31], np.array([2**40]), np.ones((2, 2), int)],
    ids=repr,
)
def test_anything_else_is_refused(given: Any) -> None:
    spec = RequestSpec("a", [1, 2])
    with pytest.raises((TypeError, OverflowError)):
        spec.tokens = given
    assert spec.tokens == [1, 2]
