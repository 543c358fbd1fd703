"""From a model's layers to cache groups, arena layout and pool size (runtime.md, "Memory").

kv = {"k": Field((8, 64), "bfloat16"), "v": Field((8, 64), "bfloat16")}
recipe = Recipe([LayerCache("full", kv)] * 32, page_tokens=64)
pages = recipe.pages_for(requests=16, tokens=4096, max_scheduled_tokens=2048)
config = recipe.scheduler_config(
    num_device_pages=pages, max_scheduled_tokens=2048, max_batch_size=16
)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenspeed.runtime.errors import RecipeError
from tokenspeed.runtime.layout import (
    ALIGNMENT_BYTES,
    DTYPE_BYTES,
    ArenaLayout,
    FieldPlace,
    GroupLayout,
    LayerPlace,
    aligned,
)
from tokenspeed.scheduler import (
    CacheGroupConfig,
    CacheGroupFamily,
    CacheRetention,
    CacheTransferPolicy,
    CapacityModel,
    SchedulerConfig,
)

Kind = Literal["full", "sliding", "state", "replay"]

_LARGEST_BLOCKS_PER_PARENT_MAX = 8
_WASTE_ENOUGH = 0.03
"""Share of a parent lost to padding below which a smaller parent is preferred to a tighter one."""


@dataclass(frozen=True)
class Field:
    """One array that a layer keeps: of one token, or of one snapshot in a state layer."""

    shape: tuple[int, ...]
    dtype: str
    """Named as by torch: `float16`, `bfloat16`, `float64`, ... (`layout.DTYPE_BYTES`)."""


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps in one group. A layer with both attention and a state has two of these,
    with different field names."""

    kind: Kind
    fields: Mapping[str, Field]
    window_tokens: int | None = None
    """Of a sliding or replay layer: the tokens that a query sees, its own included."""
    block_tokens: int | None = None
    """Tokens that one block covers, a divisor of the page; None: a whole page."""


@dataclass(frozen=True)
class _Group:
    """Layers that share a group."""

    kind: Kind
    window_tokens: int | None
    block_tokens: int
    members: list[tuple[int, LayerCache]] = field(default_factory=list)

    @property
    def group_id(self) -> str:
        return self.kind if self.window_tokens is None else f"{self.kind}-{self.window_tokens}"


