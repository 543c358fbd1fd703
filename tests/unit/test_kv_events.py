"""Cache events as an engine drains them (`api.md`, "KVEvent"; scenario 33)."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest
from tokenspeed.scheduler import CacheGroupConfig, CacheRetention, KVEvent, RequestSpec, Scheduler

from .engine import config, finish, step

P = 4
"""Tokens of a prefix page."""


def short(scheduler: Scheduler, tokens: list[int]) -> list[int]:
    """The names of a prompt's pages: the first 16 digits of their content hashes."""
    return [int(text[:16], 16) for text in scheduler.prefix_hashes_for_tokens([*tokens, 0])]


def run(scheduler: Scheduler, name: str, tokens: list[int]) -> None:
    """Computes a prompt, samples one token, and ends."""
    scheduler.submit_requests([RequestSpec(name, tokens, 1)])
    while not scheduler.prefilling_size():
        step(scheduler)
    finish(scheduler, name)


def apply(held: dict[int, int | None], events: list[Any]) -> None:
    """What a consumer does; each event must make sense when it comes."""
    for event in events:
        (name,) = event.block_hashes
        if event.kind == "BlockRemoved":
            del held[name]
            assert name not in held.values(), "a page goes before its parent"
        else:
            assert event.parent_block_hash is None or event.parent_block_hash in held
            assert name not in held
            held[name] = event.parent_block_hash


def test_a_consumer_holds_exactly_what_is_resident() -> None:
    scheduler = Scheduler(config(blocks=7, enable_kv_cache_events=True))
    prompt = list(range(24))
    names = short(scheduler, prompt)
    held: dict[int, int | None] = {}
    run(scheduler, "a", prompt[:16])
    apply(held, scheduler.drain_kv_events())
    assert list(held) == names[:4]
    run(scheduler, "b", list(range(100, 113)))  # needs 4 blocks, 3 are free
    events = scheduler.drain_kv_events()
    assert [event.kind for event in events] == ["BlockRemoved"] + 3 * ["BlockStored"]
    assert events[0].block_hashes == [names[3]]
    apply(held, events)
    run(scheduler, "c", prompt)
    events = scheduler.drain_kv_events()
    apply(held, events)
    stored = [event.block_hashes[0] for event in events if isinstance(event, KVEvent.BlockStored)]
    assert stored == names[3:6]
    assert list(held) == names[:6]
    assert scheduler.drain_kv_events() == []
    assert scheduler.clear_l1_cache()
    events = scheduler.drain_kv_events()
    assert [event.block_hashes for event in events] == [[name] for name in reversed(names)]


def test_an_event_says_what_the_page_is() -> None:
    scheduler = Scheduler(config(enable_kv_cache_events=True))
    run(scheduler, "a", list(range(8)))
    first, second = scheduler.drain_kv_events()
    assert isinstance(first, KVEvent.BlockStored) and isinstance(second, KVEvent.BlockStored)
    assert (first.token_ids, second.token_ids) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (first.block_size, first.parent_block_hash) == (P, None)
    assert second.parent_block_hash == first.block_hashes[0]
    hashed = struct.pack("<II4i", 0, 4, 0, 1, 2, 3)  # no digest before it, four tokens
    digest = hashlib.sha256(hashed).digest()
    assert first.block_hashes == [int.from_bytes(digest[:8], "big")]
    hashed = struct.pack("<I32sI4i", 32, digest, 4, 4, 5, 6, 7)
    assert second.block_hashes == [int.from_bytes(hashlib.sha256(hashed).digest()[:8], "big")]
    assert repr(first) == (
        f"KVEvent.BlockStored(block_hashes={first.block_hashes}, parent_block_hash=None, "
        "token_ids=[0, 1, 2, 3], block_size=4)"
    )
    assert scheduler.clear_cache()
    removed = scheduler.drain_kv_events()[0]
    assert repr(removed) == f"KVEvent.BlockRemoved(block_hashes={second.block_hashes})"


def test_what_came_and_went_is_not_told() -> None:
    scheduler = Scheduler(config(enable_kv_cache_events=True))
    for _ in range(3):
        run(scheduler, "a", list(range(12)))
        assert scheduler.clear_cache()
    assert scheduler.drain_kv_events() == []


def test_nothing_is_told_that_was_not_asked_for() -> None:
    scheduler = Scheduler(config())
    run(scheduler, "a", list(range(12)))
    assert scheduler.drain_kv_events() == []


def test_below_a_boundary_of_a_sliding_group_the_whole_prompt_is_resident() -> None:
    groups = [
        CacheGroupConfig("full", P, 17),
        CacheGroupConfig("sliding", P, 17, CacheRetention.SlidingWindow, P + 1),
    ]
    scheduler = Scheduler(config(cache_groups=groups, enable_kv_cache_events=True))
    prompt = list(range(13))
    run(scheduler, "a", prompt)
    held: dict[int, int | None] = {}
    apply(held, scheduler.drain_kv_events())
    # The sliding group holds the newest page alone, and a prompt hits all three.
    assert list(held) == short(scheduler, prompt[:12])
    run(scheduler, "b", prompt)
    assert scheduler.drain_kv_events() == []


@pytest.mark.parametrize("unmatched", [False, True])
def test_a_consumer_stands_in_for_a_probe(unmatched: bool) -> None:
    scheduler = Scheduler(
        config(enable_kv_cache_events=True, disable_prefix_cache=unmatched, blocks=12)
    )
    held: dict[int, int | None] = {}
    for turn in range(40):
        prompt = [*range(turn % 3, 8 + turn % 3), *range(turn % 7 * 100, turn % 7 * 100 + 9)]
        names = short(scheduler, prompt[:-1])
        expected = next((at for at, name in enumerate(names) if name not in held), len(names))
        scheduler.submit_requests([RequestSpec(f"r{turn}", prompt, 1)])
        batch = step(scheduler).batch
        assert batch is not None
        assert batch.device_hit_tokens == [0 if unmatched else expected * P]
        finish(scheduler, f"r{turn}")
        apply(held, scheduler.drain_kv_events())
