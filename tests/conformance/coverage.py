"""What the played worlds exercised, told from plans and gauges alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .client import Client
from .events import Aborted, Event, Finished, PeerFailed, RemotelyPrefilled, Result, Retracted
from .plan import Plan
from .world import World

#: What a configuration can have.
CONFIGURATIONS: dict[str, Callable[[World], bool]] = {
    "full group": lambda w: any(g.kind == "full" for g in w.groups),
    "sliding group": lambda w: any(g.kind == "sliding" for g in w.groups),
    "state group": lambda w: any(g.kind == "state" for g in w.groups),
    "replayable group": lambda w: any(g.kind == "replay" for g in w.groups),
    "window of one token": lambda w: any(g.window == 1 for g in w.groups),
    "blocks packed in a parent": lambda w: any(g.packing > 1 for g in w.groups),
    "blocks finer than pages": lambda w: any(g.granularity < w.granularity for g in w.groups),
    "verify width": lambda w: w.width > 1,
    "overlap": lambda w: w.depth > 0,
    "mixed batches": lambda w: w.mixed,
    "host tier": lambda w: w.host_blocks > 0 and not w.disable_l2_cache,
    "host tier smaller than the device": lambda w: 0 < w.host_blocks < w.device_blocks,
    "no prefix cache": lambda w: w.disable_prefix_cache,
    "storage behind the host tier": lambda w: w.storage,
    "prompt tail recomputed": lambda w: w.replay_tokens > 0,
}

#: What can happen in a world, in the order of the report.
EVENTS = (
    "prefix hit",
    "chunked prefill",
    "promotion boundary",
    "mixed batch",
    "planned ahead of a result",
    "several tokens a step",
    "slid-out hole",
    "re-fed window",
    "eviction",
    "failed admission",
    "skipped decode",
    "retraction",
    "retraction of a prefill",
    "readmission",
    "second retraction of a request",
    "store, pinned",
    "store, stream-ordered",
    "load-back",
    "fetch from storage",
    "fetch that missed",
    "abort with a result out",
    "abort while waiting",
    "abort after a retraction",
    "late result",
    "refused request",
    "cache cleared",
)

#: What can happen on the roles that share a request with a peer.
PEER_EVENTS = {
    "P": (
        "handover",
        "handover of several at once",
        "handover beside prefills",
        "handover that zeroes a block",
        "abort after a handover",
        "lost peer",
        "event out of place, ignored",
        "event out of place, refused",
    ),
    "D": (
        "remote prefill",
        "remote prefill beside decodes",
        "prefix hit of a remote prefill",
        "skipped remote prefill",
        "abort during a remote prefill",
        "lost peer",
        "lost peer during a remote prefill",
        "local recovery",
        "local recovery in chunks",
        "event out of place, ignored",
        "event out of place, refused",
    ),
}

#: What only one family of worlds can show (see `generate.FAMILIES`).
FAMILY_FEATURES = {
    "replay": ("replayable group", "re-fed window"),
    "storage": ("storage behind the host tier", "fetch from storage", "fetch that missed"),
}

#: What cannot happen, or cannot be told, on a role or in a family.
ABSENT = {
    "replay": ("state group", "promotion boundary", "handover that zeroes a block"),
    "P": (
        "mixed batch",
        "several tokens a step",
        "skipped decode",
        "retraction",
        "retraction of a prefill",
        "readmission",
        "second retraction of a request",
        "store, stream-ordered",
        "abort after a retraction",
    ),
    "D": ("mixed batch", "retraction of a prefill", "store, pinned", "re-fed window"),
}


def features_of(role: str, family: str) -> tuple[str, ...]:
    """What worlds of a role and a family can show."""
    others = {f for other, names in FAMILY_FEATURES.items() if other != family for f in names}
    absent = {*others, *ABSENT.get(role, ()), *ABSENT.get(family, ())}
    every = (*CONFIGURATIONS, *EVENTS, *PEER_EVENTS.get(role, ()))
    return tuple(feature for feature in every if feature not in absent)


class Coverage:
    """Collects the features of one world."""

    def __init__(self, world: World) -> None:
        self.features = {name for name, holds in CONFIGURATIONS.items() if holds(world)}
        self._world = world
        #: Tokens computed and prompt length (it grows on readmission) of each request seen.
        self._computed: dict[str, int] = {}
        self._prompt: dict[str, int] = {}
        self._returns: dict[str, int] = {}
        self._ended: set[str] = set()
        self._handed_over: set[str] = set()
        self._landing: set[str] = set()

    def add(self, feature: str) -> None:
        """Notes one of `EVENTS` that only the player sees."""
        assert feature in EVENTS or feature in PEER_EVENTS[self._world.role]
        self.features.add(feature)

    def events(self, client: Client, events: list[Event]) -> None:
        """Notes what is fed before a plan."""
        for event in events:
            if isinstance(event, Aborted):
                life = client.lives[event.request_id]
                overtaken = any(
                    isinstance(e, Result) and e.request_id == event.request_id
                    for e in events[events.index(event) :]
                )
                if life.out or overtaken:
                    self.add("abort with a result out")
                if life.scheduled == 0:
                    self.add("abort while waiting")
                if self._returns.get(event.request_id):
                    self.add("abort after a retraction")
                if event.request_id in self._handed_over:
                    self.add("abort after a handover")
                if event.request_id in self._landing:
                    self.add("abort during a remote prefill")
            elif isinstance(event, PeerFailed):
                self.add("lost peer")
                if event.request_id in self._landing:
                    self.add("lost peer during a remote prefill")
            elif isinstance(event, RemotelyPrefilled):
                self._landing.discard(event.request_id)
            elif isinstance(event, Retracted):
                self.add("fetch that missed")
            elif isinstance(event, Result):
                if len(event.tokens) > 1:
                    self.add("several tokens a step")
                if event.request_id in self._ended:
                    self.add("late result")
        self._ended |= {e.request_id for e in events if isinstance(e, (Aborted, Finished))}

    def plan(
        self, client: Client, before: Mapping[str, int], plan: Plan, after: Mapping[str, int]
    ) -> None:
        """Notes a plan; `before` and `after` are the gauges around it."""
        add, batch = self.add, plan.batch
        admitted = self._peers(client, plan)
        budget = self._world.token_budget - sum(batch.input_lengths[batch.num_extends :])
        for i, (name, begin, end, prompt) in enumerate(batch.chunks()):
            first = name not in self._computed
            returned = not first and (begin < self._computed[name] or prompt != self._prompt[name])
            admitted += first or returned
            if returned:
                add("readmission")
                self._returns[name] = self._returns.get(name, 0) + 1
                if self._returns[name] > 1:
                    add("second retraction of a request")
                if prompt == client.lives[name].request.prompt_tokens():
                    add("retraction of a prefill")
            if (first or returned) and begin > 0:
                add("prefix hit")
            if batch.extend_replay_lens[i]:
                add("re-fed window")
            budget -= batch.input_lengths[i]
            if end < prompt:
                add("chunked prefill")
                if budget >= self._world.granularity and not self._has("replay"):
                    add("promotion boundary")
            self._computed[name], self._prompt[name] = end, prompt
        if batch.num_extends and batch.decodes():
            add("mixed batch")
        if any(client.lives[name].out for name in batch.request_ids):
            add("planned ahead of a result")
        if any(0 in _after_leading_holes(row) or row[0] == 0 for row in _rows(plan, self._world)):
            add("slid-out hole")
        retracted = after["waiting_size"] - before["waiting_size"] + admitted
        if retracted > 0:
            add("retraction")
        self._pressure(before, plan, after, retracted)
        for copies in plan.stores.values():
            for copy in copies:
                add("store, pinned" if copy.guard else "store, stream-ordered")
        for copy in (copy for copies in plan.loads.values() for copy in copies):
            add("fetch from storage" if copy.guard else "load-back")

    def _peers(self, client: Client, plan: Plan) -> int:
        """Notes what is exchanged with peers; returns how many remote prefills are admitted."""
        add = self.add
        if plan.remote_decode is not None:
            names = plan.remote_decode.request_ids
            add("handover")
            if len(names) > 1:
                add("handover of several at once")
            if plan.batch.request_ids:
                add("handover beside prefills")
            elif any(plan.pages_to_zero.values()):
                add("handover that zeroes a block")
            self._handed_over.update(names)
        if self._world.role == "D":
            for _, begin, end, prompt in plan.batch.chunks():
                add("local recovery")
                if end < prompt or (begin and not plan.loads):
                    add("local recovery in chunks")
        if plan.remote_prefill is None:
            return 0
        add("remote prefill")
        if plan.batch.request_ids:
            add("remote prefill beside decodes")
        for name, begin, end, _ in plan.remote_prefill.chunks():
            if begin:
                add("prefix hit of a remote prefill")
            if any(self._waits_before(client, other, name) for other in client.lives):
                add("skipped remote prefill")
            self._landing.add(name)
            self._computed[name], self._prompt[name] = end, end
        return len(plan.remote_prefill.request_ids)

    def _waits_before(self, client: Client, other: str, name: str) -> bool:
        """True if `other`, submitted before `name`, has never been scheduled yet."""
        names = list(client.lives)
        life = client.lives[other]
        return life.alive and not life.scheduled and names.index(other) < names.index(name)

    def _pressure(
        self, before: Mapping[str, int], plan: Plan, after: Mapping[str, int], retracted: int
    ) -> None:
        add, batch = self.add, plan.batch
        grown = after["active_lcm_blocks"] - before["active_lcm_blocks"]
        emptied = before["empty_lcm_blocks"] - after["empty_lcm_blocks"]
        hit = any(begin for begin in batch.extend_prefix_lens)
        if grown > emptied and not hit:
            add("eviction")
        if self._world.role == "P":
            rows_left = before["pd_transfer_size"] < self._world.rows
            if before["waiting_size"] and rows_left and not batch.num_extends:
                add("failed admission")
            return
        # What follows is told only where the budget or the grammar cannot be the cause.
        room = self._world.token_budget - sum(batch.input_lengths)
        decoding = len(batch.decodes())
        if batch.num_extends or retracted > 0:
            return
        if before["decoding_size"] > decoding and room >= self._world.width:
            add("skipped decode")
        if self._world.role == "D":
            may_admit = plan.remote_prefill is None
        else:
            may_admit = self._world.mixed or not decoding
        if before["waiting_size"] and may_admit and room >= self._world.granularity:
            add("failed admission")

    def _has(self, kind: str) -> bool:
        return any(group.kind == kind for group in self._world.groups)


def _rows(plan: Plan, world: World) -> list[list[int]]:
    sliding = [group.id for group in world.groups if group.kind == "sliding"]
    return [row for group in sliding for row in plan.batch.block_tables.get(group, ()) if row]


def _after_leading_holes(row: list[int]) -> list[int]:
    return row[next((i for i, block in enumerate(row) if block), len(row)) :]
