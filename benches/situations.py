"""The situations that the schedulers are put in: those of the core's benchmarks, through Python.

A situation is played a step at a time, for as long as one likes; where it would run out it starts
over, untimed. Prompts differ from their first token on, unless they are to share a prefix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from peer import Peer, Pool, Request


class Times(NamedTuple):
    """What the calls of a step took, in nanoseconds."""

    submit: int = 0
    plan: int = 0
    feedback: int = 0


MakePeer = Callable[[Pool], Peer]
Step = Callable[[], Times]


class Situation(Protocol):
    """Something that a scheduler can be put in, again and again."""

    unit: ClassVar[str]
    """What times are given for."""

    @property
    def label(self) -> str:
        """What tells it from the others of its contest."""

    @property
    def units(self) -> int:
        """How many of them a step has."""

    def start(self, make_peer: MakePeer) -> Step:
        """Sets it up and returns what plays a step of it. Only that step is timed."""


def play(peer: Peer) -> tuple[Times, list[str]]:
    """Plays a round: its times, and who sampled a token."""
    start = time.perf_counter_ns()
    round_ = peer.plan()
    planned = time.perf_counter_ns()
    peer.feed(round_)
    fed = time.perf_counter_ns()
    sampled = peer.sampled(round_)
    before = time.perf_counter_ns()
    del round_
    let_go = time.perf_counter_ns() - before
    return Times(plan=planned - start + let_go, feedback=fed - planned), sampled


def submit(peer: Peer, requests: list[Request]) -> Times:
    """Submits requests."""
    prepared = peer.prepare(requests)
    start = time.perf_counter_ns()
    peer.submit(prepared)
    return Times(submit=time.perf_counter_ns() - start)


def add(*times: Times) -> Times:
    """The sums, part by part."""
    return Times(*(sum(parts) for parts in zip(*times)))


def prompt(seed: int, tokens: int, shared: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Tokens that only `seed` has, behind `shared` that everybody has."""
    first = np.where(np.arange(tokens) < shared, 0, (seed + 1) * 0x9E3779B1)
    return (((first + np.arange(tokens)) & 0xFFFFFFFF) >> 1).astype(np.int32)


