"""What a scheduler raises, and that it has changed nothing by then."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import tokenspeed.scheduler as ts
from tokenspeed.scheduler import Cache, ExecutionEvent, ForwardEvent, RequestSpec, Scheduler

from .engine import TOKEN, config, gauges, step, submit, tell


@pytest.fixture
def scheduler() -> Scheduler:
    """`a` decodes and is owed a token; `b`'s prompt is under way; `c` waits."""
    scheduler = Scheduler(config(num_host_pages=17, max_scheduled_tokens=12))
    submit(scheduler, "a", 9)
    step(scheduler)
    step(scheduler)
    submit(scheduler, "b", 20)
    step(scheduler)
    submit(scheduler, "c", 4)
    return scheduler


def test_the_fixture_is_what_it_says(scheduler: Scheduler) -> None:
    assert (scheduler.waiting_size(), scheduler.prefilling_size(), scheduler.decoding_size()) == (
        1,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (RequestSpec("d", []), "empty_prompt"),
        (RequestSpec("a", [1]), "duplicate_request_id"),
        (RequestSpec("c", [1]), "duplicate_request_id"),
        (RequestSpec("d", [1], -1), "negative_budget"),
        (RequestSpec("d", [1], 64), "request_too_large"),
        (RequestSpec("d", [1] * 64), "request_too_large"),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_a_batch_with_a_bad_request_is_refused_whole(
    scheduler: Scheduler, spec: RequestSpec, code: str
) -> None:
    before = gauges(scheduler)
    with pytest.raises(ts.RequestError, match=f"request '{spec.request_id}'") as refusal:
        scheduler.submit_requests([RequestSpec("e", [1, 2]), spec, RequestSpec("f", [1])])
    assert refusal.value.code == code
    assert gauges(scheduler) == before
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (ForwardEvent.ExtendResult("a", [1]), "result_not_owed"),
        (ForwardEvent.ExtendResult("c", [1]), "unexpected_event"),
        (ForwardEvent.Finish("b"), "unexpected_event"),
        (ForwardEvent.Finish("c"), "unexpected_event"),
        (ForwardEvent.Retract("c"), "unexpected_event"),
        (ForwardEvent.UpdateReserveNumTokens("b", 4), "unexpected_event"),
        (ForwardEvent.UpdateReserveNumTokens("a", -1), "bad_reserve"),
        (ForwardEvent.UpdateReserveNumTokens("a", 2**63 - 1), "bad_reserve"),
    ],
    ids=repr,
)
def test_a_list_with_a_bad_event_is_refused_whole(
    scheduler: Scheduler, event: Any, code: str
) -> None:
    before = gauges(scheduler)
    with pytest.raises(ts.EventError, match=f"request '{event.request_id}'") as refusal:
        tell(scheduler, ForwardEvent.UpdateReserveNumTokens("a", 2), event, ForwardEvent.Abort("c"))
    assert refusal.value.code == code
    assert gauges(scheduler) == before
    assert isinstance(refusal.value, ValueError) and isinstance(refusal.value, RuntimeError)


def test_one_result_too_many(scheduler: Scheduler) -> None:
    batch = step(scheduler).batch
    assert batch is not None
    before = gauges(scheduler)
    result = ForwardEvent.ExtendResult("b", [TOKEN])
    for events in ([result], [result, result]):
        with pytest.raises(ts.EventError, match="'b'"):
            tell(scheduler, *events)
        assert gauges(scheduler) == before


def test_a_wrong_acknowledgement() -> None:
    scheduler = Scheduler(config(num_host_pages=17))
    submit(scheduler, "a", 9)
    step(scheduler)
    (store,) = scheduler.next_execution_plan().cache
    with pytest.raises(ts.EventError, match="operation 0") as refusal:
        tell(scheduler, Cache.LoadBackDoneEvent(0, True))
    assert refusal.value.code == "unknown_operation"
    tell(scheduler, Cache.WriteBackDoneEvent(store.op_ids[0]))


