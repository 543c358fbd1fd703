"""How far the policy that keeps the batch is from the best schedule, over small worlds."""

import random

import numpy as np
import pytest
from tokenspeed.simulate import Player, Scenario, Trace

from .oracle import least_rounds

PAGE_TOKENS, ROWS = 4, 4


def played_rounds(requests: list[tuple[int, int]], blocks: int, declared: bool) -> int:
    count = len(requests)
    trace = Trace(
        "small",
        np.zeros(count),
        np.array([prompt for prompt, _ in requests], dtype=np.int64),
        np.array([output for _, output in requests], dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.zeros(count + 1, dtype=np.int64),
    )
    values = {
        "num_device_pages": blocks + 1,
        "num_host_pages": 0,
        "prefix_granularity": PAGE_TOKENS,
        "max_scheduled_tokens": 512,
        "max_batch_size": ROWS,
        "max_new_tokens": -1 if declared else 0,
        "pressure_policy": "goodput",
    }
    ledger = Player(trace, Scenario.of(values)).run()
    assert not np.isnan(ledger.finished_s).any()
    return len(ledger.rounds)


def worlds() -> list[tuple[list[tuple[int, int]], int]]:
    draw = random.Random(6)
    made = []
    for _ in range(40):
        requests = [(draw.randint(1, 16), draw.randint(1, 8)) for _ in range(draw.randint(2, 5))]
        largest = max(-(-(prompt + output + 1) // PAGE_TOKENS) for prompt, output in requests)
        made.append((requests, largest + draw.randint(0, 6)))
    return made


@pytest.mark.parametrize("declared", [True, False])
def test_the_policy_is_near_the_best_schedule(declared):
    best = played = 0
    for requests, blocks in worlds():
        least = least_rounds(requests, PAGE_TOKENS, blocks, ROWS)
        rounds = played_rounds(requests, blocks, declared)
        assert least <= rounds <= 2 * least, (requests, blocks)
        best, played = best + least, played + rounds
    assert played <= 1.25 * best, (played, best)


def test_the_oracle_knows_what_can_be_counted():
    assert least_rounds([(4, 3)], PAGE_TOKENS, 4, ROWS) == 3
    # Side by side, and one after the other.
    assert least_rounds([(4, 3), (4, 3)], PAGE_TOKENS, 4, ROWS) == 3
    assert least_rounds([(4, 3), (4, 3)], PAGE_TOKENS, 2, ROWS) == 5
