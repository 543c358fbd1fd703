"""What a session found: as tables, as JSON, as a picture."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from html import escape
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from contest import Cell, Contest, Spread, now
from rich.table import Table


def machine() -> dict[str, Any]:
    """Where it ran."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = {}
    for package in ("tokenspeed-core", "tokenspeed-scheduler"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": versions,
        "time": now(),
    }


def ratio(cells: Sequence[Cell]) -> Spread | None:
    """How the second of a peer's two cells of a contest relates to the first, turn by turn."""
    under, over = (cell.times_us() for cell in cells)
    pairs = [b / a for a, b in zip(under, over)]
    return Spread.of(pairs) if pairs else None


def by_contest(cells: Sequence[Cell]) -> list[tuple[Contest, list[Cell]]]:
    """The cells of each contest."""
    return [(contest, list(group)) for contest, group in groupby(cells, lambda c: c.contest)]


def times_table(cells: Sequence[Cell], peers: Sequence[str]) -> Table:
    """Microseconds of every situation, and how many times as fast as the last peer the first is."""
    table = Table(
        title="Microseconds: median of turns ± half the interquartile range",
        title_justify="left",
    )
    table.add_column("")
    for peer in peers:
        table.add_column(peer, justify="right")
    if len(peers) > 1:
        table.add_column(f"{peers[-1]}\n/ {peers[0]}", justify="right", style="bold")
    for contest, group in by_contest(cells):
        table.add_section()
        for situation in contest.situations:
            row = [cell for cell in group if cell.situation == situation]
            texts = [_microseconds(cell) for cell in row]
            if len(peers) > 1:
                texts.append(_times_faster(row[0], row[-1]))
            table.add_row(f"{contest.title}: {situation.label}, per {situation.unit}", *texts)
    return table


def ratios_table(cells: Sequence[Cell], peers: Sequence[str]) -> Table | None:
    """What the difference between two situations costs each peer: 1 is nothing."""
    table = Table(title="Ratios: median \\[quartiles] of pairs of turns", title_justify="left")
    table.add_column("")
    for peer in peers:
        table.add_column(peer, justify="right")
    for contest, group in by_contest(cells):
        if contest.ratio is None:
            continue
        ratios = [ratio([cell for cell in group if cell.peer == peer]) for peer in peers]
        table.add_row(contest.ratio, *[_quartiles(r) if r else "-" for r in ratios])
    return table if table.row_count else None


def tails_table(cells: Sequence[Cell], peers: Sequence[str]) -> Table:
    """The 99th percentile of single steps over their median, where a step is a round or so."""
    table = Table(title="99th percentile over median, of single steps", title_justify="left")
    table.add_column("")
    for peer in peers:
        table.add_column(peer, justify="right")
    for contest, group in by_contest(cells):
        for situation in contest.situations:
            if situation.units == 1 and situation.unit != "world":
                row = [cell for cell in group if cell.situation == situation]
                tails = [f"{cell.tail():.1f}" if cell.each else "-" for cell in row]
                table.add_row(f"{contest.title}: {situation.label}", *tails)
    return table


def notes(cells: Sequence[Cell]) -> list[str]:
    """What is missing, and why."""
    return [
        f"{cell.peer}, {cell.contest.title}: {cell.situation.label}: {cell.note}"
        for cell in cells
        if cell.note
    ]


def as_json(cells: Sequence[Cell], peers: Sequence[str]) -> dict[str, Any]:
    """Everything: times in microseconds a unit, spreads as [quartile, median, quartile]."""

    def spreads(cell: Cell) -> dict[str, Spread]:
        if not cell.turns:
            return {}
        return {
            "total_us": cell.spread_us(),
            "submit_us": cell.spread_us(lambda times: times.submit),
            "plan_us": cell.spread_us(lambda times: times.plan),
            "feedback_us": cell.spread_us(lambda times: times.feedback),
        }

    return {
        "machine": machine(),
        "cells": [
            {
                "contest": cell.contest.name,
                "title": cell.contest.title,
                "situation": cell.situation.label,
                "peer": cell.peer,
                "unit": cell.situation.unit,
                "turns": len(cell.turns),
                "note": cell.note,
                "tail": cell.tail() if cell.each else None,
                **spreads(cell),
            }
            for cell in cells
        ],
        "ratios": [
            {
                "contest": contest.name,
                "of": contest.ratio,
                "peer": peer,
                "ratio": ratio([cell for cell in group if cell.peer == peer]),
            }
            for contest, group in by_contest(cells)
            if contest.ratio is not None
            for peer in peers
        ],
    }


