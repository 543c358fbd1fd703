"""A setting: a dataclass field that knows its help text and its bounds.

One declaration serves the constructor, the command line, the sweep and the report.
"""

from __future__ import annotations

import math
from dataclasses import Field, field, fields
from typing import Any


def setting(
    default: Any, help: str, *, minimum: float | None = None, above: float | None = None
) -> Any:
    """A dataclass field with `help` (unit included) and a bound: `>= minimum` or `> above`."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "above": above})


def check_settings(owner: Any) -> None:
    """Raises `ValueError` naming the first setting of `owner` that is out of its bounds."""
    for item in fields(owner):
        check_setting(item, getattr(owner, item.name))


def check_setting(item: Field[Any], value: Any) -> None:
    """Raises `ValueError` with the setting's name, its value and the rule it breaks, if any."""
    minimum, above = item.metadata.get("minimum"), item.metadata.get("above")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{item.name} is {value}; it needs a finite number")
    if minimum is not None and value < minimum:
        raise ValueError(f"{item.name} is {value}; it needs at least {minimum}")
    if above is not None and value <= above:
        raise ValueError(f"{item.name} is {value}; it needs more than {above}")


def parse_setting(item: Field[Any], text: str) -> Any:
    """Reads `text` as the setting's type (that of its default); `ValueError` names the setting."""
    kind: Any = type(item.default)
    value: Any
    try:
        if kind is bool:
            value = {"true": True, "false": False}[text.strip().lower()]
        elif kind is int:
            value = int(text.replace("_", ""))
        else:
            value = kind(text)
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise ValueError(f"{item.name}={text!r}: it needs {expected}") from None
    check_setting(item, value)
    return value
