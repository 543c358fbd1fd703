"""Child processes that play worlds, since the reference can end its process or never return.

A child tells through shared memory whose call it is in and how many calls of the reference it has
made. When it dies inside a call of the reference, a new child plays the same world again with that
call left out: the comparison ends there, and our side plays on alone.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import cast

from .play import AGREES, DIFFERS, Outcome, play
from .player import MakeSide
from .world import World

#: Seconds a world may take before its child is ended.
WORLD_TIMEOUT_S = 60.0
#: Worlds after which a child is replaced, so that what one leaves behind cannot pile up.
WORLDS_PER_CHILD = 500

#: Slots of the shared memory: the side whose call is on, and the calls of the reference so far.
_SIDE, _THEIR_CALLS = 0, 1
_NOBODY, _OURS, _THEIRS = 0, 1, 2


@dataclass(frozen=True)
class Task:
    """One world to play. `their_calls_max` is as in `play`."""

    world: World
    their_calls_max: int | None = None


class SharedMarker:
    """Writes what `play` marks into shared memory."""

    def __init__(self, memory) -> None:  # type: ignore[no-untyped-def]
        self._memory = memory

    def enter(self, side: str) -> None:
        if side == "theirs":
            self._memory[_THEIR_CALLS] += 1
        self._memory[_SIDE] = _OURS if side == "ours" else _THEIRS

    def leave(self) -> None:
        self._memory[_SIDE] = _NOBODY


class Child:
    """One child process and the pipe to it."""

    def __init__(self, ours: MakeSide, theirs: MakeSide | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._memory = context.RawArray("q", 2)
        self.pipe, remote = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(remote, self._memory, ours, theirs), daemon=True
        )
        self._process.start()
        remote.close()
        self.task: Task | None = None
        self.played = 0
        self._started_s = 0.0

    def give(self, task: Task) -> None:
        """Starts `task`; its outcome arrives on `pipe`."""
        self.task = task
        self.played += 1
        self._memory[_SIDE] = _NOBODY
        self._memory[_THEIR_CALLS] = 0
        self._started_s = time.monotonic()
        self.pipe.send(task)

    def is_late(self) -> bool:
        return self.task is not None and time.monotonic() - self._started_s > WORLD_TIMEOUT_S

    def post_mortem(self) -> Task | Outcome:
        """After the child died or hung: the task to play instead, or the outcome if it was ours."""
        assert self.task is not None
        if self._memory[_SIDE] == _THEIRS:
            return Task(self.task.world, self._memory[_THEIR_CALLS] - 1)
        who = "ours ends the process" if self._memory[_SIDE] == _OURS else "the player died"
        verdict = DIFFERS if self.task.their_calls_max is None else AGREES
        return Outcome(self.task.world, verdict=verdict, ours=who, story=[who])

    def close(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


class Pool:
    """Plays worlds in `jobs` children, with the sides that `ours` and `theirs` make (they are
    pickled). Children are started when needed and kept for later calls; leave the ``with`` block
    to end them."""

    def __init__(self, ours: MakeSide, theirs: MakeSide | None, jobs: int) -> None:
        self._ours, self._theirs = ours, theirs
        self._jobs = max(1, jobs)
        self._children: list[Child] = []

    def __enter__(self):  # type: ignore[no-untyped-def]
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.close()
        self._children.clear()

    def play(self, worlds: Iterable[World]) -> Iterator[Outcome]:
        """Plays `worlds`; yields outcomes as they come in, in no fixed order."""
        tasks = (Task(world) for world in worlds)
        again: deque[Task] = deque()
        while True:
            for child in self._idle():
                task = again.popleft() if again else next(tasks, None)
                if task is None:
                    break
                child.give(task)
            busy = {child.pipe: child for child in self._children if child.task}
            if not busy:
                return
            for pipe in wait(list(busy), timeout=1.0):
                child = busy.pop(cast("Connection", pipe))
                result = self._collect(child)
                if isinstance(result, Outcome):
                    yield result
                else:
                    again.append(result)
            for child in busy.values():
                if child.is_late():
                    result = child.post_mortem()
                    self._discard(child)
                    if isinstance(result, Outcome):
                        yield result
                    else:
                        again.append(result)

    def _idle(self) -> Iterator[Child]:
        """Children without a task; worn ones are replaced, missing ones started."""
        for child in [c for c in self._children if not c.task and c.played >= WORLDS_PER_CHILD]:
            self._discard(child)
        yield from [child for child in self._children if not child.task]
        while len(self._children) < self._jobs:
            self._children.append(Child(self._ours, self._theirs))
            yield self._children[-1]

    def _collect(self, child: Child) -> Task | Outcome:
        try:
            outcome: Outcome = child.pipe.recv()
        except (EOFError, OSError):
            verdict = child.post_mortem()
            self._discard(child)
            return verdict
        child.task = None
        return outcome

    def _discard(self, child: Child) -> None:
        self._children.remove(child)
        child.close()


def _serve(pipe: Connection, memory, ours: MakeSide, theirs: MakeSide | None) -> None:  # type: ignore[no-untyped-def]
    """A child's life: plays what it is given until the pipe closes."""
    os.environ.setdefault("SPDLOG_LEVEL", "off")  # The reference logs every refusal.
    while True:
        try:
            task = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        outcome = play(
            task.world,
            ours,
            theirs,
            marker=SharedMarker(memory),
            their_calls_max=task.their_calls_max,
        )
        pipe.send(outcome)
