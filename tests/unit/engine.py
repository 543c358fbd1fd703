"""The least of an engine: it answers each plan at once, and every decode samples the same token."""

from __future__ import annotations

from typing import Any

import numpy as np
from tokenspeed.scheduler import (
    Cache,
    CacheGroupConfig,
    ExecutionEvent,
    ExecutionPlan,
    Forward,
    ForwardEvent,
    RequestSpec,
    Scheduler,
    SchedulerConfig,
)

TOKEN = 7
"""What every request samples."""


def config(**fields: Any) -> SchedulerConfig:
    """One full group of pages of 4 tokens, 16 usable blocks; `fields` replace what is set here."""
    blocks = fields.pop("blocks", 16)
    given: dict[str, Any] = {
        "prefix_granularity": 4,
        "num_device_pages": blocks + 1,
        "max_scheduled_tokens": 64,
        "max_batch_size": 8,
        "cache_groups": [CacheGroupConfig("full", 4, blocks + 1)],
    }
    return SchedulerConfig(**(given | fields))


def submit(scheduler: Scheduler, request_id: str, tokens: int, max_new_tokens: int = 0) -> None:
    """Submits a prompt of that many tokens, of a content that only this request has."""
    first = 1000 * sum(request_id.encode())
    prompt = np.arange(first, first + tokens, dtype=np.int32)
    scheduler.submit_requests([RequestSpec(request_id, prompt, max_new_tokens)])


def results(batch: Forward.Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `Scheduler.advance_results` takes for a batch that has run."""
    extends = batch.num_extends()
    ends = batch.extend_prefix_lens_array + batch.input_lengths_array[:extends]
    sampled = np.ones(len(batch), dtype=np.int64)
    sampled[:extends] = ends == batch.prefill_lengths_array[:extends]
    offsets = np.concatenate(([0], np.cumsum(sampled)))
    return batch.handles, np.full(offsets[-1], TOKEN, dtype=np.int32), offsets


def play(scheduler: Scheduler, plan: ExecutionPlan) -> None:
    """Acknowledges a plan's copies and brings its results in."""
    acknowledgements = ExecutionEvent()
    for op in plan.cache:
        for op_id in op.op_ids:
            if isinstance(op, Cache.WriteBackOp):
                acknowledgements.add_event(Cache.WriteBackDoneEvent(op_id))
            else:
                acknowledgements.add_event(Cache.LoadBackDoneEvent(op_id, True))
    scheduler.advance(acknowledgements)
    if plan.batch is not None:
        scheduler.advance_results(*results(plan.batch))


def step(scheduler: Scheduler) -> ExecutionPlan:
    """Plans a round and plays it."""
    plan = scheduler.next_execution_plan()
    play(scheduler, plan)
    return plan


def tell(scheduler: Scheduler, *events: Any) -> None:
    """One `advance` with these events."""
    scheduler.advance(ExecutionEvent(events))


def finish(scheduler: Scheduler, *request_ids: str) -> None:
    """Ends these requests by id."""
    tell(scheduler, *[ForwardEvent.Finish(request_id) for request_id in request_ids])


def gauges(scheduler: Scheduler) -> dict[str, Any]:
    """Everything that one may look at and that a refused call must leave alone."""
    return {
        "waiting": scheduler.waiting_size(),
        "prefilling": scheduler.prefilling_size(),
        "decoding": scheduler.decoding_size(),
        "available": scheduler.available_lcm_blocks(),
        "empty": scheduler.empty_lcm_blocks(),
        "owed": [(o.request_id, o.results, o.since_round) for o in scheduler.owed_results()],
        "sizes": {name: scheduler.request_token_size(name) for name in "abcdefgh"},
        "tables": {name: scheduler.block_table(name).tolist() for name in scheduler.group_ids},
    }