def _microseconds(cell: Cell) -> str:
    if not cell.turns:
        return "-"
    low, median, high = cell.spread_us()
    return f"{median:,.1f} [dim]±{50 * (high - low) / median:.0f} %[/dim]"


def _times_faster(fast: Cell, slow: Cell) -> str:
    pairs = [b / a for a, b in zip(fast.times_us(), slow.times_us())]
    return f"{Spread.of(pairs).median:,.1f}" if pairs else "-"


def _quartiles(spread: Spread) -> str:
    low, median, high = spread
    return f"{median:,.2f} [dim]\\[{low:,.2f}, {high:,.2f}][/dim]"


# --- the picture -------------------------------------------------------------------------------

TONES = ("#2a78d6", "#7db4f0", "#8a8f98", "#e0a33e", "#7b61c9")
"""One a peer."""
_LABELS, _WIDTH, _BAR, _GAP = 300, 640, 11, 14


def as_svg(cells: Sequence[Cell], peers: Sequence[str]) -> str:
    """Bars of the medians with their quartiles, over a logarithmic axis, as one SVG file."""
    spreads = [cell.spread_us() for cell in cells if cell.turns]
    low = math.floor(math.log10(min(spread.low for spread in spreads)))
    high = math.ceil(math.log10(max(spread.high for spread in spreads)))

    def place(us: float) -> float:
        return _LABELS + (math.log10(us) - low) / max(high - low, 1) * _WIDTH

    y = 64.0
    marks: list[str] = []
    for contest, group in by_contest(cells):
        marks.append(_text(8, y, f"{contest.title}, per {contest.situations[0].unit}", weight=600))
        y += 8
        for situation in contest.situations:
            row = [cell for cell in group if cell.situation == situation]
            middle = y + len(row) * _BAR / 2 + 4
            marks.append(_text(_LABELS - 8, middle, situation.label, anchor="end"))
            for cell in row:
                if cell.turns:
                    marks += _bar(cell, y, place, TONES[peers.index(cell.peer) % len(TONES)])
                y += _BAR
            y += 6
        y += _GAP
    grid = []
    for power in range(low, high + 1):
        x = place(10.0**power)
        grid.append(f'<path d="M{x:.1f} 40V{y:.1f}" stroke="#8884"/>')
        grid.append(_text(x, y + 14, _duration(power), anchor="middle"))
    legend = []
    for at, peer in enumerate(peers):
        tone, x = TONES[at % len(TONES)], _LABELS + 120 * at
        legend.append(f'<rect x="{x}" y="12" width="10" height="10" fill="{tone}"/>')
        legend.append(_text(x + 16, 21, peer))
    width, height = _LABELS + _WIDTH + 110, y + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" '
        f'width="{width}" height="{height:.0f}" font-family="system-ui, sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        + "".join([*grid, *legend, *marks])
        + "</svg>\n"
    )


def _bar(cell: Cell, y: float, place: Any, tone: str) -> list[str]:
    spread = cell.spread_us()
    left, right = _LABELS, place(spread.median)
    middle = y + _BAR / 2
    return [
        f'<rect x="{left}" y="{y:.1f}" width="{max(right - left, 1):.1f}" height="{_BAR - 2}" '
        f'fill="{tone}"><title>{escape(cell.peer)}: {spread.median:,.1f} us</title></rect>',
        f'<path d="M{place(spread.low):.1f} {middle:.1f}H{place(spread.high):.1f}" stroke="#222"/>',
        _text(max(right, place(spread.high)) + 6, middle + 4, f"{spread.median:,.1f} us", size=10),
    ]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400, size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}" fill="#222">{escape(text)}</text>'
    )


def _duration(power: int) -> str:
    units = ((6, "s"), (3, "ms"), (0, "us"), (-3, "ns"))
    base, unit = next(((at, name) for at, name in units if power >= at), units[-1])
    return f"{10 ** (power - base):,} {unit}"
