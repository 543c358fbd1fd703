"""The bytes that routers read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tokenspeed.events import AllBlocksCleared, Batch, BlockRemoved, BlockStored, ResidentBlocks
from tokenspeed.events.wire import Layout, decode, encode, frame

from .engine import build, play

LARGE = 2**64 - 1


def drained() -> list[Any]:
    scheduler = build()
    play(scheduler, 0)
    return scheduler.drain_kv_events()


def test_events_are_maps_with_a_type() -> None:
    first, second = drained()
    timestamp_s, events, rank = msgspec.msgpack.decode(encode(1.5, [first, second], 3, "map"))
    assert (timestamp_s, rank) == (1.5, 3)
    assert events[0] == {
        "type": "BlockStored",
        "block_hashes": first.block_hashes,
        "parent_block_hash": None,
        "token_ids": [0, 1, 2, 3],
        "block_size": 4,
    }
    assert events[1]["parent_block_hash"] == first.block_hashes[0]
    assert msgspec.msgpack.decode(encode(0, None, None, "map")) == [
        0,
        [{"type": "AllBlocksCleared"}],
        None,
    ]


def test_events_may_be_arrays() -> None:
    first, second = drained()
    _, events, _ = msgspec.msgpack.decode(encode(1.5, [first, second], None, "array"))
    assert events[1] == [
        "BlockStored",
        second.block_hashes,
        first.block_hashes[0],
        [4, 5, 6, 7],
        4,
        None,
    ]
    assert msgspec.msgpack.decode(encode(0, None, None, "array"))[1] == [["AllBlocksCleared"]]


@pytest.mark.parametrize("layout", ["map", "array"])
def test_what_is_written_is_read(layout: Layout) -> None:
    scheduler = build()
    play(scheduler, 0)
    stored = scheduler.drain_kv_events()
    assert scheduler.clear_cache()
    removed = scheduler.drain_kv_events()
    batch = decode((b"", frame(5), encode(2.5, [*removed, *stored], 1, layout)))
    assert (batch.sequence, batch.timestamp_s, batch.data_parallel_rank) == (5, 2.5, 1)
    gone, _, first, second = batch.events
    assert isinstance(gone, BlockRemoved) and isinstance(second, BlockStored)
    assert gone.block_hashes == second.block_hashes
    assert isinstance(first, BlockStored) and first.token_ids == [0, 1, 2, 3]
    (cleared,) = decode((b"", frame(0), encode(0, None, None, layout))).events
    assert isinstance(cleared, AllBlocksCleared)


def test_others_may_add_fields_and_put_several_pages_into_an_event() -> None:
    stored = {
        "type": "BlockStored",
        "block_hashes": [1, LARGE],
        "parent_block_hash": None,
        "token_ids": [5, 6, 7, 8],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
    }
    array = ["BlockStored", [3], LARGE, [9, 9], 2, None, "GPU"]
    resident = ResidentBlocks()
    resident.apply(decode((b"", frame(0), msgspec.msgpack.encode([0.0, [stored], 0]))))
    resident.apply(decode((b"", frame(1), msgspec.msgpack.encode([0.0, [array]]))))
    assert dict(resident) == {1: None, LARGE: 1, 3: LARGE}
    assert resident.hit_pages([1, LARGE, 4, 3]) == 2
    assert resident.hit_pages([1]) == 1


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93\x00\x90\xc0\x00", b"\x90", b"\x01"])
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode((b"", frame(0), payload))


def test_what_has_other_frames_is_refused() -> None:
    payload = encode(0, None, None, "map")
    for frames in ([], [frame(0), payload], [b"", b"12", payload], [b"", frame(0), payload, b""]):
        with pytest.raises(msgspec.DecodeError, match="frames"):
            decode(frames)


def test_after_a_loss_nothing_is_held_that_may_be_gone() -> None:
    resident = ResidentBlocks()
    resident.apply(Batch(0, 0.0, [BlockStored([1, 2], None, [0] * 8, 4)], None))
    resident.apply(Batch(1, 0.0, [BlockRemoved([2])], None))
    assert dict(resident) == {1: None}
    resident.apply(Batch(4, 0.0, [BlockStored([9], 8, [0] * 4, 4)], None, missed=2))
    assert dict(resident) == {9: 8}
    resident.apply(Batch(5, 0.0, [AllBlocksCleared()], None))
    assert len(resident) == 0
