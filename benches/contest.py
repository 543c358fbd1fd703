"""Plays situations on several schedulers in turn, each scheduler in a process of its own.

Whoever's turn it is plays a few steps while everybody else waits, then the next one does. So all
see the same machine: what else runs on it moves their times alike, and hardly the ratios between
them. A scheduler whose process ends, or that takes too long, loses its cell and not the session.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from child import Child, Lost
from situations import Situation, Times, add

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
    each: list[Times] = field(default_factory=list)
    """Step by step, without the first of a turn: others had the caches before it."""
    steps: int = 0
    """Steps a turn."""
    note: str = ""
    """Why there is less here than there could be."""

    def times_us(self, part: Callable[[Times], int] = sum) -> list[float]:
        """Turn by turn what a unit took, in microseconds; `part` picks what of it."""
        return [part(turn) / (1000 * self.steps * self.situation.units) for turn in self.turns]

    def tail(self) -> float:
        """The 99th percentile of single steps, over their median."""
        each = [sum(times) for times in self.each]
        return float(np.percentile(each, 99) / np.median(each))

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


def run(
    contest: Contest,
    pythons: Mapping[str, str],
    limits: Limits,
    tell: Callable[[str, float], None],
) -> list[Cell]:
    """Plays a contest among the peers that `pythons` names, each on its interpreter. `tell` hears
    what is going on and which share of the contest is done."""
    peers = list(pythons)
    cells = [Cell(contest, situation, peer) for situation in contest.situations for peer in peers]
    children = {peer: Child(peer, pythons[peer], limits.patience_s) for peer in peers}
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


def _set_up(cell: Cell, child: Child) -> None:
    index = cell.contest.situations.index(cell.situation)
    child.ask(("start", index, cell.situation))
    (first,) = child.ask(("play", index, 1))
    cell.steps = min(max(TURN_NS // max(sum(first), 1), 1), STEPS_MAX)


def _take_turn(cell: Cell, child: Child) -> None:
    index = cell.contest.situations.index(cell.situation)
    steps = child.ask(("play", index, cell.steps))
    cell.each += steps[1:] or steps
    cell.turns.append(add(*steps))


def _goes_on(cell: Cell, limits: Limits) -> bool:
    if cell.note:
        return False
    spent_s = sum(map(sum, cell.turns)) / 1e9
    if spent_s < limits.cell_s or len(cell.turns) < TURNS_MIN:
        return True
    cell.note = f"{len(cell.turns)} turns of {cell.steps}: slow"
    return False


def _attempt(act: Callable[[Cell, Child], None], cell: Cell, child: Child) -> None:
    try:
        act(cell, child)
    except Lost as lost:
        cell.note = str(lost)


def now() -> str:
    """The time of a result, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
