"""Quantities in words: three digits and a unit that suits the size."""

from __future__ import annotations

MISSING = "–"
"""What stands for a number that does not exist."""


def seconds(value: float | None) -> str:
    """'12.3 µs', '4.56 ms', '7.89 s', '12.3 min'."""
    if value is None:
        return MISSING
    if value == 0:
        return "0 s"
    for below_s, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if abs(value) < below_s:
            return f"{_digits(value * scale)} {unit}"
    return f"{_digits(value / 60)} min"


def count(value: float | None) -> str:
    """'950', '12,031', '145 million'."""
    if value is None:
        return MISSING
    if abs(value) >= 1e9:
        return f"{_digits(value / 1e9)} billion"
    if abs(value) >= 1e6:
        return f"{_digits(value / 1e6)} million"
    if abs(value - round(value)) < 1e-9:
        return f"{round(value):,}"
    return _digits(value)


def num_bytes(value: float) -> str:
    """'512 B', '32 MiB', '1.25 TiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1000:
            return f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def share(value: float | None) -> str:
    """'36.6 %'."""
    return MISSING if value is None else f"{_digits(100 * value)} %"


def _digits(value: float) -> str:
    if abs(value - round(value)) < 1e-9 and abs(value) < 1000:
        return str(round(value))
    size = abs(value)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
