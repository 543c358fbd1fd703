"""Arrays and buffers of every layout: read in their own order, or refused by an exception."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tokenspeed.scheduler import CapacityModel, ExecutionEvent, ForwardEvent, RequestSpec, Scheduler

from .engine import config, gauges, step, submit


def strided(values: np.ndarray, stride: int) -> np.ndarray:
    """A view of the same values, `stride` entries apart in a larger array; backwards if below 0."""
    around = np.full(len(values) * abs(stride), 99, dtype=values.dtype)
    view = around[::stride]
    view[:] = values
    return view


def unaligned(values: np.ndarray) -> np.ndarray:
    """A view of the same values whose memory starts one byte past an aligned address."""
    view = np.frombuffer(b"\0" + values.tobytes(), dtype=values.dtype, offset=1)
    assert not view.flags.aligned
    return view


def record_field(values: np.ndarray) -> np.ndarray:
    """A view of the same values, strided and unaligned, in packed records."""
    records = np.zeros(len(values), dtype=[("pad", np.int8), ("values", values.dtype)])
    records["values"] = values
    return records["values"]


def view_of(values: np.ndarray) -> memoryview:
    return memoryview(values)  # type: ignore[arg-type]  # a buffer from Python 3.12 on, for mypy


def read_only(values: np.ndarray) -> np.ndarray:
    copy = values.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "as it is": lambda values: values,
    "strided": lambda values: strided(values, 3),
    "reversed": lambda values: strided(values, -1),
    "reversed and strided": lambda values: strided(values, -2),
    "unaligned": unaligned,
    "unaligned and reversed": lambda values: unaligned(values[::-1])[::-1],
    "a record's field": record_field,
    "a column": lambda values: np.stack([values, values + values.dtype.type(1)], axis=1)[:, 0],
    "of the other endianness": lambda values: values.astype(values.dtype.newbyteorder()),
    "of the other endianness, reversed": lambda values: strided(
        values.astype(values.dtype.newbyteorder()), -1
    ),
    "read-only": read_only,
    "of objects": lambda values: values.astype(object),
    "a memoryview": view_of,
    "a reversed memoryview": lambda values: view_of(values[::-1].copy())[::-1],
    "an array.array": lambda values: array.array(values.dtype.char, values.tolist()),
    "a list": lambda values: values.tolist(),
    "a list of NumPy's integers": list,
    "a tuple": lambda values: tuple(values.tolist()),
}


every_layout = pytest.mark.parametrize("laid_out", LAYOUTS.values(), ids=LAYOUTS)


@every_layout
def test_tokens_are_read_in_order(laid_out: Callable[[np.ndarray], Any]) -> None:
    tokens = [5, 0, 2**31 - 1, -(2**31), 3]
    given = laid_out(np.array(tokens, dtype=np.int32))
    assert RequestSpec("a", given).tokens == tokens
    result = ForwardEvent.ExtendResult("a", given, given)
    assert result.tokens == result.spec_candidate_ids == tokens
    result.tokens = laid_out(np.array(tokens[:3], dtype=np.int32))
    assert result.tokens == tokens[:3]
    scheduler = Scheduler(config())
    assert scheduler.prefix_hashes_for_tokens(given) == scheduler.prefix_hashes_for_tokens(tokens)


@every_layout
def test_results_are_read_in_order(laid_out: Callable[[np.ndarray], Any]) -> None:
    """A verify step of four: `a` accepts 1 token, `b` 3 and `c` 2."""
    schedulers = []
    for layout in (laid_out, list):
        scheduler = Scheduler(config(decode_input_tokens=4, blocks=32))
        for request_id in "abc":
            submit(scheduler, request_id, 5)
        batch = step(scheduler).batch
        assert batch is not None
        scheduler.next_execution_plan()
        scheduler.advance_results(
            layout(batch.handles),
            layout(np.arange(11, 17, dtype=np.int32)),
            layout(np.array([0, 1, 4, 6], dtype=np.int64)),
        )
        schedulers.append(scheduler)
    assert [schedulers[0].request_token_size(name) for name in "abc"] == [7, 9, 8]
    assert gauges(schedulers[0]) == gauges(schedulers[1])
    assert repr(schedulers[0].next_execution_plan()) == repr(schedulers[1].next_execution_plan())


@every_layout
def test_handles_to_finish_are_read_in_order(laid_out: Callable[[np.ndarray], Any]) -> None:
    scheduler = Scheduler(config())
    for request_id in "abc":
        submit(scheduler, request_id, 5)
    batch = step(scheduler).batch
    assert batch is not None
    scheduler.finish(laid_out(batch.handles[[0, 2]]))
    assert [scheduler.request_token_size(name) for name in "abc"] == [-1, 6, -1]


@pytest.mark.parametrize(
    "empty",
    [
        [],
        (),
        np.array([]),
        np.array([], dtype=np.int32),
        np.array([], dtype=bool),
        bytearray(),
        range(0),
    ],
    ids=lambda empty: f"{type(empty).__name__} of {getattr(empty, 'dtype', None)}",
)
def test_empty(empty: Any) -> None:
    assert RequestSpec("a", empty).tokens == []
    scheduler = Scheduler(config())
    assert scheduler.prefix_hashes_for_tokens(empty) == []
    scheduler.finish(empty)
    scheduler.advance_results(empty, empty, [0])


@pytest.mark.parametrize(
    "given",
    [
        np.array(5, dtype=np.int32),
        np.ones((2, 2), dtype=np.int32),
        np.ones((2, 2), dtype=np.int32).T,
        np.ones((1, 1, 1), dtype=np.int64),
        np.ones((0, 3), dtype=np.int32),
        np.ones((3, 0)),
        np.array([True, False]),
        np.array([1.0, 2.0]),
        np.array([1.0, 2.0], dtype=np.float16),
        np.array([1, 2], dtype=complex),
        np.array([1, 2], dtype="m8[ns]"),
        np.array([1, 2], dtype="M8[ns]"),
        np.array(["1", "2"]),
        np.array([b"1", b"2"]),
        np.array([(1, 2)], dtype="i4,i4"),
        np.array([1, None], dtype=object),
        np.array([1, 2.5], dtype=object),
        np.array([1, [2]], dtype=object),
        memoryview(bytes(16)).cast("i", (2, 2)),
        memoryview(bytes(2)).cast("?"),
        array.array("d", [1.0]),
        [1, 2.5],
        [1, None],
        [[1, 2]],
        [np.float32(1)],
        {1, 2},
        {1: 2},
        iter([1, 2]),
        object(),
    ],
    ids=lambda given: f"{type(given).__name__} of {getattr(given, 'dtype', given)}",
)
def test_what_is_no_list_of_integers_is_a_type_error(given: Any) -> None:
    scheduler = Scheduler(config())
    with pytest.raises(TypeError, match=r"expected .*int32"):
        RequestSpec("a", given)
    with pytest.raises(TypeError, match="int32 integers, but item 1 is 'x'"):
        RequestSpec("a", [0, "x"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"expected .*int32"):
        scheduler.prefix_hashes_for_tokens(given)
    with pytest.raises(TypeError, match=r"expected .*uint64"):
        scheduler.finish(given)
    with pytest.raises(TypeError, match=r"expected .*int64"):
        scheduler.advance_results([], [], given)


def test_an_iterator_that_always_raises_ends_all_the_same() -> None:
    class Raises:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            raise TypeError("never")

    class Odd(list[int]):
        def __iter__(self) -> Any:
            return Raises()

    with pytest.raises(TypeError, match="never"):
        RequestSpec("a", Odd([1]))


@pytest.mark.parametrize("layout", [list, tuple, np.array, lambda ids: np.array(ids, dtype=object)])
@pytest.mark.parametrize("outside", [2**31, -(2**31) - 1, 2**32, 2**63, 2**64, -(2**100)])
def test_what_does_not_fit_is_an_overflow(layout: Callable[[list[int]], Any], outside: int) -> None:
    given = layout([outside])
    scheduler = Scheduler(config())
    with pytest.raises(OverflowError, match="int32"):
        RequestSpec("a", given)
    with pytest.raises(OverflowError, match=f"int32 integers, but item 1 is {outside}"):
        RequestSpec("a", [0, outside])
    with pytest.raises(OverflowError, match="int32"):
        scheduler.advance_results([1], given, [0, 1])
    if not 0 <= outside < 2**64:
        with pytest.raises(OverflowError, match="uint64"):
            scheduler.finish(given)
    if not -(2**63) <= outside < 2**63:
        with pytest.raises(OverflowError, match="int64"):
            scheduler.advance_results([], [], given)


def test_an_array_too_large_to_copy_is_a_memory_error() -> None:
    endless = np.broadcast_to(np.int32(1), 2**60)
    with pytest.raises(MemoryError):
        RequestSpec("a", endless)


def test_an_error_on_the_way_is_passed_on() -> None:
    class Broken:
        def __index__(self) -> int:
            raise KeyError("as asked")

    with pytest.raises(KeyError, match="as asked"):
        RequestSpec("a", [Broken()])


class Liar(Sequence[Any]):
    """An empty sequence that says that it is endless."""

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: Any) -> Any:
        raise IndexError


class LyingList(list[Any]):
    def __len__(self) -> int:
        return 2**62


@pytest.mark.parametrize("liar", [Liar(), LyingList()], ids=["sequence", "list"])
def test_a_false_length_ends_nothing(liar: Any) -> None:
    scheduler = Scheduler(config())
    scheduler.submit_requests(liar)
    assert len(ExecutionEvent(liar)) == 0
    assert scheduler.expand_prefix_keys(liar) == ([], [], [])
    with pytest.raises(ValueError):
        CapacityModel(config()).lcm_blocks_needed_for(liar)
    settings = config()
    settings.cache_groups = liar
    assert settings.cache_groups == []


def test_a_list_with_a_false_length_is_a_list_of_tokens() -> None:
    assert RequestSpec("a", LyingList([1, 2])).tokens == [1, 2]


@pytest.mark.parametrize(
    "call",
    [Scheduler.expand_prefix_keys, Scheduler.submit_requests, lambda _, text: ExecutionEvent(text)],
)
def test_a_string_is_no_list(call: Callable[[Scheduler, Any], Any]) -> None:
    with pytest.raises(TypeError, match="expected a list, got str"):
        call(Scheduler(config()), "abc")