@dataclass(frozen=True)
class Decoding:
    """Requests that decode side by side: a step is a round in which each takes a decode step."""

    label: str
    requests: int
    context: int
    """Tokens of a prompt, give or take a page."""
    page: int
    waiting: int | None = None
    """If set, the requests have prepaid for all of their output and fill the pool to the last
    block, with so many prompts behind them."""
    rounds: int = 512
    """Before all starts over: few enough that the context stays about what it says."""

    WARM_UP_ROUNDS: ClassVar[int] = 2
    unit: ClassVar[str] = "round"
    units: ClassVar[int] = 1

    def start(self, make_peer: MakePeer) -> Step:
        return self._play(make_peer).__next__

    def _play(self, make_peer: MakePeer) -> Iterator[Times]:
        while True:
            peer = self._set_up(make_peer)
            for _ in range(self.rounds):
                times, sampled = play(peer)
                yield times
            assert len(sampled) == self.requests, "all of them decode, and nobody else"

    def _set_up(self, make_peer: MakePeer) -> Peer:
        output = 1 + self.WARM_UP_ROUNDS + self.rounds
        # Prompts end at every place in a page, so that every round completes its share of pages.
        lengths = [self.context + i % self.page for i in range(self.requests)]
        pool = Pool(
            page_tokens=self.page,
            blocks=sum(-(-(length + output) // self.page) for length in lengths),
            rows=2 * self.requests,
            round_tokens=sum(lengths),
            running=self.requests,
        )
        peer = make_peer(pool)
        declared = 0 if self.waiting is None else output
        resident = (Request(f"r{i}", prompt(i, n), declared) for i, n in enumerate(lengths))
        submit(peer, list(resident))
        play(peer)
        behind = ((f"w{i}", prompt(10**6 + i, 256)) for i in range(self.waiting or 0))
        submit(peer, [Request(name, tokens, declared) for name, tokens in behind])
        for _ in range(self.WARM_UP_ROUNDS):
            play(peer)
        return peer


@dataclass(frozen=True)
class Cached:
    """A pool full of cached blocks: a step is the round that admits one prompt, for which the
    oldest 63 blocks go."""

    label: str
    blocks: int

    PAGE: ClassVar[int] = 16
    PROMPT_TOKENS: ClassVar[int] = 64 * PAGE - 1
    """64 blocks, the first decode slot included. The last is not complete, so the next prompt finds
    it free."""
    unit: ClassVar[str] = "admission"
    units: ClassVar[int] = 1

    def start(self, make_peer: MakePeer) -> Step:
        blocks_each = min(500, self.blocks)
        filler = blocks_each * self.PAGE - 1
        pool = Pool(self.PAGE, self.blocks, rows=1, round_tokens=max(filler, self.PROMPT_TOKENS))
        peer = make_peer(pool)
        seeds = count()
        fillers = self.blocks // blocks_each
        for _ in range(fillers):
            self._admit(peer, next(seeds), filler)

        def step() -> Times:
            return self._admit(peer, next(seeds), self.PROMPT_TOKENS)

        # What the fillers' last pages have left free goes first.
        for _ in range(fillers // 63 + 2):
            step()
        return step

    def _admit(self, peer: Peer, seed: int, tokens: int) -> Times:
        name = f"r{seed}"
        submit(peer, [Request(name, prompt(seed, tokens))])
        times, sampled = play(peer)
        assert sampled == [name]
        peer.finish(sampled)
        return times


@dataclass(frozen=True)
class SharedPrefix:
    """Prompts with one long prefix in common, which is cached: a step submits them and plays rounds
    until each has sampled a token."""

    label: str
    prompts: int
    tokens: int
    shared: int
    page: int

    unit: ClassVar[str] = "prompt"

    @property
    def units(self) -> int:
        return self.prompts

    def start(self, make_peer: MakePeer) -> Step:
        return lambda: self._step(make_peer)

    def _step(self, make_peer: MakePeer) -> Times:
        blocks = (self.prompts + 2) * -(-self.tokens // self.page)
        peer = make_peer(Pool(self.page, blocks, rows=self.prompts, round_tokens=self.tokens))
        submit(peer, [self._request(0)])
        peer.finish(play(peer)[1])
        times = submit(peer, [self._request(1 + i) for i in range(self.prompts)])
        left = self.prompts
        while left > 0:
            round_, sampled = play(peer)
            times = add(times, round_)
            left -= len(sampled)
        return times

    def _request(self, seed: int) -> Request:
        return Request(f"r{seed}", prompt(seed, self.tokens, self.shared), max_new_tokens=64)


@dataclass(frozen=True)
class Pressure:
    """More requests than the pool holds: a step plays them all to their ends."""

    label: str
    declared: bool
    """Whether requests declare their budget: then they prepay it and wait for room; else they
    start, and are retracted for each other."""
    page: int
    requests: int = 500
    rows: int = 256
    tokens: int = 1024
    new_tokens: int = 512
    pool_percent: int = 60
    """Blocks, of those that `rows` requests come to need."""

    unit: ClassVar[str] = "world"
    units: ClassVar[int] = 1

    def start(self, make_peer: MakePeer) -> Step:
        return lambda: self._step(make_peer)

    def _step(self, make_peer: MakePeer) -> Times:
        needed = self.rows * -(-(self.tokens + self.new_tokens) // self.page)
        blocks = needed * self.pool_percent // 100
        peer = make_peer(Pool(self.page, blocks, self.rows, round_tokens=8 * self.tokens))
        declared = self.new_tokens if self.declared else 0
        prompts = ((f"r{i}", prompt(i, self.tokens)) for i in range(self.requests))
        times = submit(peer, [Request(name, tokens, declared) for name, tokens in prompts])
        output: dict[str, int] = {}
        left = self.requests
        while left > 0:
            round_, sampled = play(peer)
            times = add(times, round_)
            for name in sampled:
                output[name] = output.get(name, 0) + 1
            done = [name for name in sampled if output[name] == self.new_tokens]
            peer.finish(done)
            left -= len(done)
        return times
