"""How an engine is cut: its pool, its rounds and what it speculates on."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

from tokenspeed.runtime.recipe import Recipe
from tokenspeed.scheduler import PressurePolicy, SchedulerConfig

DTYPES = ("float64", "float32", "bfloat16", "float16")
"""What a model can be computed in."""

DEVICES = ("cpu", "cuda")
"""What it can be computed on."""

_LEAST = {
    "num_device_pages": 2,
    "num_host_pages": 0,
    "page_tokens": 1,
    "max_batch_size": 1,
    "max_request_tokens": 1,
    "max_scheduled_tokens": 1,
    "overlap_schedule_depth": 0,
    "speculative_tokens": 0,
}
"""Of the settings that are whole numbers, the least; the scheduler knows the most."""

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
        for name, least in _LEAST.items():
            given = getattr(self, name)
            if given is None and getattr(EngineSettings, name) is None:
                continue
            if not isinstance(given, Integral) or isinstance(given, bool) or given < least:
                raise ValueError(
                    f"{name} = {given!r:.80}: {name} is a whole number from {least} on"
                )
        for name in ("mixed", "prefix_cache"):
            given = getattr(self, name)
            if not isinstance(given, bool):
                raise ValueError(f"{name} = {given!r:.80}: {name} is True or False")
        if self.num_device_pages is not None and self.memory is not None:
            raise ValueError("num_device_pages and memory: give one of them")

    @classmethod
    def of(cls, settings: dict[str, Any]) -> EngineSettings:
        """Raises `ValueError` for a name that is no setting, or a value that is none."""
        known = [item.name for item in fields(cls)]
        for name in settings:
            if name not in known:
                names = ", ".join(["dtype", "device", *known])
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
        pages = self.num_device_pages
        if self.memory is not None:
            pages = parse_bytes(self.memory) // recipe.layout.parent_bytes
            if pages < 2:
                raise ValueError(
                    f"memory = {self.memory!r}: a page takes {recipe.layout.parent_bytes} bytes, "
                    "and the least pool is two"
                )
        if pages is None:
            tokens = min(self.max_request_tokens or 2048, context_tokens)
            pages = recipe.pages_for(self.max_batch_size, tokens, **settings)
        return recipe.scheduler_config(
            num_device_pages=pages,
            num_host_pages=self.num_host_pages,
            max_batch_size=self.max_batch_size,
            pressure_policy=PressurePolicy.Goodput,
            **settings,
        )


def parse_bytes(text: int | str) -> int:
    """Bytes of `"512MiB"`, `"2 GB"` or a plain number. Raises `ValueError`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?)?B?", str(text).strip())
    if found is None:
        raise ValueError(f"memory = {text!r}: memory is a number of bytes, or as '512MiB', '2GB'")
    return int(float(found[1]) * _UNITS[found[2] or ""])
