"""A chart as inline SVG: lines or stacked areas over a linear or logarithmic axis."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

from tokenspeed.simulate import units

WIDTH, HEIGHT = 640, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 24, 12, 40

Value = float | None


@dataclass(frozen=True)
class Line:
    """A named curve through the points (xs[i], ys[i]); a None is a gap."""

    name: str
    xs: Sequence[float]
    ys: Sequence[Value]
    tone: int = 0
    """Which of the page's colours it has: 0 to 3, or 4 for what is in the background."""


@dataclass(frozen=True)
class Chart:
    """What a chart shows. `in_words` writes a y value, `x_in_words` an x value."""

    title: str
    note: str
    """One sentence on how to read it."""
    x_label: str
    lines: Sequence[Line]
    in_words: Callable[[Value], str] = units.count
    x_in_words: Callable[[Value], str] = units.count
    stacked: bool = False
    """Draw areas, each on top of the one before; all lines share their xs."""
    log_x: bool = False
    log_y: bool = False
    dots: bool = False
    """Mark each point, where the points are few."""
    y_max: float | None = None

    def figure(self) -> str:
        """The chart as an HTML figure with its legend, its drawing and its data for hovering."""
        lines = _stack(self.lines) if self.stacked else self.lines
        x_axis, y_axis = self._x_axis(), self._y_axis(lines)
        drawing = [_grid(self, x_axis, y_axis)]
        floor: Sequence[Value] = [0.0] * len(lines[0].xs) if lines else []
        for line in lines:
            points = [
                None if y is None else (x_axis.place(x), y_axis.place(y))
                for x, y in zip(line.xs, line.ys)
            ]
            if self.stacked:
                base = [(x_axis.place(x), y_axis.place(y or 0.0)) for x, y in zip(line.xs, floor)]
                drawing.append(_area(points, base, line.tone))
                floor = line.ys
            else:
                drawing.append(_curve(points, line.tone, self.dots))
        legend = "".join(
            f'<span class="key"><i class="c{line.tone}"></i>{escape(line.name)}</span>'
            for line in lines
        )
        return (
            f'<figure class="chart"><figcaption><b>{escape(self.title)}</b>'
            f"<small>{escape(self.note)}</small></figcaption>"
            f'<div class="legend">{legend}</div><div class="plot">'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">'
            f'{"".join(drawing)}<line class="cursor" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/></svg>'
            f'<div class="tip"></div></div>'
            f'<script type="application/json">{self._hover_data(x_axis)}</script></figure>'
        )

    def _x_axis(self) -> Axis:
        xs = [x for line in self.lines for x in line.xs]
        if self.log_x:
            return Axis.logarithmic(xs, _LEFT, WIDTH - _RIGHT)
        return Axis.linear(min(xs, default=0.0), max(xs, default=1.0), _LEFT, WIDTH - _RIGHT, 7)

    def _y_axis(self, lines: Sequence[Line]) -> Axis:
        ys = [y for line in lines for y in line.ys if y is not None]
        if self.log_y:
            return Axis.logarithmic(ys, HEIGHT - _BOTTOM, _TOP)
        high = self.y_max or max(ys, default=0.0)
        return Axis.linear(0.0, high, HEIGHT - _BOTTOM, _TOP, 5, round_up=True)

    def _hover_data(self, x_axis: Axis) -> str:
        """For each line: [place in the drawing, x in words, y in words] of every point."""
        data = [
            {
                "name": line.name,
                "tone": line.tone,
                "points": [
                    [round(x_axis.place(x), 1), self.x_in_words(x), self.in_words(y)]
                    for x, y in zip(line.xs, line.ys)
                ],
            }
            for line in self.lines
        ]
        return json.dumps(data, ensure_ascii=False).replace("</", "<\\/")


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` onto the drawing from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]
    log: bool = False

    @classmethod
    def linear(
        cls,
        low: float,
        high: float,
        start: float,
        end: float,
        about: int = 5,
        *,
        round_up: bool = False,
    ) -> Axis:
        """An axis with `about` so many ticks, at round values; `round_up` ends it on a tick."""
        if high <= low:
            return cls(low, low + 1.0, start, end, [low, low + 1.0])
        rough = (high - low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
        if round_up:
            high = math.ceil(high / step - 1e-9) * step
        first = math.ceil(low / step - 1e-9)
        ticks = [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
        return cls(low, high, start, end, ticks)

    @classmethod
    def logarithmic(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """An axis over the positive ones of `values`, its ticks at round parts of powers of ten."""
        values = [value for value in values if value > 0]
        low, high = min(values, default=1.0), max(values, default=10.0)
        if high <= low:
            low, high = low / 2, high * 2
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        wide = high / low
        parts = (1, 2, 5) if wide < 300 else (1, 3) if wide < 3000 else (1,)
        ticks = [part * 10.0**power for power in powers for part in parts]
        return cls(low, high, start, end, [t for t in ticks if low <= t <= high], log=True)

    def place(self, value: float) -> float:
        """Where `value` lies in the drawing."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def _stack(lines: Sequence[Line]) -> list[Line]:
    stacked, total = [], [0.0] * (len(lines[0].xs) if lines else 0)
    for line in lines:
        total = [below + (y or 0.0) for below, y in zip(total, line.ys)]
        stacked.append(replace(line, ys=total))
    return stacked


def _grid(chart: Chart, x_axis: Axis, y_axis: Axis) -> str:
    parts = []
    for tick in y_axis.ticks:
        y = y_axis.place(tick)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(chart.in_words(tick))}</text>"
        )
    for tick in x_axis.ticks:
        x = x_axis.place(tick)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle">'
            f"{escape(chart.x_in_words(tick))}</text>"
        )
    parts.append(
        f'<text class="label" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 5}" '
        f'text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    return "".join(parts)


Point = tuple[float, float]


def _curve(points: Sequence[Point | None], tone: int, dots: bool) -> str:
    path, pen_down = [], False
    for point in points:
        if point is not None:
            path.append(f"{'L' if pen_down else 'M'}{point[0]:.1f} {point[1]:.1f}")
        pen_down = point is not None
    marks = ""
    if dots:
        marks = "".join(
            f'<circle class="dot c{tone}" cx="{p[0]:.1f}" cy="{p[1]:.1f}" r="3.5"/>'
            for p in points
            if p is not None
        )
    return f'<path class="line c{tone}" d="{"".join(path)}"/>{marks}'


def _area(points: Sequence[Point | None], base: Sequence[Point], tone: int) -> str:
    outline = [p for p in points if p is not None] + list(reversed(base))
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    return f'<polygon class="area c{tone}" points="{corners}"/>'
