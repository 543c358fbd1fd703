"""Scenario 31: schedulers in processes of their own, with hash seeds and address layouts of their
own, make the same plans of the same calls; and the digest says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenspeed.scheduler import ExecutionPlan, RequestSpec, Scheduler

from .client import Client, tiny
from .engine import config, results, step, submit

ROOT = Path(__file__).parents[2]

RANK = """
from tests.unit.client import Client, tiny
from tokenspeed.scheduler import Scheduler
client = Client(Scheduler(tiny()), seed=31)
for plan in client.rounds(events=10_000):
    print(f"{plan.digest():016x}", plan.num_retractions, plan.num_load_back_blocks)
print(client.events, client.refused)
"""


def test_four_processes_agree_in_every_round() -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "31", "random")
    ]
    first, *others = [rank.communicate()[0].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4
    for other in others:
        for at, (mine, theirs) in enumerate(zip(first, other, strict=True)):
            assert mine == theirs, f"round {at + 1}"
    *rounds, total = first
    events, refused = map(int, total.split())
    digests, retractions, loads = zip(*map(str.split, rounds))
    assert events >= 10_000 and refused > 20
    assert sum(map(int, retractions)) > 50 and sum(map(int, loads)) > 50
    assert len(set(digests)) > 0.8 * len(digests)


def digests(seed: int, scheduler: Scheduler) -> list[int]:
    return [plan.digest() for plan in Client(scheduler, seed).rounds(events=300)]


def test_other_calls_make_other_digests() -> None:
    assert digests(1, Scheduler(tiny())) == digests(1, Scheduler(tiny()))
    assert digests(1, Scheduler(tiny())) != digests(2, Scheduler(tiny()))


def test_how_an_engine_reads_the_tables_is_its_own_affair() -> None:
    without = Scheduler(tiny())
    without.use_persistent_tables()
    assert digests(1, Scheduler(tiny())) == digests(1, without)


def test_one_number_stands_for_all_plans_so_far() -> None:
    """A round in which two ranks differed still shows when later plans are the same again."""
    chains = []
    for prompt in ([1, 2, 3], [1, 2, 3], [4, 5, 6]):
        scheduler = Scheduler(config())
        submit(scheduler, "a", 5)
        chain = step(scheduler).digest()
        scheduler.submit_requests([RequestSpec("b", prompt)])
        chain = step(scheduler).digest(chain)
        last = step(scheduler)
        chains.append((last.digest(), last.digest(chain)))
    (alike, chain), same, (still_alike, other) = chains
    assert same == (alike, chain)
    assert alike == still_alike and other != chain


def test_a_digest_is_64_bits_and_needs_no_scheduler() -> None:
    plan = ExecutionPlan()
    assert plan.digest() == plan.digest(0) == ExecutionPlan().digest()
    assert plan.digest(2**64 - 1) != plan.digest()
    assert 0 <= plan.digest() < 2**64
    for no_digest in (-1, 2**64):
        with pytest.raises(OverflowError):
            plan.digest(no_digest)


def test_a_digest_leaves_results_alone() -> None:
    scheduler = Scheduler(config())
    submit(scheduler, "a", 9)
    plan = scheduler.next_execution_plan()
    digest = plan.digest()
    assert plan.batch is not None
    scheduler.advance_results(*results(plan.batch))
    scheduler.next_execution_plan()
    assert plan.digest() == digest
