"""A round as the control side hands it over: frozen arrays, nothing of the scheduler's own state.

Whatever the forward thread needs to know of a plan is here. R requests, E of them prefills, D
decodes; T tokens of input, L rows of logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.remote import RemoteBlocks
from tokenspeed.scheduler import Cache, ExecutionPlan

Int32Array: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True)
class BlockCopies:
    """One operation of a plan between the tiers, acknowledged as one."""

    op_id: int
    is_store: bool
    """Device to Host; else Host to Device."""
    source_pinned: bool
    """Of a store: whether its sources stay as they are until the acknowledgement."""
    blocks: Mapping[str, tuple[Int32Array, Int32Array]]
    """Group id -> block ids to copy from and to copy to."""

    @property
    def num_blocks(self) -> int:
        return sum(len(sources) for sources, _ in self.blocks.values())


@dataclass(frozen=True)
class ToldRows:
    """Rows whose newest token the device cannot know: it came from elsewhere."""

    rows: Int32Array
    lengths: Int32Array
    """Tokens of the request, the newest included."""
    tokens: Int32Array
    """The newest."""
    drafts: Int32Array
    """[rows, width - 1]."""


@dataclass(frozen=True)
class RoundBatch:
    """The batch of a round; see `runner.ForwardInput`, which it becomes."""

    request_ids: tuple[str, ...]
    handles: NDArray[np.uint64]
    sampling: tuple[object, ...]
    num_extends: int
    width: int
    rows: Int32Array
    query_start: Int32Array
    prefill_ids: Int32Array
    """The prefills' input, one after the other."""
    prefill_lengths: Int32Array
    """[E]: tokens of each whole prompt."""
    extend_prefix_lens: Int32Array
    extend_replay_lens: Int32Array
    checkpoints: Int32Array
    completes: NDArray[np.bool_]
    seq_lens_max: int
    seq_lens: Int32Array | None
    told: ToldRows | None = None
    histories: Mapping[int, Int32Array] = field(default_factory=dict)
    """Row -> all tokens of a request whose prompt completes here, or whose newest token was sampled
    elsewhere, where a drafter reads them."""

    @property
    def num_requests(self) -> int:
        return len(self.request_ids)

    def logit_tokens(self) -> Int32Array:
        """[L]: the input tokens whose logits are wanted."""
        ends = self.query_start[1 : self.num_extends + 1] - 1
        decodes = np.arange(self.query_start[self.num_extends], self.query_start[-1])
        return np.concatenate([ends[self.completes], decodes]).astype(np.int32)

    def logit_requests(self) -> Int32Array:
        """[L]: the request that each row of logits is of."""
        decodes = np.repeat(np.arange(self.num_extends, self.num_requests), self.width)
        return np.concatenate([np.flatnonzero(self.completes), decodes]).astype(np.int32)


@dataclass(frozen=True)
class Round:
    """One plan, in the order in which it is carried out."""

    number: int
    ordered_stores: tuple[BlockCopies, ...]
    """Stores whose sources this very plan gives away: ahead of everything else."""
    pinned_stores: tuple[BlockCopies, ...]
    zero: Mapping[str, Int32Array]
    """Group id -> blocks to zero."""
    loads: tuple[BlockCopies, ...]
    changed_cells: Mapping[str, Int32Array]
    """Group id -> [cells, 3]: row, slot, block."""
    remote: tuple[RemoteBlocks, ...]
    """Requests whose blocks the transfer to the peer may touch from here on."""
    batch: RoundBatch | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all to do."""
        copies = self.ordered_stores or self.pinned_stores or self.loads or self.remote
        return not (copies or self.zero or self.changed_cells or self.batch)


def copies_of(plan: ExecutionPlan, group_ids: list[str]) -> list[BlockCopies]:
    """A plan's stores and loads, an entry an operation."""
    copies = []
    for op in plan.cache:
        is_store = isinstance(op, Cache.WriteBackOp)
        pinned = op.source_pinned if isinstance(op, Cache.WriteBackOp) else [True] * len(op.op_ids)
        for op_id, groups, sources, targets, source_pinned in zip(
            op.op_ids, op.group_ids, op.src_pages, op.dst_pages, pinned
        ):
            blocks = _by_group(groups, sources, targets, group_ids)
            copies.append(BlockCopies(op_id, is_store, source_pinned, blocks))
    return copies


def _by_group(
    groups: Iterable[int], sources: Iterable[int], targets: Iterable[int], group_ids: list[str]
) -> dict[str, tuple[Int32Array, Int32Array]]:
    group, source, target = (
        np.array(list(column), dtype=np.int32) for column in (groups, sources, targets)
    )
    return {
        group_ids[at]: (source[group == at], target[group == at])
        for at in np.unique(group).tolist()
    }


def freeze(
    number: int,
    plan: ExecutionPlan,
    group_ids: list[str],
    batch: RoundBatch | None,
    remote: tuple[RemoteBlocks, ...] = (),
) -> Round:
    """A plan as the forward thread takes it; `group_ids` in the configuration's order."""
    copies = copies_of(plan, group_ids)
    stores = [copy for copy in copies if copy.is_store]
    return Round(
        number,
        ordered_stores=tuple(copy for copy in stores if not copy.source_pinned),
        pinned_stores=tuple(copy for copy in stores if copy.source_pinned),
        zero=plan.pages_to_zero_arrays(),
        loads=tuple(copy for copy in copies if not copy.is_store),
        changed_cells=plan.changed_cells,
        remote=remote,
        batch=batch,
    )
