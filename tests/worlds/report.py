"""What a person reads: how many worlds each side ended, and how, by role and family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from .endings import Ending
from .numbering import STRANDS, seed_of, strand_of
from .state import Played


def table(title: str, entries: list[Played]) -> Table:
    """One side's endings: a row a strand, a column an ending that occurs or must not."""
    counts: dict[object, Counter[Ending]] = {strand: Counter() for strand in STRANDS}
    for entry in entries:
        counts[strand_of(entry.number)][entry.ending] += 1
    total = sum(counts.values(), Counter[Ending]())
    shown = [ending for ending in Ending if ending != Ending.REFUSED or total[ending]]
    result = Table("role", "family", "worlds", *(e.value for e in shown), title=title)
    for strand in STRANDS:
        row = counts[strand]
        result.add_row(*strand, str(row.total()), *(str(row[ending]) for ending in shown))
    result.add_section()
    result.add_row("all", "", str(total.total()), *(str(total[ending]) for ending in shown))
    return result


def failures(entries: list[Played], policy: str, limit: int) -> Iterator[str]:
    """The first failed worlds, each with the command that shows it."""
    failed = [entry for entry in entries if entry.ending != Ending.FINISHED]
    for entry in failed[:limit]:
        strand = strand_of(entry.number)
        yield f"world {entry.number}: {entry.what}"
        yield (
            f"    python -m tests.conformance --theirs none --policy {policy} --role {strand.role}"
            f" --family {strand.family} --seed {seed_of(entry.number)} --show"
        )
    if len(failed) > limit:
        yield f"and {len(failed) - limit} more"
