"""Cache events as lines for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain

import msgspec

from tokenspeed.events.resident import ResidentBlocks
from tokenspeed.events.subscriber import KvEventSubscriber
from tokenspeed.events.wire import Batch, BlockRemoved, BlockStored

TOKENS_SHOWN = 6
SOON_S = 0.5
"""Who hears nothing for so long is told that it waits."""


class NotEvents(Exception):
    """What came is no batch of cache events."""


def show(
    endpoint: str,
    replay_endpoint: str | None,
    topic: str,
    count: int | None,
    write: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Writes what comes, a line at a time, until `count` batches have come (None: for ever). Notes
    once that it waits, if nothing has come soon.

    Raises ValueError for what is no endpoint, NotEvents for what is no batch.
    """
    resident = ResidentBlocks()
    try:
        with KvEventSubscriber(endpoint, replay_endpoint, topic=topic) as subscriber:
            first = subscriber.receive(SOON_S)
            if first is None:
                note(f"waiting for {endpoint} (Ctrl-C ends it)")
            batches = chain([first] if first else [], subscriber)
            for shown, batch in enumerate(batches, start=1):
                resident.apply(batch)
                for line in lines(batch, len(resident)):
                    write(line)
                if shown == count:
                    return
    except msgspec.DecodeError as error:
        raise NotEvents(f"{endpoint}: what came is no batch of cache events: {error}") from None


def lines(batch: Batch, resident: int) -> Iterator[str]:
    """A batch in lines; `resident` pages are held after it.

    ::

        #12  14:03:07.125  rank 0  1 stored, 1 removed, 87 resident
          - 9a41c0de88120f3b
          + 07fc21aa45d0e911 behind 5be2ff0018c3d0aa  16 tokens: 11, 12, 13, 14, 15, 16, ...
    """
    if batch.missed:
        yield f"     {batch.missed} batches are lost: what they said is unknown"
    stored = sum(len(e.block_hashes) for e in batch.events if isinstance(e, BlockStored))
    removed = sum(len(e.block_hashes) for e in batch.events if isinstance(e, BlockRemoved))
    at = datetime.fromtimestamp(batch.timestamp_s).isoformat(timespec="milliseconds")[11:]
    rank = "" if batch.data_parallel_rank is None else f"rank {batch.data_parallel_rank}  "
    counts = f"{stored} stored, {removed} removed, {resident} resident"
    yield f"#{batch.sequence}  {at}  {rank}{counts}"
    for event in batch.events:
        if isinstance(event, BlockStored):
            parent = event.parent_block_hash
            for place, block_hash in enumerate(event.block_hashes):
                behind = "" if parent is None else f" behind {parent:016x}"
                first = place * event.block_size
                tokens = event.token_ids[first : first + event.block_size]
                some = ", ".join(str(token) for token in tokens[:TOKENS_SHOWN])
                more = ", ..." if len(tokens) > TOKENS_SHOWN else ""
                yield f"  + {block_hash:016x}{behind}  {len(tokens)} tokens: {some}{more}"
                parent = block_hash
        elif isinstance(event, BlockRemoved):
            yield from (f"  - {block_hash:016x}" for block_hash in event.block_hashes)
        else:
            yield "  everything is gone"
