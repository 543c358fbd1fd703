"""An engine small enough to follow: prompts that come, are computed, and end."""

from __future__ import annotations

from collections.abc import Iterable

from tokenspeed.scheduler import (
    CacheGroupConfig,
    ExecutionEvent,
    ForwardEvent,
    RequestSpec,
    Scheduler,
    SchedulerConfig,
)

BLOCKS = 12
PAGE = 4


def build() -> Scheduler:
    """One full group of pages of 4 tokens, 12 usable blocks, cache events on."""
    return Scheduler(
        SchedulerConfig(
            prefix_granularity=PAGE,
            num_device_pages=BLOCKS + 1,
            max_scheduled_tokens=64,
            max_batch_size=4,
            cache_groups=[CacheGroupConfig("full", PAGE, BLOCKS + 1)],
            enable_kv_cache_events=True,
        )
    )


def prompt(turn: int) -> list[int]:
    """Prompts of three families, each of another length, so that pages come, go and are hit."""
    return [turn % 3 * 1000 + at for at in range(9 + turn % 5 * 4)]


def play(scheduler: Scheduler, turn: int) -> None:
    """Computes one prompt and ends it."""
    scheduler.submit_requests([RequestSpec(f"r{turn}", prompt(turn), 1)])
    batch = scheduler.next_execution_plan().batch
    assert batch is not None
    result = ForwardEvent.ExtendResult(f"r{turn}", [7])
    scheduler.advance(ExecutionEvent([result, ForwardEvent.Finish(f"r{turn}")]))


def held_after(turns: Iterable[int]) -> set[int]:
    """Names of what prompts would find on an engine that has played these: told in one drain, so
    that nothing is told which is not there."""
    scheduler = build()
    for turn in turns:
        play(scheduler, turn)
    events = scheduler.drain_kv_events()
    assert {event.kind for event in events} == {"BlockStored"}
    return {event.block_hashes[0] for event in events}
