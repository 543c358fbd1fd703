"""A live picture of an engine's rounds: every request's state, its text, and the pool."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tokenspeed.engine.watch import RoundView

_STYLES = {
    "waits": "dim",
    "prefills": "cyan",
    "decodes": "green",
    "sits out": "dim green",
    "retracted": "bold red",
    "comes back": "bold yellow",
    "done": "bold",
}
_TEXT_CHARACTERS = 52


@dataclass
class _Row:
    label: str = ""
    state: str = "waits"
    tokens: int = 0
    text: str = ""
    retractions: int = 0


class Board:
    """Fed by the engine's thread (`on_round`) and by the one that reads the deltas."""

    def __init__(self, pages: int) -> None:
        """`pages`: of the pool, without the null one."""
        self._pages = pages
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self.rounds = 0
        self.retractions = 0
        self.stored_blocks = 0
        self.loaded_blocks = 0
        self.most_used = 0
        self.lines: list[str] = []
        """A line for each round in which someone came or went, for a view that is not live."""
        self._last: RoundView | None = None

    def on_round(self, view: RoundView) -> None:
        """Takes a round as it is planned."""
        with self._lock:
            self._last = view
            self.rounds += 1
            self.retractions += len(view.retracted)
            self.stored_blocks += view.stored_blocks
            self.loaded_blocks += view.loaded_blocks
            self.most_used = max(self.most_used, view.used_pages)
            for name in self._rows.keys() | {*view.prefills, *view.decodes, *view.retracted}:
                row = self._rows.setdefault(name, _Row())
                row.state = self._next_state(name, row, view)
                row.retractions += name in view.retracted
            line = self._line(view)
            if not self.lines or line.partition(": ")[2] != self.lines[-1].partition(": ")[2]:
                self.lines.append(line)

    @staticmethod
    def _next_state(name: str, row: _Row, view: RoundView) -> str:
        if row.state == "done":
            return "done"
        if name in view.retracted:
            return "retracted"
        if name in view.prefills:
            return "comes back" if row.retractions else "prefills"
        if name in view.decodes:
            return "decodes"
        return "sits out" if row.state in ("decodes", "prefills", "comes back") else row.state

    def label(self, name: str, label: str) -> None:
        """What to call a request."""
        with self._lock:
            self._rows.setdefault(name, _Row()).label = label

    def took(self, name: str, text: str, tokens: int, ended: bool) -> None:
        """Takes what came for a request."""
        with self._lock:
            row = self._rows.setdefault(name, _Row())
            row.text += text
            row.tokens += tokens
            if ended:
                row.state = "done"

    def _line(self, view: RoundView) -> str:
        """A round in words."""
        named = {"prefill": view.prefills, "decode": view.decodes, "RETRACT": view.retracted}
        actions = [
            f"{word} {', '.join(self._rows[name].label or name for name in names)}"
            for word, names in named.items()
            if names
        ]
        if view.loaded_blocks:
            actions.append(f"load {view.loaded_blocks} blocks from the host")
        return f"round {self.rounds}: {'; '.join(actions) or 'wait for copies'}"

    def __rich__(self) -> RenderableType:
        with self._lock:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for column in ("prompt", "state", "tokens", "retracted", "text"):
                right = column in ("tokens", "retracted")
                table.add_column(column, no_wrap=True, justify="right" if right else "left")
            for row in self._rows.values():
                tail = " ".join(row.text.split())[-_TEXT_CHARACTERS:]
                times = f"{row.retractions}x" if row.retractions else ""
                state = Text(row.state, style=_STYLES[row.state])
                table.add_row(row.label, state, str(row.tokens), times, Text(tail))
            used = self._last.used_pages if self._last else 0
            pool = Table.grid(padding=(0, 1))
            pool.add_row(
                "pool", ProgressBar(total=self._pages, completed=used, width=30), self._pool(used)
            )
            return Group(table, Text(), pool)

    def _pool(self, used: int) -> str:
        return (
            f"{used} of {self._pages} pages; round {self.rounds}; {self.stored_blocks} blocks to "
            f"the host, {self.loaded_blocks} back"
        )
