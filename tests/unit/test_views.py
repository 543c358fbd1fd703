"""Arrays over a plan's and the scheduler's own memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tokenspeed.scheduler import CacheGroupConfig, CacheRetention, Forward, Scheduler

from .engine import config, finish, step, submit

FIELDS = [name.removesuffix("_array") for name in dir(Forward.Batch) if name.endswith("_array")]


def a_mixed_batch() -> Forward.Batch:
    """Two decodes behind a chunk."""
    scheduler = Scheduler(config(enable_mixed_prefill_decode=True, blocks=40))
    submit(scheduler, "a", 9)
    submit(scheduler, "b", 5)
    step(scheduler)
    submit(scheduler, "c", 70)
    batch = scheduler.next_execution_plan().batch
    assert batch is not None
    assert batch.request_ids == ["c", "a", "b"] and batch.num_extends() == 1
    return batch


def test_every_list_has_its_array() -> None:
    assert len(FIELDS) == 10
    batch = a_mixed_batch()
    for name in FIELDS:
        array = getattr(batch, f"{name}_array")
        assert array.dtype == np.int32
        assert array.tolist() == getattr(batch, name)
    assert batch.handles.dtype == np.uint64
    assert (batch.handles & np.uint64(0xFFFFFFFF)).tolist() == batch.request_pool_indices
    tables = batch.block_tables_arrays()
    assert {name: table.tolist() for name, table in tables.items()} == batch.block_tables
    assert tables["full"].dtype == np.int32 and tables["full"].flags.c_contiguous


def test_arrays_share_the_plans_memory() -> None:
    batch = a_mixed_batch()
    for name in [*[f"{name}_array" for name in FIELDS], "handles"]:
        first, second = getattr(batch, name), getattr(batch, name)
        assert np.shares_memory(first, second) or first.size == 0
        assert not first.flags.owndata
    first, second = batch.block_tables_arrays(), batch.block_tables_arrays()
    assert np.shares_memory(first["full"], second["full"])


def test_arrays_cannot_be_written() -> None:
    scheduler = Scheduler(config())
    submit(scheduler, "a", 9)
    plan = scheduler.next_execution_plan()
    batch = plan.batch
    assert batch is not None
    for array in (
        batch.handles,
        batch.input_ids_array,
        batch.block_tables_arrays()["full"],
        plan.pages_to_zero_arrays()["full"],
        plan.changed_cells["full"],
        plan.retracted,
        scheduler.block_table("full"),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_an_array_keeps_its_plan() -> None:
    scheduler = Scheduler(config())
    submit(scheduler, "a", 9)
    plan = scheduler.next_execution_plan()
    batch = plan.batch
    assert batch is not None
    tokens, table = batch.input_ids_array, batch.block_tables_arrays()["full"]
    zeroed, cells = plan.pages_to_zero_arrays()["full"], plan.changed_cells["full"]
    expected = [array.copy() for array in (tokens, table, zeroed, cells)]
    del plan, batch, scheduler
    gc.collect()
    junk = [np.full(64, -5, dtype=np.int32) for _ in range(1000)]
    for array, content in zip((tokens, table, zeroed, cells), expected, strict=True):
        np.testing.assert_array_equal(array, content)
    assert len(junk) == 1000


def test_a_table_keeps_its_cells_and_shows_each_write() -> None:
    scheduler = Scheduler(config())
    table = scheduler.block_table("full")
    assert table.shape[0] == 9 and table.dtype == np.int32
    assert not table.any()
    submit(scheduler, "a", 9)
    batch = step(scheduler).batch
    assert batch is not None
    row = batch.request_pool_indices[0]
    assert table[row, :3].tolist() == batch.block_tables["full"][0]
    assert np.shares_memory(table, scheduler.block_table("full"))
    del scheduler
    gc.collect()
    assert table[row, :3].all()


def test_a_table_is_replaced_when_a_request_outgrows_it() -> None:
    scheduler = Scheduler(config(blocks=200, max_scheduled_tokens=1024))
    before = scheduler.block_table("full")
    submit(scheduler, "a", 4 * before.shape[1])
    batch = step(scheduler).batch
    assert batch is not None
    after = scheduler.block_table("full")
    assert after.shape[1] > before.shape[1]
    row, slots = batch.request_pool_indices[0], batch.block_tables["full"][0]
    assert after[row, : len(slots)].tolist() == slots


def test_changed_cells_keep_a_copy_of_the_tables_current() -> None:
    groups = [
        CacheGroupConfig("full", 4, 41),
        CacheGroupConfig(
            "window",
            2,
            81,
            retention=CacheRetention.SlidingWindow,
            sliding_window_tokens=5,
            cache_blocks_per_lcm_block=2,
        ),
    ]
    scheduler = Scheduler(config(blocks=40, cache_groups=groups, max_scheduled_tokens=16))
    copies = {name: np.zeros_like(scheduler.block_table(name)) for name in scheduler.group_ids}
    holes = cells = 0
    for round_ in range(40):
        if round_ % 6 == 0:
            submit(scheduler, "abcdefgh"[round_ // 6], 10 + round_)
        if round_ == 20:
            finish(scheduler, "a")
        plan = step(scheduler)
        for name, changed in plan.changed_cells.items():
            assert changed.shape == (len(changed), 3)
            more = scheduler.block_table(name).shape[1] - copies[name].shape[1]
            copies[name] = np.pad(copies[name], [(0, 0), (0, more)])
            copies[name][changed[:, 0], changed[:, 1]] = changed[:, 2]
            cells += len(changed)
            holes += int((changed[:, 2] == 0).sum())
        for name, copy in copies.items():
            np.testing.assert_array_equal(copy, scheduler.block_table(name))
        if plan.batch is None:
            continue
        rows = plan.batch.request_pool_indices
        for name, table in plan.batch.block_tables_arrays().items():
            shown = copies[name][rows, : table.shape[1]]
            np.testing.assert_array_equal(shown[table >= 0], table[table >= 0])
    assert cells > 50 and holes > 10


def test_an_engine_of_persistent_tables_gets_no_others() -> None:
    scheduler = Scheduler(config())
    scheduler.use_persistent_tables(True)
    submit(scheduler, "a", 9)
    plan = step(scheduler)
    batch = plan.batch
    assert batch is not None
    with pytest.raises(RuntimeError, match="use_persistent_tables"):
        _ = batch.block_tables
    with pytest.raises(RuntimeError, match=r"Scheduler\.block_table"):
        batch.block_tables_arrays()
    assert plan.changed_cells["full"].tolist() == [[1, 0, 1], [1, 1, 2], [1, 2, 3]]
    scheduler.use_persistent_tables(False)
    batch = step(scheduler).batch
    assert batch is not None
    assert batch.block_tables == {"full": [[1, 2, 3]]}
