"""Which world a number stands for: roles and families take turns, so that any run covers all."""

from __future__ import annotations

from typing import NamedTuple

from tests.conformance.generate import FAMILIES, world_from_seed
from tests.conformance.world import ROLES, World


class Strand(NamedTuple):
    """The worlds of one role and one family."""

    role: str
    family: str


STRANDS = tuple(Strand(role, family) for family in FAMILIES for role in ROLES)


def strand_of(number: int) -> Strand:
    return STRANDS[number % len(STRANDS)]


def seed_of(number: int) -> int:
    """The seed of world `number` within its strand, as ``python -m tests.conformance`` takes it."""
    return number // len(STRANDS)


def world(number: int) -> World:
    strand = strand_of(number)
    return world_from_seed(seed_of(number), strand.role, strand.family)
