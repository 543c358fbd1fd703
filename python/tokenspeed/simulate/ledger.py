"""The ledger: what happened in a replay, in columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenspeed.simulate.trace import Trace

Table = dict[str, NDArray[np.float64]]
"""Columns by name, `[rows]` each."""


class Columns:
    """Rows of numbers appended one at a time, kept as packed float64, read by column."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._values = array("d")
        self.append = self._values.extend
        """Appends one row: a tuple with a number a column."""

    def __len__(self) -> int:
        return len(self._values) // len(self._names)

    def table(self) -> Table:
        """The columns by name, `[rows]` float64 each; copies, so that rows may still be added."""
        rows = np.array(self._values, dtype=np.float64).reshape(-1, len(self._names))
        return dict(zip(self._names, rows.T.copy()))


@dataclass(frozen=True)
class Ended:
    """A request that was refused when submitted or ended by the scheduler, and why."""

    request: int
    """Its place in the trace, from 0."""
    at_s: float
    reason: str


class Ledger:
    """One row a request, a forward, a sample of the gauges, a copy, a retraction.

    Times are virtual seconds since the first arrival; NaN where it never happened.
    """

    def __init__(self, trace: Trace) -> None:
        count = len(trace)
        self.trace = trace
        self.admitted_s = np.full(count, np.nan)
        """When the forward that holds the request's first chunk was planned."""
        self.first_token_s = np.full(count, np.nan)
        self.finished_s = np.full(count, np.nan)
        self.device_hit_tokens = np.zeros(count, dtype=np.int64)
        """Prompt tokens found on the device at the first admission; host_hit_tokens likewise."""
        self.host_hit_tokens = np.zeros(count, dtype=np.int64)
        self.remaining_tokens = trace.output_tokens.copy()
        """Output tokens still to be generated."""
        self.retractions = np.zeros(count, dtype=np.int32)

        self.rounds = Columns(
            "start_s", "end_s", "prefills", "decodes", "prefill_tokens", "context_tokens"
        )
        self.gauges = Columns(
            "at_s", "active_pages", "available_pages", "empty_pages", "waiting", "running"
        )
        """Pages that requests hold; pages empty or evictable, and the empty ones of these;
        requests that wait for admission, and requests admitted."""
        self.write_backs = Columns("start_s", "end_s", "pages")
        self.load_backs = Columns("start_s", "end_s", "pages")
        self.retracted = Columns("at_s", "request")
        self.plan_ns = array("q")
        """Nanoseconds that each call of `next_execution_plan` took, on this machine's clock."""

        self.refused: list[Ended] = []
        self.aborted: list[Ended] = []
        self.prefilled_tokens = 0
        """Rows that prefills fed to the model: each prompt token computed, each time."""
        self.recomputed_tokens = 0
        """Of these, tokens whose cache the request had computed before and lost to a retraction."""
        self.replayed_tokens = 0
        """Of these, tokens fed again behind a hit (bounded replay)."""
        self.write_back_bytes = 0
        self.load_back_bytes = 0
        self.end_s = 0.0
        """When the last forward ended."""
        self.wall_s = 0.0
        """Seconds that the replay took on this machine."""
