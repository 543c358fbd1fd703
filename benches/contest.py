"""Plays situations on several schedulers in turn, each scheduler in a process of its own.

Whoever's turn it is plays a few steps while everybody else waits, then the next one does. So all
see the same machine: what else runs on it moves their times alike, and hardly the ratios between
them. A scheduler whose process ends, or that takes too long, loses its cell and not the session.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from peers import PEERS
from situations import Situation, Step, Times, add

TURN_NS = 5_000_000
"""A turn lasts about that long, but is at least one step and at most `STEPS_MAX`."""
STEPS_MAX = 8
TURNS_MIN = 3


@dataclass(frozen=True)
class Contest:
    """Situations that are played in turn; of two, the ratio between the second and the first says
    what their difference costs."""

    name: str
    title: str
    situations: tuple[Situation, ...]
    ratio: str | None = None
    """What differs, as "over / under"."""


class Spread(NamedTuple):
    """Quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))


@dataclass
class Cell:
    """What one scheduler did in one situation."""

    contest: Contest
    situation: Situation
    peer: str
    turns: list[Times] = field(default_factory=list)
    """Sums over a turn's steps."""
    steps: int = 0
    """Steps a turn."""
    note: str = ""
    """Why there is less here than there could be."""

    def times_us(self, part: Callable[[Times], int] = sum) -> list[float]:
        """Turn by turn what a unit took, in microseconds; `part` picks what of it."""
        return [part(turn) / (1000 * self.steps * self.situation.units) for turn in self.turns]

    def spread_us(self, part: Callable[[Times], int] = sum) -> Spread:
        return Spread.of(self.times_us(part))


@dataclass(frozen=True)
class Limits:
    """How long to go on."""

    turns: int
    cell_s: float
    """Seconds after which a cell with `TURNS_MIN` turns gets no more of them."""
    patience_s: float
    """Seconds that one set-up or turn may take; who takes longer is left out."""


class Lost(Exception):
    """A scheduler failed, took too long or ended its process."""


def run(
    contest: Contest, peers: Sequence[str], limits: Limits, tell: Callable[[str, float], None]
) -> list[Cell]:
    """Plays a contest. `tell` hears what is going on and which share of the contest is done."""
    cells = [Cell(contest, situation, peer) for situation in contest.situations for peer in peers]
    children = {peer: _Child(peer, limits.patience_s) for peer in peers}
    try:
        for at, cell in enumerate(cells):
            tell(f"{contest.name}: {cell.peer} sets up {cell.situation.label}", at / len(cells) / 2)
            _attempt(_set_up, cell, children[cell.peer])
        for turn in range(limits.turns):
            tell(f"{contest.name}: turn {turn + 1}", 0.5 + turn / limits.turns / 2)
            for cell in cells:
                if _goes_on(cell, limits):
                    _attempt(_take_turn, cell, children[cell.peer])
    finally:
        for child in children.values():
            child.end()
    return cells


def _set_up(cell: Cell, child: _Child) -> None:
    index = cell.contest.situations.index(cell.situation)
    child.ask(("start", index, cell.situation))
    (first,) = child.ask(("play", index, 1))
    cell.steps = min(max(TURN_NS // max(sum(first), 1), 1), STEPS_MAX)


def _take_turn(cell: Cell, child: _Child) -> None:
    index = cell.contest.situations.index(cell.situation)
    cell.turns.append(add(*child.ask(("play", index, cell.steps))))


def _goes_on(cell: Cell, limits: Limits) -> bool:
    if cell.note:
        return False
    spent_s = sum(map(sum, cell.turns)) / 1e9
    if spent_s < limits.cell_s or len(cell.turns) < TURNS_MIN:
        return True
    cell.note = f"{len(cell.turns)} turns of {cell.steps}: slow"
    return False


def _attempt(act: Callable[[Cell, _Child], None], cell: Cell, child: _Child) -> None:
    try:
        act(cell, child)
    except Lost as lost:
        cell.note = str(lost)


class _Child:
    """The process that a peer is played in."""

    def __init__(self, peer: str, patience_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, peer), daemon=True)
        self._process.start()
        theirs.close()
        self._patience_s = patience_s
        self._lost: str | None = None

    def ask(self, message: Any) -> Any:
        if self._lost is None:
            try:
                self._pipe.send(message)
                if self._pipe.poll(self._patience_s):
                    answer, error = self._pipe.recv()
                    if error is None:
                        return answer
                    raise Lost(error)
                self._lost = f"took longer than {self._patience_s:.0f} s"
                self._process.kill()
            except (EOFError, OSError):
                self._lost = "its process ended"
        raise Lost(self._lost)

    def end(self) -> None:
        self._pipe.close()
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, peer: str) -> None:
    """The child: sets situations up and plays their steps, as it is told."""
    os.environ["SPDLOG_LEVEL"] = "off"  # the reference's own log
    steps: dict[int, Step] = {}
    gc.disable()
    while True:
        try:
            what, index, argument = pipe.recv()
        except EOFError:
            return
        try:
            if what == "start":
                steps[index] = argument.start(PEERS[peer])
                gc.collect()
                answer = []
            else:
                answer = [steps[index]() for _ in range(argument)]
        except Exception as error:
            pipe.send((None, f"{type(error).__name__}: {error}"))
        else:
            pipe.send((answer, None))


def now() -> str:
    """The time of a result, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
