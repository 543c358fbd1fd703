"""The Azure LLM inference trace format: CSV with a header.

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:17:03.9799600,4808,10

It tells nothing of the prompts' content, so no two requests share a prefix.
"""

from __future__ import annotations

from datetime import datetime, timezone

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse(line: str) -> tuple[float, int, int, list[int]]:
    """One request as (seconds since 1970, prompt tokens, output tokens, no hash ids).

    `ValueError` says what the line lacks or holds wrongly.
    """
    cells = line.split(",")
    if len(cells) != 3:
        raise ValueError(f"{len(cells)} fields where 3 are due ({HEADER})")
    return (
        _seconds(cells[0]),
        _tokens("ContextTokens", cells[1]),
        _tokens("GeneratedTokens", cells[2]),
        [],
    )


def _seconds(cell: str) -> float:
    """Reads '2023-11-16 18:17:03.9799600', with or without a fraction or an offset from UTC."""
    stem, dot, rest = cell.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        when = datetime.fromisoformat(stem + rest[len(digits) :])
    except ValueError:
        when = None
    if when is None or (dot and not digits):
        raise ValueError(
            f"`TIMESTAMP` is {cell!r}; it needs a form like 2023-11-16 18:17:03.9799600"
        )
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return (when - _EPOCH).total_seconds() + float(f"0.{digits or 0}")


def _tokens(name: str, cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise ValueError(f"`{name}` is {cell!r}; it needs a whole number of tokens") from None
