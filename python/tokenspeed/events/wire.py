"""What the messages look like: three frames, of which the last is msgpack.

=========  =====================================================================================
topic      UTF-8, chosen by the publisher
sequence   8 bytes, big-endian: 0, 1, 2, ... without a gap
payload    ``[timestamp_s, [event, ...], data_parallel_rank]``
=========  =====================================================================================

An event is a map, ``{"type": "BlockStored", "block_hashes": ...}``, or, for consumers that read
events by position, an array, ``["BlockStored", [hash], parent, [token, ...], size, lora]``. Its
fields are those of `tokenspeed.scheduler.KVEvent`.

A replay socket answers the 8 bytes of a sequence number with the batches from there on that are
still kept, each as (sequence, payload), and then with (-1, empty).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from tokenspeed.scheduler import KVEvent

Layout = Literal["map", "array"]

SEQUENCE_BYTES = 8

END = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
"""The sequence frame that ends a replay."""


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """A prompt would now find these pages, each the parent of the next."""

    block_hashes: list[int]
    """Unsigned, 64 bits, one a page."""
    parent_block_hash: int | None
    """The page before the first; None where the prompt begins."""
    token_ids: list[int]
    """`block_size` of them a page."""
    block_size: int


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """No prompt would find these pages any more."""

    block_hashes: list[int]


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """No prompt would find anything any more. A publisher begins with it."""


class _StoredArray(BlockStored, frozen=True, array_like=True, tag="BlockStored"):
    lora_id: int | None = None


class _RemovedArray(BlockRemoved, frozen=True, array_like=True, tag="BlockRemoved"):
    pass


class _ClearedArray(AllBlocksCleared, frozen=True, array_like=True, tag="AllBlocksCleared"):
    pass


Event = BlockStored | BlockRemoved | AllBlocksCleared


@dataclass(frozen=True)
class Batch:
    """What one message brought."""

    sequence: int
    timestamp_s: float
    """Seconds since 1970, by the publisher's clock, when the events were drained."""
    events: Sequence[Event]
    data_parallel_rank: int | None
    missed: int = 0
    """Batches right before this one that nobody has any more: what they said is unknown."""


class _Maps(msgspec.Struct, array_like=True):
    timestamp_s: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class _Arrays(msgspec.Struct, array_like=True):
    timestamp_s: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]
    data_parallel_rank: int | None = None


_encoder = msgspec.msgpack.Encoder()
_maps = msgspec.msgpack.Decoder(_Maps)
_arrays = msgspec.msgpack.Decoder(_Arrays)


def encode(
    timestamp_s: float,
    events: Sequence[KVEvent.BlockStored | KVEvent.BlockRemoved] | None,
    data_parallel_rank: int | None,
    layout: Layout,
) -> bytes:
    """A payload. `events` as `Scheduler.drain_kv_events` gives them; None: everything is gone."""
    if layout == "map":
        stored, removed, cleared = BlockStored, BlockRemoved, AllBlocksCleared
    else:
        stored, removed, cleared = _StoredArray, _RemovedArray, _ClearedArray
    told: list[Event] = [cleared()] if events is None else []
    for event in events or ():
        if isinstance(event, KVEvent.BlockRemoved):
            told.append(removed(event.block_hashes))
        else:
            told.append(
                stored(
                    event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size
                )
            )
    return _encoder.encode((timestamp_s, told, data_parallel_rank))


def decode(frames: Sequence[bytes]) -> Batch:
    """Reads a message of either layout; its first frame may say anything.

    Raises `msgspec.DecodeError` for anything else.
    """
    if len(frames) != 3 or len(frames[1]) != SEQUENCE_BYTES:
        raise msgspec.DecodeError(f"{len(frames)} frames, not a topic, a sequence and a payload")
    _, sequence, payload = frames
    try:
        read: _Maps | _Arrays = _maps.decode(payload)
    except msgspec.ValidationError:
        read = _arrays.decode(payload)
    return Batch(number(sequence), read.timestamp_s, read.events, read.data_parallel_rank)


def number(sequence: bytes) -> int:
    """The number in a sequence frame."""
    return int.from_bytes(sequence, "big", signed=True)


def frame(sequence: int) -> bytes:
    """The sequence frame of a number."""
    return sequence.to_bytes(SEQUENCE_BYTES, "big", signed=True)
