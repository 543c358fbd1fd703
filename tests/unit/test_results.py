"""The array path: results and ends by handle."""

from __future__ import annotations

import numpy as np
import pytest
from tokenspeed.scheduler import (
    EventError,
    ExecutionEvent,
    ForwardEvent,
    Scheduler,
)

from .engine import config, gauges, results, step, submit, tell


def decoding(*request_ids: str) -> tuple[Scheduler, np.ndarray]:
    """A scheduler whose requests each wait for their second token, and their handles."""
    scheduler = Scheduler(config())
    for request_id in request_ids:
        submit(scheduler, request_id, 5)
    batch = step(scheduler).batch
    assert batch is not None
    scheduler.next_execution_plan()
    return scheduler, batch.handles


def test_arrays_do_what_events_do() -> None:
    settings = config(blocks=40, max_scheduled_tokens=32)
    by_events, by_arrays = Scheduler(settings), Scheduler(settings)
    for scheduler in (by_events, by_arrays):
        submit(scheduler, "a", 5)
        submit(scheduler, "b", 50)
    for round_ in range(12):
        plans = [scheduler.next_execution_plan() for scheduler in (by_events, by_arrays)]
        batches = [plan.forward[0] for plan in plans]
        assert repr(plans[0]) == repr(plans[1])
        assert batches[0].block_tables == batches[1].block_tables
        handles, tokens, offsets = results(batches[1])
        event = ExecutionEvent()
        for i, request_id in enumerate(batches[0].request_ids):
            result = ForwardEvent.ExtendResult(request_id)
            result.tokens = tokens[offsets[i] : offsets[i + 1]]
            event.add_event(result)
        by_events.advance(event)
        by_arrays.advance_results(handles, tokens, offsets)
        if round_ == 8:
            tell(by_events, ForwardEvent.Finish("a"))
            by_arrays.finish(handles[[i == "a" for i in batches[1].request_ids]])
        assert gauges(by_events) == gauges(by_arrays)
    assert by_arrays.request_token_size("b") > 50


def test_a_handle_names_row_and_tenant() -> None:
    scheduler, handles = decoding("a", "b")
    assert handles.tolist() == [1, 2]
    scheduler.finish(handles[:1])
    for _ in range(8):
        submit(scheduler, "c", 5)
        batch = step(scheduler).batch
        assert batch is not None
        (handle,) = batch.handles[[i == "c" for i in batch.request_ids]].tolist()
        assert handle & 0xFFFFFFFF == batch.request_pool_indices[batch.request_ids.index("c")]
        if handle & 0xFFFFFFFF == 1:
            break
        scheduler.finish([handle])
    assert handle == (1 << 32) + 1


def test_stale_handles_are_ignored() -> None:
    scheduler, handles = decoding("a", "b")
    scheduler.finish(handles[:1])
    before = gauges(scheduler)
    one_each = np.arange(2, dtype=np.int64)
    scheduler.advance_results(handles[:1], np.ones(1, dtype=np.int32), one_each)
    scheduler.finish(handles[:1])
    scheduler.finish(np.array([0, 77, (5 << 32) + 2, 2**64 - 1], dtype=np.uint64))
    assert gauges(scheduler) == before
    scheduler.advance_results(handles, np.ones(2, dtype=np.int32), np.arange(3))
    assert scheduler.request_token_size("b") == 7


def test_lists_will_do_for_arrays() -> None:
    scheduler, handles = decoding("a")
    scheduler.advance_results(handles.tolist(), [1], [0, 1])
    assert scheduler.request_token_size("a") == 7


@pytest.mark.parametrize(
    ("tokens", "offsets", "text"),
    [
        (2, [0, 1], "one more than `handles`"),
        (2, [0, 1, 3], "`tokens` \\(2\\)"),
        (2, [1, 2, 2], "from 0"),
        (2, [0, 3, 2], "fall"),
        (2, [0, -1, 2], "fall|step"),
        (3, [0, 1, 3], "request 'b': the result has 2 tokens"),
        (1, [0, 1, 1], "request 'b': the result has 0 tokens"),
    ],
)
def test_arrays_that_do_not_fit_change_nothing(tokens: int, offsets: list[int], text: str) -> None:
    scheduler, handles = decoding("a", "b")
    before = gauges(scheduler)
    with pytest.raises(EventError, match=text):
        scheduler.advance_results(handles, np.ones(tokens, dtype=np.int32), np.array(offsets))
    assert gauges(scheduler) == before


def test_a_request_twice_changes_nothing() -> None:
    scheduler, handles = decoding("a")
    before = gauges(scheduler)
    with pytest.raises(EventError, match="handles"):
        scheduler.advance_results(np.repeat(handles, 2), np.ones(2, dtype=np.int32), np.arange(3))
    assert gauges(scheduler) == before


@pytest.mark.parametrize("tokens", [np.ones(1), [0.5], "a", [2**31], np.array([2**31]), [[1]]])
def test_tokens_are_int32(tokens: object) -> None:
    scheduler, handles = decoding("a")
    before = gauges(scheduler)
    with pytest.raises((TypeError, OverflowError)):
        scheduler.advance_results(handles, tokens, [0, 1])  # type: ignore[arg-type]
    assert gauges(scheduler) == before


def test_an_unfinished_prompt_cannot_finish() -> None:
    scheduler = Scheduler(config(max_scheduled_tokens=4))
    submit(scheduler, "a", 9)
    batch = step(scheduler).batch
    assert batch is not None
    before = gauges(scheduler)
    with pytest.raises(EventError, match=r"'a'.*`Finish`.*`Prefilling`"):
        scheduler.finish(batch.handles)
    assert gauges(scheduler) == before


def test_what_is_owed() -> None:
    scheduler, _ = decoding("a", "b")
    owed = [(o.request_id, o.results, o.since_round) for o in scheduler.owed_results()]
    assert owed == [("a", 1, 2), ("b", 1, 2)]
    tell(scheduler, ForwardEvent.ExtendResult("a", [1]))
    assert [o.request_id for o in scheduler.owed_results()] == ["b"]
