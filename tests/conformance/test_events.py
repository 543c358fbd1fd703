"""Cache events against the reference, drain by drain, in worlds that play the same plans.

The reference counts a page as stored while every group holds each of its blocks; here a page is
resident while a prompt would hit it. With full groups alone the two are the same but for a page
whose ancestor is gone: no prompt reaches it, and here its removal is told. With a sliding or a
state group the reference tells the newest page without the pages before it, so that a router which
walks a prompt from its start never finds it (scenario 33); here it finds all that a prompt would
hit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

import pytest

from .client import Event
from .generate import world_from_seed
from .plan import Plan
from .play import FINISHES, Outcome
from .side import Side, build_config
from .workers import Pool
from .world import Group, Request, World

pytest.importorskip("tokenspeed_scheduler", reason="the reference has no wheel here")

OURS = "tokenspeed.scheduler"
THEIRS = "tokenspeed_scheduler"
SEEDS = 1500
LEAST_WORLDS = 150

Prompt = tuple[int, ...]


class Told:
    """What a consumer holds: pages by name, and the prompt that each name stands for."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        # The reference tells pages behind a parent that is gone: names are never forgotten.
        self._prompts: dict[int, Prompt] = {}

    def apply(self, events: list[Any]) -> None:
        for event in events:
            if event.kind == "BlockRemoved":
                self._held.difference_update(event.block_hashes)
                continue
            (name,) = event.block_hashes
            parent = event.parent_block_hash
            assert len(event.token_ids) == event.block_size
            self._held.add(name)
            if parent is None or parent in self._prompts:
                before = () if parent is None else self._prompts[parent]
                self._prompts[name] = (*before, *event.token_ids)

    def prompts(self) -> set[Prompt | None]:
        """The prompts held; None for those whose beginning was never told."""
        return {self._prompts.get(name) for name in self._held}


class ListeningSide(Side):
    """A side with events on, drained after every plan. Before each plan of ours the last drains are
    compared, as long as the two play in lockstep: both were then just told of the same events."""

    by_module: ClassVar[dict[str, ListeningSide]] = {}

    def __init__(self, module: str, world: World) -> None:
        super().__init__(module, world)
        config = build_config(self._api, world)
        config.enable_kv_cache_events = True
        self._scheduler = self._api.Scheduler(config)
        self._ours = module == OURS
        self._world = world
        self._told = Told()
        self._events: Iterable[Event] = ()
        self.by_module[module] = self

    def advance(self, events: Iterable[Event]) -> None:
        self._events = events
        super().advance(events)

    def plan(self, round_: int) -> Plan:
        theirs = self.by_module.get(THEIRS)
        if self._ours and theirs and theirs._events is self._events:
            self._compare(theirs, round_)
        plan = super().plan(round_)
        self._told.apply(self._scheduler.drain_kv_events())
        return plan

    def _compare(self, theirs: ListeningSide, round_: int) -> None:
        page = self._world.granularity
        ours, told = self._told.prompts(), theirs._told.prompts()
        assert None not in ours, "a page without the pages before it"
        reachable = {
            prompt
            for prompt in told
            if prompt is not None
            and all(prompt[:end] in told for end in range(page, len(prompt), page))
        }
        lengths = {(len(prompt), prompt[-1]) for prompt in ours ^ reachable if prompt}
        assert not lengths, f"before round {round_} (tokens, the last one): {sorted(lengths)}"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(
        partial(ListeningSide, OURS), partial(ListeningSide, THEIRS), jobs=os.cpu_count() or 1
    ) as pool:
        yield pool


def assert_passed(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.ours != FINISHES]
    assert not failed, "\n".join(failed[0].story)


def test_full_groups_tell_what_the_reference_tells(pool: Pool) -> None:
    worlds = [world_from_seed(seed) for seed in range(SEEDS)]
    worlds = [world for world in worlds if all(group.kind == "full" for group in world.groups)]
    assert len(worlds) >= LEAST_WORLDS
    assert_passed(list(pool.play(worlds)))


def test_a_difference_would_be_seen(pool: Pool) -> None:
    """The same comparison where the two must part: a sliding group (see above)."""
    world = World(
        groups=(Group("full"), Group("sliding", "sliding", window=5)),
        requests=(Request("a", ((0, 13),), 1, output=4),),
    )
    (outcome,) = pool.play([world])
    assert "before round" in outcome.ours


@pytest.mark.parametrize("kind", ["sliding", "state"])
def test_the_newest_page_alone_is_no_prompt_there(kind: str) -> None:
    """What the two tell of one prompt of three pages beside a windowed group."""
    world = World(
        groups=(Group("full"), Group("other", kind, window=5 if kind == "sliding" else None)),
        requests=(Request("a", ((0, 13),), 1, output=2),),
    )
    stored = {}
    for module in (OURS, THEIRS):
        side = ListeningSide(module, world)
        side.submit(world.requests[0])
        api = side._api
        side._scheduler.next_execution_plan()
        result = api.ForwardEvent.ExtendResult()
        result.request_id, result.tokens = "a", [1]
        finish = api.ForwardEvent.Finish()
        finish.request_id = "a"
        execution = api.ExecutionEvent()
        execution.add_event(result)
        execution.add_event(finish)
        side._scheduler.advance(execution)
        events = side._scheduler.drain_kv_events()
        stored[module] = [(list(e.token_ids), e.parent_block_hash is None) for e in events]
    pages = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert stored[OURS] == [(page, at == 0) for at, page in enumerate(pages)]
    assert stored[THEIRS] == [(pages[2], False)]
