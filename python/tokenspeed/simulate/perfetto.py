"""A replay as a Chrome trace-event file, which ui.perfetto.dev and chrome://tracing open.

    {"traceEvents": [
      {"ph": "X", "name": "mixed", "ts": 1200.0, "dur": 130450.0, "pid": 1, "tid": 1,
       "args": {"prefills": 2, "decodes": 17, "prefill_tokens": 8175, "context_tokens": 210331}},
      {"ph": "C", "name": "device pages", "ts": 1200.0, "pid": 1,
       "args": {"held": 310, "cached": 3600, "empty": 89}},
      {"ph": "i", "name": "retraction", "ts": 1200.0, "pid": 1, "tid": 4, "s": "t",
       "args": {"request": 17}}
    ]}

Times are virtual microseconds since the first arrival.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.simulate.ledger import Ledger, Table

_PID = 1
_FORWARDS, _TO_HOST, _TO_DEVICE, _RETRACTIONS = 1, 2, 3, 4
_TRACKS = {
    _FORWARDS: "forwards",
    _TO_HOST: "copies to the host",
    _TO_DEVICE: "copies to the device",
    _RETRACTIONS: "retractions",
}


@dataclass(frozen=True)
class Window:
    """Which part of a replay is written: half open, in virtual seconds, and how much of it."""

    from_s: float = 0.0
    to_s: float = float("inf")
    max_events: int = 200_000


@dataclass(frozen=True)
class Written:
    """What a file holds."""

    events: int
    to_s: float
    """Events from here on were left out; infinity if none was for `max_events`."""


def write_perfetto(ledger: Ledger, path: Path, window: Window | None = None) -> Written:
    """Writes the events that start within `window`, the earliest `max_events` of them."""
    window = window or Window()
    tables = {
        "rounds": ledger.rounds.table(),
        "gauges": ledger.gauges.table(),
        "write_backs": ledger.write_backs.table(),
        "load_backs": ledger.load_backs.table(),
        "retracted": ledger.retracted.table(),
    }
    to_s = _end(tables, window)
    within = {name: _within(table, window.from_s, to_s) for name, table in tables.items()}
    events = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        file.write(",\n".join(json.dumps(event) for event in _names()))
        for event in _events(within):
            file.write(",\n" + json.dumps(event))
            events += 1
        file.write("\n]}\n")
    return Written(events, float("inf") if to_s >= window.to_s else to_s)


def _starts(table: Table) -> NDArray[np.float64]:
    return table["start_s"] if "start_s" in table else table["at_s"]


def _end(tables: dict[str, Table], window: Window) -> float:
    """Where the window ends so that it holds `max_events` at most."""
    starts = np.sort(
        np.concatenate(
            [np.tile(_starts(t), 2 if name == "gauges" else 1) for name, t in tables.items()]
        )
    )
    starts = starts[(starts >= window.from_s) & (starts < window.to_s)]
    if len(starts) <= window.max_events:
        return window.to_s
    return float(starts[window.max_events])


def _within(table: Table, from_s: float, to_s: float) -> list[tuple[float, ...]]:
    starts = _starts(table)
    keep = (starts >= from_s) & (starts < to_s)
    return list(zip(*(column[keep].tolist() for column in table.values())))


def _names() -> Iterator[dict[str, Any]]:
    yield _meta("process_name", {"name": "replay (virtual time)"})
    for tid, name in _TRACKS.items():
        yield _meta("thread_name", {"name": name}, tid)
        yield _meta("thread_sort_index", {"sort_index": tid}, tid)


def _events(within: dict[str, list[tuple[float, ...]]]) -> Iterator[dict[str, Any]]:
    for start_s, end_s, prefills, decodes, prefill_tokens, context_tokens in within["rounds"]:
        name = "mixed" if prefills and decodes else "prefill" if prefills else "decode"
        args = {
            "prefills": int(prefills),
            "decodes": int(decodes),
            "prefill_tokens": int(prefill_tokens),
            "context_tokens": int(context_tokens),
        }
        yield _slice(name, _FORWARDS, start_s, end_s, args)
    for table, tid in (("write_backs", _TO_HOST), ("load_backs", _TO_DEVICE)):
        for start_s, end_s, pages in within[table]:
            yield _slice("copy", tid, start_s, end_s, {"pages": int(pages)})
    for at_s, active, available, empty, waiting, running in within["gauges"]:
        pool = {"held": int(active), "cached": int(available - empty), "empty": int(empty)}
        yield _counter("device pages", at_s, pool)
        yield _counter("requests", at_s, {"running": int(running), "waiting": int(waiting)})
    for at_s, request in within["retracted"]:
        yield {
            "ph": "i",
            "name": "retraction",
            "ts": _us(at_s),
            "pid": _PID,
            "tid": _RETRACTIONS,
            "s": "t",
            "args": {"request": int(request)},
        }


def _us(at_s: float) -> float:
    return round(at_s * 1e6, 3)


def _meta(name: str, args: dict[str, Any], tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": _PID, "tid": tid, "args": args}


def _slice(
    name: str, tid: int, start_s: float, end_s: float, args: dict[str, int]
) -> dict[str, Any]:
    start_us = _us(start_s)
    return {
        "ph": "X",
        "name": name,
        "ts": start_us,
        "dur": round(_us(end_s) - start_us, 3),
        "pid": _PID,
        "tid": tid,
        "args": args,
    }


def _counter(name: str, at_s: float, args: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "name": name, "ts": _us(at_s), "pid": _PID, "args": args}
