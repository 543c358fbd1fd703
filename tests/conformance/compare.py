"""What must agree in a round, and what a renaming of blocks may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .plan import Batch, Copy, Plan


@dataclass(frozen=True)
class Difference:
    """One field on which the sides differ in a round."""

    field: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.field}: theirs {self.theirs!r}, ours {self.ours!r}"


class Renaming:
    """A bijection between the block ids of two sides, per pool, for the life of a world.

    A pair is made when a block is first seen in the same place on both sides and is dropped when
    the block is granted afresh on either. The null block and padding stand for themselves.
    """

    def __init__(self) -> None:
        self._ours: dict[tuple[str, int], int] = {}
        self._theirs: dict[tuple[str, int], int] = {}
        #: False from the first pair on whose ids differ.
        self.is_identity = True

    def forget(self, pool: str, theirs: Iterable[int], ours: Iterable[int]) -> None:
        """Drops the pairs of blocks that are granted afresh."""
        for block in theirs:
            partner = self._ours.pop((pool, block), None)
            if partner is not None:
                self._theirs.pop((pool, partner), None)
        for block in ours:
            partner = self._theirs.pop((pool, block), None)
            if partner is not None:
                self._ours.pop((pool, partner), None)

    def match(self, pool: str, theirs: int, ours: int) -> bool:
        """True if the two ids may stand for one block; pairs them if neither has a partner."""
        if theirs <= 0 or ours <= 0:
            return theirs == ours
        known_ours = self._ours.get((pool, theirs))
        known_theirs = self._theirs.get((pool, ours))
        if known_ours is None and known_theirs is None:
            self._ours[pool, theirs] = ours
            self._theirs[pool, ours] = theirs
            self.is_identity &= theirs == ours
            return True
        return known_ours == ours and known_theirs == theirs

    def ours(self, pool: str, theirs: int) -> int:
        """Our name of their block; the same id if it has no partner yet."""
        return self._ours.get((pool, theirs), theirs)


class Comparator:
    """Compares the plans and gauges of two sides, round by round."""

    def __init__(self, group_ids: list[str]) -> None:
        self._group_ids = dict(enumerate(group_ids))
        self._renaming = Renaming()
        #: Rounds whose plans were the same to the last id, and all rounds.
        self.exact_rounds = 0
        self.rounds = 0

    def compare(self, theirs: Plan, ours: Plan) -> list[Difference]:
        """Every difference between two plans of one round; none if they agree."""
        self.rounds += 1
        if theirs == ours and self._renaming.is_identity:
            self.exact_rounds += 1
            # Ids may be reused under other names later, so the pairs are followed all the same.
        # What a plan stores may be granted to another in that very plan (scheduler.md §2): the
        # sources of copies go by the names that blocks had before.
        stored = [[self._key(c, "device") for c in copies] for copies in theirs.stores.values()]
        loaded = [[self._key(c, "host") for c in copies] for copies in theirs.loads.values()]
        self._forget_fresh(theirs, ours)
        return [
            *self._batches("", theirs.batch, ours.batch),
            *self._batches("remote_prefill.", theirs.remote_prefill, ours.remote_prefill),
            *self._batches("remote_decode.", theirs.remote_decode, ours.remote_decode),
            *self._zeroed(theirs.pages_to_zero, ours.pages_to_zero),
            *self._operations("stores", stored, theirs.stores, ours.stores, "host"),
            *self._operations("loads", loaded, theirs.loads, ours.loads, "device"),
            *_unequal("ended", theirs.ended, ours.ended),
        ]

    def _forget_fresh(self, theirs: Plan, ours: Plan) -> None:
        fresh = zip(self._fresh(theirs), self._fresh(ours), strict=True)
        for (pool, their_blocks), (_, our_blocks) in fresh:
            self._renaming.forget(pool, their_blocks, our_blocks)

    def _fresh(self, plan: Plan) -> Iterator[tuple[str, list[int]]]:
        """The blocks that `plan` grants or overwrites, for each pool, in a fixed order."""
        for group, group_id in self._group_ids.items():
            loaded = [c.destination for op in plan.loads.values() for c in op if c.group == group]
            yield f"device {group_id}", [*plan.pages_to_zero.get(group_id, []), *loaded]
            stored = [c.destination for op in plan.stores.values() for c in op if c.group == group]
            yield f"host {group_id}", stored

    def _batches(
        self, prefix: str, theirs: Batch | None, ours: Batch | None
    ) -> Iterator[Difference]:
        if theirs is None or ours is None:
            yield from _unequal(prefix.rstrip("."), theirs, ours)
            return
        for field in fields(Batch):
            if field.name != "block_tables":
                yield from _unequal(
                    prefix + field.name, getattr(theirs, field.name), getattr(ours, field.name)
                )
        if theirs.request_ids != ours.request_ids:
            return  # Rows of different requests have nothing in common.
        yield from _unequal(
            f"{prefix}block_tables groups", list(theirs.block_tables), list(ours.block_tables)
        )
        for group_id in theirs.block_tables.keys() & ours.block_tables.keys():
            rows = zip(theirs.block_tables[group_id], ours.block_tables[group_id], strict=True)
            for name, (their_row, our_row) in zip(theirs.request_ids, rows, strict=True):
                same = len(their_row) == len(our_row) and all(
                    self._renaming.match(f"device {group_id}", t, o)
                    for t, o in zip(their_row, our_row, strict=True)
                )
                if not same:
                    yield Difference(
                        f"{prefix}block_tables[{group_id}][{name}]", their_row, our_row
                    )

    def _zeroed(
        self, theirs: Mapping[str, list[int]], ours: Mapping[str, list[int]]
    ) -> Iterator[Difference]:
        for group_id in sorted({*theirs, *ours}):
            their_ids, our_ids = theirs.get(group_id, []), ours.get(group_id, [])
            if len(their_ids) != len(our_ids):
                yield Difference(f"pages_to_zero[{group_id}]", their_ids, our_ids)

    def _operations(
        self,
        name: str,
        their_ops: list[list[tuple[int, str, int, bool, int]]],
        theirs: Mapping[int, list[Copy]],
        ours: Mapping[int, list[Copy]],
        destination: str,
    ) -> Iterator[Difference]:
        our_ops = [[(*c.identity(), c.source) for c in copies] for copies in ours.values()]
        if sorted(map(sorted, their_ops)) != sorted(map(sorted, our_ops)):
            yield Difference(name, list(theirs.values()), list(ours.values()))
            return
        if their_ops != our_ops:
            yield Difference(f"order of {name}", list(theirs.values()), list(ours.values()))
            return
        yield from _unequal(f"op ids of {name}", list(theirs), list(ours))
        for their_copies, our_copies in zip(theirs.values(), ours.values(), strict=True):
            for t, o in zip(their_copies, our_copies, strict=True):
                if not self._renaming.match(
                    self._pool(destination, t.group), t.destination, o.destination
                ):
                    yield Difference(f"destination in {name}", t, o)

    def _key(self, copy: Copy, source: str) -> tuple[int, str, int, bool, int]:
        """What their copy moves, with its source under our name."""
        block = self._renaming.ours(self._pool(source, copy.group), copy.source)
        return (*copy.identity(), block)

    def _pool(self, tier: str, group: int) -> str:
        return f"{tier} {self._group_ids.get(group)}"


def compare_values(
    title: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> list[Difference]:
    """The entries of two dictionaries that differ, each named after `title`."""
    return [
        Difference(f"{name} {title}", theirs.get(name), ours.get(name))
        for name in {**theirs, **ours}
        if theirs.get(name) != ours.get(name)
    ]


def _unequal(field: str, theirs: Any, ours: Any) -> Iterator[Difference]:
    if theirs != ours:
        yield Difference(field, theirs, ours)
