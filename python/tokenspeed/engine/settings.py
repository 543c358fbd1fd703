"""How an engine is cut: its pool, its rounds and what it speculates on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np

from tokenspeed.engine.sampling import COUNT_MAX
from tokenspeed.runtime.recipe import Recipe
from tokenspeed.scheduler import PressurePolicy, SchedulerConfig

DTYPES = ("float64", "float32", "bfloat16", "float16")
"""What a model can be computed in."""

DEVICES = ("cpu", "cuda")
"""What it can be computed on."""

_ARGUMENTS = ("dtype", "device")
"""What `LLM` takes beside the settings."""


def _from(least: int) -> tuple[str, Callable[[int], bool]]:
    return f"a whole number, {least} to {COUNT_MAX}", lambda given: least <= given <= COUNT_MAX


_COUNTS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "num_device_pages": _from(2),
    # The first is the null one: a tier of one would have no place.
    "num_host_pages": (
        f"0, or a whole number, 2 to {COUNT_MAX}",
        lambda given: given == 0 or 2 <= given <= COUNT_MAX,
    ),
    "page_tokens": _from(1),
    "max_batch_size": _from(1),
    "max_request_tokens": _from(1),
    "max_scheduled_tokens": _from(1),
    "overlap_schedule_depth": ("0 or 1", lambda given: given in (0, 1)),
    "speculative_tokens": _from(0),
}
"""Of the settings that are whole numbers, the rule in words and as a test."""

_BLOCKS_MAX = 2**26
"""Of a pool, its pages and each group's blocks in them: what the scheduler takes."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Sizes in tokens, pages or bytes as named. Left alone, `max_batch_size` requests of
    `max_request_tokens` fit the pool side by side, and nothing is ever retracted.

    Raises `ValueError` naming the setting, its value and the rule.
    """

    num_device_pages: int | None = None
    """Parents of the pool (api.md), the null one included."""
    memory: int | str | None = None
    """The pool in bytes, or as `"2GiB"`; instead of `num_device_pages`."""
    num_host_pages: int = 0
    """Parents of the host tier, the null one included; 0: no host tier."""
    page_tokens: int = 16
    """Requests share cache at multiples of this."""
    max_batch_size: int = 8
    """Requests that run side by side."""
    max_request_tokens: int | None = None
    """Of one request, prompt and output. None: what model and pool bear, and 2,048 for a pool that
    is not given."""
    max_scheduled_tokens: int = 512
    """Tokens of one forward; longer prompts are computed in chunks."""
    overlap_schedule_depth: int = 1
    """Rounds that are planned before a result has come: 0 or 1."""
    mixed: bool = True
    """Prompts and decodes share forwards."""
    speculative_tokens: int = 0
    """Tokens guessed ahead by looking them up in the request's own text, and checked in one
    forward. The output is the same."""
    prefix_cache: bool = True
    """New prompts find what others have computed."""

    def __post_init__(self) -> None:
        for name, (rule, holds) in _COUNTS.items():
            given = getattr(self, name)
            if given is None and getattr(EngineSettings, name) is None:
                continue
            if not _is_whole(given) or not holds(given):
                raise ValueError(f"{name} = {given!r:.80}: {name} is {rule}")
        for name in ("mixed", "prefix_cache"):
            given = getattr(self, name)
            # NumPy's scalars stand for what they hold, here as among the whole numbers.
            if not isinstance(given, (bool, np.bool_)):
                raise ValueError(f"{name} = {given!r:.80}: {name} is True or False")
        if self.num_device_pages is not None and self.memory is not None:
            raise ValueError("num_device_pages and memory: give one of them")
        if self.memory is not None:
            parse_bytes(self.memory)
        if 1 + self.speculative_tokens > self.max_scheduled_tokens:
            raise ValueError(
                f"speculative_tokens = {self.speculative_tokens}: 1 + speculative_tokens must not "
                f"exceed max_scheduled_tokens ({self.max_scheduled_tokens})"
            )

    @classmethod
    def of(cls, settings: dict[str, Any]) -> EngineSettings:
        """Raises `ValueError` for a name that is no setting, or a value that is none."""
        known = [item.name for item in fields(cls)]
        for name in settings:
            if name in _ARGUMENTS:
                raise ValueError(f"setting {name!r}: it is no setting; give {name} to LLM")
            if name not in known:
                names = ", ".join([*_ARGUMENTS, *known])
                raise ValueError(f"setting {name!r}: there is none; settings are {names}")
        return cls(**settings)

    def scheduler_config(self, recipe: Recipe, context_tokens: int) -> SchedulerConfig:
        """The scheduler's configuration for a model that bears `context_tokens` of one request.

        Raises `ValueError` naming the setting.
        """
        settings = {
            "max_scheduled_tokens": self.max_scheduled_tokens,
            "decode_input_tokens": 1 + self.speculative_tokens,
            "overlap_schedule_depth": self.overlap_schedule_depth,
            "enable_mixed_prefill_decode": self.mixed,
            "disable_prefix_cache": not self.prefix_cache,
        }
        layout = recipe.layout
        if self.num_device_pages is not None:
            name, pages = "num_device_pages", self.num_device_pages
        elif self.memory is not None:
            name, pages = "memory", parse_bytes(self.memory) // layout.parent_bytes
        else:
            tokens = min(self.max_request_tokens or 2048, context_tokens)
            name = "max_batch_size"
            pages = recipe.pages_for(self.max_batch_size, tokens, **settings)
        # The scheduler would name `num_device_pages`, whatever was given.
        blocks_a_page = 1 + sum(group.blocks_per_parent for group in layout.groups.values())
        most = 1 + _BLOCKS_MAX // blocks_a_page
        if not 2 <= pages <= most:
            raise ValueError(
                f"{name} = {getattr(self, name)!r:.80}: it makes a pool of {pages} pages, of "
                f"{layout.parent_bytes} bytes each; this model's has 2 to {most}"
            )
        return recipe.scheduler_config(
            num_device_pages=pages,
            num_host_pages=self.num_host_pages,
            max_batch_size=self.max_batch_size,
            pressure_policy=PressurePolicy.Goodput,
            **settings,
        )


def parse_bytes(given: int | str) -> int:
    """Bytes of `"512MiB"`, `"2 GB"` or a plain number, 1 or more. Raises `ValueError`."""
    found = None
    if isinstance(given, str) or _is_whole(given):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?)?B?", str(given).strip())
    nbytes = int(Fraction(found[1]) * _UNITS[found[2] or ""]) if found else 0
    if nbytes < 1:
        raise ValueError(
            f"memory = {given!r:.80}: memory is a whole number of bytes from 1 on, or a text like "
            "'512MiB' or '2GB', in K, M, G, Ki, Mi or Gi"
        )
    return nbytes


def _is_whole(given: object) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool)
