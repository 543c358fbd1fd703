"""The bytes that belong under each cache key, computed from the request alone, and who compares
them with what lies in the tiers when a copy is over."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.cpu import CpuDevice
from tokenspeed.runtime.rounds import BlockCopies
from tokenspeed.runtime.simulated import SimulatedDevice
from tokenspeed.scheduler import Cache, ExecutionPlan, Scheduler

from .toy import Story, Toy

Key = tuple[str, str, int]
"""Group, content hash of the prefix page, ordinal of the block in the page."""


class WrongBytes(AssertionError):
    """A block that holds something else than its key says."""


class _Watched:
    """A device that remembers its arenas' buffers."""

    on_device: NDArray[np.uint8] | None = None
    on_host: NDArray[np.uint8] | None = None

    def alloc_device(self, nbytes: int) -> NDArray[np.uint8]:
        self.on_device = super().alloc_device(nbytes)  # type: ignore[misc]
        return self.on_device

    def alloc_host(self, nbytes: int) -> NDArray[np.uint8]:
        self.on_host = super().alloc_host(nbytes)  # type: ignore[misc]
        return self.on_host


class WatchedDevice(_Watched, SimulatedDevice):
    """The simulated device."""


class WatchedCpu(_Watched, CpuDevice):
    """The device `cpu`, whose seed and pace are nobody's."""

    def __init__(self, *_: Any) -> None:
        super().__init__()


class Checksums:
    """Looks at every block that a copy has brought, before the scheduler is told."""

    def __init__(self, toy: Toy, stories: dict[str, Story], device: Any) -> None:
        """`device`: one that remembers its arenas' buffers."""
        self._toy = toy
        self._stories = stories
        self._device = device
        self._pages: dict[str, tuple[Story, int]] = {}
        self._stored: dict[int, list[tuple[str, int, Key]]] = {}
        """Operation -> group, Host block and key of each block that it stores."""
        self._host_keys: dict[tuple[str, int], Key] = {}
        self.stores = self.loads = 0
        """Blocks compared."""

    def know(self, scheduler: Scheduler) -> None:
        """Learns the content hash of every page of every request."""
        for story in self._stories.values():
            for page, content in enumerate(scheduler.prefix_hashes_for_tokens(story.tokens)):
                self._pages[content] = story, page

    def planned(self, plan: ExecutionPlan) -> None:
        """Notes the keys of a plan's stores."""
        group_ids = self._toy.recipe().group_ids
        for op in plan.cache:
            if isinstance(op, Cache.WriteBackOp):
                for op_id, groups, targets, hashes, ordinals in zip(
                    op.op_ids, op.group_ids, op.dst_pages, op.content_hashes, op.page_offsets
                ):
                    self._stored[op_id] = [
                        (group_ids[group], target, (group_ids[group], content, ordinal))
                        for group, target, content, ordinal in zip(
                            groups, targets, hashes, ordinals
                        )
                    ]

    def acknowledged(self, copies: BlockCopies) -> None:
        """Compares what an operation brought. Raises `WrongBytes`."""
        device: Any = self._device
        if copies.is_store:
            for group_id, block, key in self._stored.pop(copies.op_id):
                self._host_keys[group_id, block] = key
                self._compare(device.on_host, group_id, block, key, "stored")
                self.stores += 1
            return
        for group_id, (sources, targets) in copies.blocks.items():
            for source, target in zip(sources.tolist(), targets.tolist()):
                key = self._host_keys[group_id, source]
                self._compare(device.on_device, group_id, target, key, "loaded")
                self.loads += 1

    def _compare(
        self, buffer: NDArray[np.uint8], group_id: str, block: int, key: Key, what: str
    ) -> None:
        recipe = self._toy.recipe()
        arena = Arena(recipe.layout, buffer.nbytes // recipe.layout.parent_bytes, buffer)
        story, page = self._pages[key[1]]
        tokens = recipe.block_tokens(group_id)
        first = page * recipe.page_tokens + key[2] * tokens
        for layer in recipe.layout.groups[group_id].layers:
            rows = arena.view(layer, "rows")[block]
            kept = story.kept[layer][first : first + tokens]
            expected = np.array(kept, dtype=np.uint64)[:, None]
            if recipe.kind(group_id) == "state":
                expected = expected[-1]
            if not (rows == expected).all():
                raise WrongBytes(
                    f"{what} block {block} of group {group_id}, layer {layer}, page {page} holds "
                    f"{rows.tolist()} instead of {expected.tolist()}"
                )


class WatchedScheduler:
    """A scheduler whose plans are looked at on their way."""

    def __init__(self, scheduler: Scheduler, checks: Checksums) -> None:
        self._scheduler = scheduler
        self._checks = checks
        self.retractions = self.ordered_stores = self.hit_tokens = 0
        checks.know(scheduler)

    def next_execution_plan(self) -> ExecutionPlan:
        plan = self._scheduler.next_execution_plan()
        self._checks.planned(plan)
        self.retractions += plan.num_retractions
        for op in plan.cache:
            if isinstance(op, Cache.WriteBackOp):
                self.ordered_stores += sum(not pinned for pinned in op.source_pinned)
        if plan.batch is not None:
            self.hit_tokens += int(plan.batch.device_hit_tokens_array.sum())
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)