class Recipe:
    """A model's caches, declared once. Raises `RecipeError` with the layer at fault."""

    def __init__(
        self, layers: Sequence[LayerCache | Sequence[LayerCache]], page_tokens: int
    ) -> None:
        """`layers`: each model layer's cache, or caches, in model order; an empty sequence for a
        layer that keeps nothing. `page_tokens`: the prefix granularity."""
        self.layers = [[one] if isinstance(one, LayerCache) else list(one) for one in layers]
        self.page_tokens = page_tokens
        self._groups = self._grouped()
        self.layout = self._laid_out()

    def _grouped(self) -> list[_Group]:
        groups: dict[tuple[Kind, int | None], _Group] = {}
        for layer, caches in enumerate(self.layers):
            names: set[str] = set()
            for cache in caches:
                self._check(layer, cache, names)
                names |= set(cache.fields)
                tokens = cache.block_tokens or self.page_tokens
                key = cache.kind, cache.window_tokens
                group = groups.setdefault(key, _Group(cache.kind, cache.window_tokens, tokens))
                if group.block_tokens != tokens:
                    raise RecipeError(
                        f"layer {layer}: blocks of {tokens} tokens in group {group.group_id}, "
                        f"whose other layers have {group.block_tokens}"
                    )
                group.members.append((layer, cache))
        if not groups:
            raise RecipeError("no layer keeps anything")
        return list(groups.values())

    def _check(self, layer: int, cache: LayerCache, names: set[str]) -> None:
        windowed = cache.kind in ("sliding", "replay")
        if windowed != (cache.window_tokens is not None):
            raise RecipeError(f"layer {layer}: window_tokens goes with sliding and replay layers")
        if self.page_tokens % (cache.block_tokens or self.page_tokens):
            raise RecipeError(
                f"layer {layer}: block_tokens {cache.block_tokens} is no divisor of the page's "
                f"{self.page_tokens}"
            )
        if not cache.fields or names & set(cache.fields):
            raise RecipeError(f"layer {layer}: needs fields, each of its own name")
        for name, one in cache.fields.items():
            if one.dtype not in DTYPE_BYTES:
                raise RecipeError(f"layer {layer}: field {name} has unknown dtype {one.dtype}")

    def _laid_out(self) -> ArenaLayout:
        parts = [self._parts(group) for group in self._groups]
        payloads = [max(p.offset_bytes + p.nbytes for p in part.values()) for part in parts]
        parent_bytes, counts = _cut(payloads)
        groups = {
            group.group_id: GroupLayout(group.group_id, count, parent_bytes // count, payload, part)
            for group, part, payload, count in zip(self._groups, parts, payloads, counts)
        }
        return ArenaLayout(parent_bytes, groups)

    def _parts(self, group: _Group) -> dict[int, LayerPlace]:
        """The layers' parts of a block, one after the other."""
        parts: dict[int, LayerPlace] = {}
        at = 0
        for layer, cache in group.members:
            first, fields = at, {}
            for name, one in cache.fields.items():
                shape = one.shape if group.kind == "state" else (group.block_tokens, *one.shape)
                fields[name] = FieldPlace(at, shape, one.dtype)
                at = aligned(at + fields[name].nbytes)
            parts[layer] = LayerPlace(layer, first, at - first, fields)
        return parts

    def window_tokens(self, group_id: str) -> int | None:
        """The window of a sliding or replay group; None for others. Raises KeyError."""
        return self._group(group_id).window_tokens

    def block_tokens(self, group_id: str) -> int:
        """Tokens that one block of a group covers. Raises KeyError."""
        return self._group(group_id).block_tokens

    def kind(self, group_id: str) -> Kind:
        """What a group keeps. Raises KeyError."""
        return self._group(group_id).kind

    def _group(self, group_id: str) -> _Group:
        return {group.group_id: group for group in self._groups}[group_id]

    @property
    def group_ids(self) -> list[str]:
        """In the order of the first layer that is in them; the configuration's order."""
        return [group.group_id for group in self._groups]

    def groups(self, num_device_pages: int = 1) -> list[CacheGroupConfig]:
        """The scheduler's groups for a pool of so many parents, the null parent included."""
        configs = []
        for group in self._groups:
            state = group.kind == "state"
            configs.append(
                CacheGroupConfig(
                    group.group_id,
                    group.block_tokens,
                    self.layout.num_blocks(group.group_id, num_device_pages),
                    retention=CacheRetention.FullHistory
                    if group.window_tokens is None
                    else CacheRetention.SlidingWindow,
                    sliding_window_tokens=group.window_tokens,
                    family=CacheGroupFamily.State if state else CacheGroupFamily.History,
                    cache_blocks_per_lcm_block=self.layout.groups[group.group_id].blocks_per_parent,
                    transfer_policy=CacheTransferPolicy.LatestSnapshot
                    if state
                    else CacheTransferPolicy.FullSuffix,
                    replayable=group.kind == "replay",
                )
            )
        return configs

    def scheduler_config(
        self, *, num_device_pages: int, num_host_pages: int = 0, **settings: Any
    ) -> SchedulerConfig:
        """The scheduler's configuration: parents, the null ones included, and any other property
        of `SchedulerConfig` by its name."""
        return SchedulerConfig(
            prefix_granularity=self.page_tokens,
            num_device_pages=num_device_pages,
            num_host_pages=num_host_pages,
            cache_groups=self.groups(num_device_pages),
            **settings,
        )

    def pages_for(self, requests: int, tokens: int, **settings: Any) -> int:
        """Parents, the null one included, with which so many requests of so many tokens each,
        output included, run side by side (scheduler.md §1.4). `settings` as in
        `scheduler_config`, without `max_batch_size`."""
        config = self.scheduler_config(num_device_pages=1, max_batch_size=requests, **settings)
        model = CapacityModel(config)
        return 1 + model.lcm_blocks_needed_for(
            model.concurrent_group_pages(requests * tokens, tokens)
        )


def _cut(payloads: Sequence[int]) -> tuple[int, list[int]]:
    """Parent bytes, and each group's blocks a parent, for blocks of these bytes: the smallest
    parent that loses little to padding, or else the one that loses least."""
    best: tuple[float, int, list[int]] | None = None
    for largest_count in range(1, _LARGEST_BLOCKS_PER_PARENT_MAX + 1):
        room = max(payloads) * largest_count
        counts = [room // payload for payload in payloads]
        # Every group's stride has to be a whole number of aligned bytes.
        parent = aligned(room, math.lcm(*counts) * ALIGNMENT_BYTES)
        used = min(count * payload for count, payload in zip(counts, payloads))
        waste = 1 - used / parent
        if best is None or waste < best[0]:
            best = waste, parent, counts
        if waste <= _WASTE_ENOUGH:
            break
    assert best is not None
    return best[1], best[2]
