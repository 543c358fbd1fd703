"""Plans write their block tables into the memory of plans that are gone, and into no other."""

from __future__ import annotations

import numpy as np
from tokenspeed.scheduler import CacheGroupConfig, CacheRetention, Scheduler

from .engine import config, finish, play, step, submit


def scheduler_of_two_groups() -> Scheduler:
    """A full group, and a sliding one whose slots become holes."""
    sliding = CacheGroupConfig(
        "sliding", 4, 129, retention=CacheRetention.SlidingWindow, sliding_window_tokens=6
    )
    groups = [CacheGroupConfig("full", 4, 129), sliding]
    return Scheduler(config(blocks=128, cache_groups=groups))


def test_a_plan_that_is_held_keeps_its_tables() -> None:
    scheduler = scheduler_of_two_groups()
    for name in "abc":
        submit(scheduler, name, 9)
    held = []
    for number in range(40):
        plan = scheduler.next_execution_plan()
        batch = plan.forward[0]
        held.append((batch.block_tables_arrays(), batch.block_tables))
        play(scheduler, plan)
        if number == 20:
            finish(scheduler, "b")
    for arrays, lists in held:
        for group, table in lists.items():
            np.testing.assert_array_equal(arrays[group], np.array(table))


def test_tables_written_in_place_are_those_of_the_persistent_ones() -> None:
    scheduler = scheduler_of_two_groups()
    for name in "abc":
        submit(scheduler, name, 9)
    for number in range(40):
        plan = step(scheduler)  # the former plan is let go here
        batch = plan.forward[0]
        for group, table in batch.block_tables_arrays().items():
            persistent = scheduler.block_table(group)
            for row, shown in zip(batch.request_pool_indices, table):
                slots = int(np.count_nonzero(shown >= 0))
                np.testing.assert_array_equal(shown[:slots], persistent[row, :slots])
                assert (shown[slots:] == -1).all() and not persistent[row, slots:].any()
        if number == 10:
            finish(scheduler, "a")
            submit(scheduler, "d", 17)


def test_a_batch_names_its_requests_whoever_comes_and_goes() -> None:
    scheduler = Scheduler(config(blocks=64))
    for name in "abc":
        submit(scheduler, name, 4)
    assert step(scheduler).forward[0].request_ids == ["a", "b", "c"]
    first, second = step(scheduler).forward[0], step(scheduler).forward[0]
    names = first.request_ids
    names.append("changed")
    assert second.request_ids == first.request_ids == ["a", "b", "c"]
    finish(scheduler, "b")
    third = step(scheduler).forward[0]
    assert (third.request_ids, first.request_ids) == (["a", "c"], ["a", "b", "c"])
