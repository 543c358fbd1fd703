"""Where we differ from the reference on purpose: which rule, and why.

A world whose sides diverge passes only if one of `DEVIATIONS` explains the first divergence. Each
entry states the rule of the document that decides, and why the reference breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .client import Client
from .compare import Difference
from .plan import Plan
from .round import Round
from .world import World


@dataclass(frozen=True)
class Divergence:
    """The first round on which the sides differ."""

    world: World
    round: int
    #: Never empty; in the order of ``Comparator.compare``.
    differences: list[Difference]
    #: The plans of that round; None if the sides differ before they plan.
    theirs: Plan | None
    ours: Plan | None
    #: As it was before it read the plans of that round.
    client: Client
    #: The last rounds, this one included.
    rounds: list[Round]

    def fields(self) -> set[str]:
        """The names of the fields that differ, without what they are indexed by."""
        return {d.field.split("[")[0].split("(")[0].strip() for d in self.differences}


@dataclass(frozen=True)
class Deviation:
    """One reason to differ."""

    name: str
    #: The section of the document that decides.
    rule: str
    why: str
    explains: Callable[[Divergence], bool]


DEVIATIONS: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class CapacityDeviation:
    """One reason to answer otherwise for a pool's size or a request's bound."""

    name: str
    rule: str
    why: str
    explains: Callable[[World, Difference], bool]


CAPACITY_DEVIATIONS: tuple[CapacityDeviation, ...] = ()
