"""The file of what was played: a line a world and side, so that a run goes on where it was left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .endings import Ending


@dataclass(frozen=True)
class Played:
    """How `side` ended world `number`; `what` is empty where it did as it should."""

    number: int
    side: str
    ending: Ending
    what: str = ""


class State:
    """Appends to `path` as worlds end; what a run that was cut off left there is read first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.played: dict[tuple[int, str], Played] = {}
        self._close_last_line()
        for entry in self._read():
            self.played[entry.number, entry.side] = entry

    def add(self, entry: Played) -> None:
        self.played[entry.number, entry.side] = entry
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def missing(self, numbers: range, side: str) -> list[int]:
        """Those of `numbers` that `side` has not played yet, in order."""
        return [number for number in numbers if (number, side) not in self.played]

    def of(self, numbers: range, side: str) -> list[Played]:
        """What `side` has played of `numbers`, in order."""
        keys = ((number, side) for number in numbers)
        return [self.played[key] for key in keys if key in self.played]

    def _close_last_line(self) -> None:
        """A run that was cut off may have left half a line: what comes next is not to join it."""
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def _read(self) -> Iterator[Played]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                yield Played(**{**entry, "ending": Ending(entry["ending"])})
            except ValueError:
                continue  # Half a line of a run that was cut off.
