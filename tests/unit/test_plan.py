"""What a plan and its batch look like, in the formats that engines read."""

from __future__ import annotations

import numpy as np
from tokenspeed.scheduler import (
    Cache,
    CacheGroupConfig,
    ExecutionPlan,
    Forward,
    RequestSpec,
    Scheduler,
)

from .engine import TOKEN, config, play, step, submit


def test_an_empty_plan_has_one_batch_without_requests() -> None:
    plan = Scheduler(config()).next_execution_plan()
    (batch,) = plan.forward
    assert isinstance(batch, Forward.Batch)
    assert plan.batch is None
    assert len(batch) == 0 and batch.request_ids == [] and batch.num_extends() == 0
    assert batch.block_tables == {} and batch.block_tables_arrays() == {}
    assert plan.cache == [] and plan.pages_to_zero == {} and plan.pages_to_zero_arrays() == {}
    assert plan.changed_cells == {} and plan.retracted.size == 0 and plan.aborts == []
    assert plan.remote_prefill is None and plan.remote_decode is None
    assert plan.num_retractions == plan.num_write_back_blocks == plan.num_load_back_blocks == 0


def test_a_plan_of_ones_own_is_empty() -> None:
    plan = ExecutionPlan()
    assert plan.forward == [] and plan.batch is None and plan.cache == []


def test_a_chunk_and_the_decode_behind_it() -> None:
    scheduler = Scheduler(config(max_scheduled_tokens=6))
    submit(scheduler, "a", 8)
    first = 1000 * ord("a")
    batch = step(scheduler).batch
    assert batch is not None
    assert batch.input_ids == list(range(first, first + 6))
    assert batch.shifted_input_ids == list(range(first + 1, first + 7))
    assert batch.extend_prefix_lens == [0] and batch.extend_replay_lens == [0]
    assert batch.input_lengths == [6] and batch.prefill_lengths == [8]
    batch = step(scheduler).batch
    assert batch is not None
    assert batch.input_ids == [first + 6, first + 7]
    assert batch.shifted_input_ids == [first + 7, -1]
    assert batch.extend_prefix_lens == [6] and batch.num_extends() == 1
    batch = step(scheduler).batch
    assert batch is not None
    assert batch.num_extends() == 0 and batch.input_lengths == [1]
    assert batch.decode_input_ids == [-1] and batch.spec_candidate_ids == [[]]
    assert batch.input_ids == [] and batch.extend_prefix_lens == []
    assert scheduler.request_token_size("a") == 10


def test_dicts_are_in_the_order_of_names_and_leave_out_what_is_empty() -> None:
    groups = [CacheGroupConfig(name, 4, 17) for name in ("zeta", "alpha", "mid")]
    scheduler = Scheduler(config(cache_groups=groups))
    assert scheduler.group_ids == ["zeta", "alpha", "mid"]
    submit(scheduler, "a", 3)
    plan = step(scheduler)
    batch = plan.batch
    assert batch is not None
    for names in (
        batch.block_tables,
        batch.block_tables_arrays(),
        plan.pages_to_zero,
        plan.pages_to_zero_arrays(),
        plan.changed_cells,
    ):
        assert list(names) == ["alpha", "mid", "zeta"]
    assert plan.pages_to_zero == {"alpha": [2], "mid": [3], "zeta": [1]}
    assert step(scheduler).pages_to_zero == {}


def test_rows_of_a_table_are_padded() -> None:
    scheduler = Scheduler(config())
    submit(scheduler, "a", 2)
    submit(scheduler, "b", 11)
    batch = step(scheduler).batch
    assert batch is not None
    assert batch.block_tables == {"full": [[1, -1, -1], [2, 3, 4]]}


def test_copies_between_the_tiers() -> None:
    scheduler = Scheduler(config(num_host_pages=33, blocks=8))
    submit(scheduler, "a", 8)
    submit(scheduler, "b", 12)
    step(scheduler)
    plan = step(scheduler)
    (store,) = plan.cache
    assert isinstance(store, Cache.WriteBackOp)
    assert store.op_ids == [0] and store.source_pinned == [True]
    assert store.group_ids == [[0] * 5] and store.page_offsets == [[0] * 5]
    assert store.src_pages == [[1, 2, 4, 5, 6]] and store.dst_pages == [[1, 2, 3, 4, 5]]
    assert plan.num_write_back_blocks == 5 and plan.num_load_back_blocks == 0
    prompt = np.arange(1000 * ord("a"), 1000 * ord("a") + 9, dtype=np.int32)
    assert store.content_hashes[0][:2] == scheduler.prefix_hashes_for_tokens(prompt)

    loads = []
    retracted = []
    for _ in range(60):
        plan = step(scheduler)
        retracted += plan.retracted.tolist()
        loads += [(plan, op) for op in plan.cache if isinstance(op, Cache.LoadBackOp)]
        if loads:
            break
    (plan, load), *_ = loads
    assert retracted and plan.num_load_back_blocks == len(load.src_pages[0]) > 0
    assert load.content_hashes == [[""] * plan.num_load_back_blocks]
    assert load.prefetch_from_storage == [[0] * plan.num_load_back_blocks]
    assert (
        load.dst_pages[0]
        == next(iter(plan.forward[0].block_tables.values()))[0][: plan.num_load_back_blocks]
    )
    assert plan.batch is not None
    assert plan.batch.host_hit_tokens[0] == 4 * plan.num_load_back_blocks
    assert plan.batch.input_ids[-1] == TOKEN


def test_a_hit_is_counted_once() -> None:
    scheduler = Scheduler(config(max_scheduled_tokens=6))
    submit(scheduler, "a", 9)
    for _ in range(3):
        step(scheduler)
    spec_tokens = list(range(1000 * ord("a"), 1000 * ord("a") + 9)) + [1] * 8
    scheduler.submit_requests([RequestSpec("b", spec_tokens)])
    hits = []
    for _ in range(4):
        batch = step(scheduler).batch
        assert batch is not None
        if batch.num_extends():
            hits.append((batch.device_hit_tokens, batch.extend_prefix_lens))
    assert hits == [([8], [8]), ([0], [14])]


def test_what_the_scheduler_ends_is_reported() -> None:
    scheduler = Scheduler(config(blocks=3))
    submit(scheduler, "a", 5)
    for _ in range(20):
        plan = scheduler.next_execution_plan()
        if plan.aborts:
            break
        play(scheduler, plan)
    (notice,) = plan.aborts
    assert notice.request_id == "a" and notice.reason == "outgrew_pool"
    assert notice.text
    assert scheduler.request_token_size("a") == -1