def test_what_is_gone_is_ignored(scheduler: Scheduler) -> None:
    tell(scheduler, ForwardEvent.Abort("a"))
    before = gauges(scheduler)
    tell(
        scheduler,
        ForwardEvent.ExtendResult("a", [1, 2, 3]),
        ForwardEvent.Finish("a"),
        ForwardEvent.Abort("never was"),
        ForwardEvent.Retract("never was"),
        ForwardEvent.UpdateReserveNumTokens("a", 1),
        Cache.WriteBackDoneEvent(2**64 - 1),
        Cache.LoadBackDoneEvent(99, True),
    )
    assert gauges(scheduler) == before


def test_an_unknown_group(scheduler: Scheduler) -> None:
    for ask in (
        scheduler.cache_group_total_pages,
        scheduler.cache_group_available_pages,
        scheduler.block_table,
    ):
        with pytest.raises(ts.UnknownGroupError, match="'none'") as refusal:
            ask("none")
        assert isinstance(refusal.value, IndexError) and isinstance(refusal.value, ValueError)
        assert refusal.value.code == "unknown_group"


def test_what_is_no_event_is_a_type_error() -> None:
    events = ExecutionEvent()
    for thing in ("Finish", None, ForwardEvent.Finish, RequestSpec("a", [1])):
        with pytest.raises(TypeError, match="expected an event of ForwardEvent, Cache or PD"):
            events.add_event(thing)  # type: ignore[arg-type]
    assert len(events) == 0


def test_events_are_copied_and_chained() -> None:
    finish = ForwardEvent.Finish("a")
    events = ExecutionEvent([finish])
    finish.request_id = "b"
    assert events.add_event(finish).add_event(ForwardEvent.Abort("c")) is events
    assert repr(events) == "<ExecutionEvent: ['Finish', 'Finish', 'Abort']>"
    scheduler = Scheduler(config())
    submit(scheduler, "a", 5)
    step(scheduler)
    scheduler.advance(events)
    assert scheduler.request_token_size("a") == -1


def test_no_external_store_yet(scheduler: Scheduler) -> None:
    keys = scheduler.expand_prefix_keys(["00" * 32])
    for call in (scheduler.register_storage_keys, scheduler.unregister_storage_keys):
        with pytest.raises(ts.UnsupportedError, match="enable_l3_storage"):
            call(*keys)


def test_a_key_that_no_page_could_have_is_refused_by_name(scheduler: Scheduler) -> None:
    with pytest.raises(ts.EventError, match=r"content_hashes.*the entry 'x'"):
        scheduler.expand_prefix_keys(["00" * 32, "x"])
    with pytest.raises(OverflowError, match="int64"):
        scheduler.register_storage_keys([2**63], ["00" * 32], [0])


def test_errors_travel_between_processes() -> None:
    for error in (ts.RequestError("text", "empty_prompt"), ts.InternalError("text")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == "text" and copy.code == error.code


def test_a_call_that_breaks_off_spoils_the_scheduler_and_not_the_process(
    scheduler: Scheduler, capfd: pytest.CaptureFixture[str]
) -> None:
    if not hasattr(scheduler, "_break_off"):
        pytest.skip("a release build cannot be made to break off")
    with pytest.raises(ts.InternalError, match="broke off midway: as asked") as first:
        scheduler._break_off()
    assert first.value.code == "internal"
    assert "as asked" in capfd.readouterr().err
    for call in (
        scheduler.next_execution_plan,
        scheduler.waiting_size,
        lambda: submit(scheduler, "d", 4),
        lambda: tell(scheduler),
        lambda: scheduler.block_table("full"),
    ):
        with pytest.raises(ts.InternalError, match="a former call broke off"):
            call()
    assert repr(scheduler) == "<Scheduler: a call broke off midway>"
    other = Scheduler(config())
    submit(other, "a", 4)
    assert step(other).batch is not None
