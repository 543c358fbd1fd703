"""A scenario: everything that a replay of one trace depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from tokenspeed.scheduler import CacheGroupConfig, PressurePolicy, SchedulerConfig
from tokenspeed.simulate.cost import CostModel
from tokenspeed.simulate.setting import check_settings, parse_setting, setting
from tokenspeed.simulate.trace import Trace

POLICIES = {policy.name.lower(): policy for policy in PressurePolicy}
"""Pressure policies as a setting names them."""


@dataclass(frozen=True)
class Engine:
    """The scheduler's configuration, under its own names (`api.md`): a fused engine whose model
    has one full-history cache group with a block a prefix page."""

    num_device_pages: int = setting(
        4000,
        "Pages of the device pool, the null page included; a page holds prefix_granularity tokens.",
        minimum=2,
    )
    num_host_pages: int = setting(
        16000, "Pages of the host pool, the null page included; 0: no host pool.", minimum=0
    )
    prefix_granularity: int = setting(
        512, "Tokens of a prefix page, the unit in which prompts share cache.", minimum=1
    )
    max_scheduled_tokens: int = setting(8192, "Token budget of a round.", minimum=1)
    max_batch_size: int = setting(256, "Requests that may hold cache at a time.", minimum=1)
    overlap_schedule_depth: int = setting(
        0, "Rounds that may be planned before a result lands: 0 or 1.", minimum=0
    )
    prefix_replay_tokens: int = setting(
        0, "Tokens at a prompt's end that are computed again after any hit.", minimum=0
    )
    enable_mixed_prefill_decode: bool = setting(
        True, "Let prefills and decodes share a round; otherwise prefills go first, alone."
    )
    pressure_policy: str = setting(
        "goodput",
        "When memory is short: document (the letter of the document) or goodput (keep the batch).",
    )
    disable_prefix_cache: bool = setting(False, "Match no prefix.")
    disable_l2_cache: bool = setting(False, "Use no host pool.")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.pressure_policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise ValueError(
                f"pressure_policy is {self.pressure_policy!r}; it needs one of {known}"
            )
        if self.overlap_schedule_depth > 1:
            raise ValueError(
                f"overlap_schedule_depth is {self.overlap_schedule_depth}; it needs 0 or 1"
            )

    def scheduler_config(self) -> SchedulerConfig:
        """The configuration; building a scheduler of it may raise `ValueError`."""
        group = CacheGroupConfig(
            group_id="full",
            block_granularity=self.prefix_granularity,
            total_pages=self.num_device_pages,
        )
        values = asdict(self) | {"pressure_policy": POLICIES[self.pressure_policy]}
        return SchedulerConfig(cache_groups=[group], **values)


@dataclass(frozen=True)
class HostLink:
    """What a page weighs and how fast it travels between device and host."""

    kv_bytes_per_token: int = setting(
        65536, "Bytes of KV cache a token: 2 x 32 layers x 8 heads x 128 x 1 byte.", minimum=1
    )
    host_link_gb_per_s: float = setting(
        50.0,
        "Gigabytes (10^9) a second between device and host, in each direction: about PCIe 5 x16.",
        above=0,
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Load:
    """Which of the trace's requests arrive, how fast, and what they declare."""

    limit: int = setting(0, "Replay the trace's first N requests only; 0: all.", minimum=0)
    time_scale: float = setting(
        1.0, "Let requests arrive this many times as fast as in the trace.", above=0
    )
    max_new_tokens: int = setting(
        -1,
        "Output tokens that each request declares and generates at most; -1: what the trace says "
        "it generates; 0: undeclared.",
        minimum=-1,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def of(self, trace: Trace) -> Trace:
        """The trace as it is played: cut to the limit, its arrivals scaled, its outputs capped."""
        if 0 < self.limit < len(trace):
            trace = trace.first(self.limit)
        outputs = trace.output_tokens
        if self.max_new_tokens > 0:
            outputs = np.minimum(outputs, self.max_new_tokens)
        return replace(trace, arrival_s=trace.arrival_s / self.time_scale, output_tokens=outputs)

    def declared_tokens(self, output_tokens: int) -> int:
        """The budget declared for a request that will generate `output_tokens`; 0: undeclared."""
        return output_tokens if self.max_new_tokens < 0 else self.max_new_tokens


@dataclass(frozen=True)
class Scenario:
    """The settings of a replay, in parts. Every setting's name is unique among them."""

    engine: Engine = field(default_factory=Engine)
    cost: CostModel = field(default_factory=CostModel)
    link: HostLink = field(default_factory=HostLink)
    load: Load = field(default_factory=Load)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page on either tier."""
        return self.link.kv_bytes_per_token * self.engine.prefix_granularity

    @classmethod
    def of(cls, values: dict[str, Any]) -> Scenario:
        """A scenario from settings by name; what is not named keeps its default."""
        parts: dict[str, dict[str, Any]] = {}
        for part, item in settings():
            if item.name in values:
                parts.setdefault(part, {})[item.name] = values[item.name]
        return cls(**{part: PARTS[part](**given) for part, given in parts.items()})

    def varied(self, name: str, text: str) -> Scenario:
        """This scenario with one setting read from `text`; `ValueError` if there is no such."""
        for part, item in settings():
            if item.name == name:
                changed = replace(getattr(self, part), **{name: parse_setting(item, text)})
                return replace(self, **{part: changed})
        known = ", ".join(item.name for _, item in settings())
        raise ValueError(f"there is no setting {name!r}; there are {known}")


PARTS: dict[str, type[Any]] = {
    "engine": Engine,
    "cost": CostModel,
    "link": HostLink,
    "load": Load,
}
"""A scenario's parts by name."""


def settings() -> Iterator[tuple[str, Field[Any]]]:
    """Every setting with the part that it belongs to."""
    for part, owner in PARTS.items():
        for item in fields(owner):
            yield part, item
