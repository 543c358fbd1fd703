"""A batch as attention reads it: for each group, where new rows go and which blocks are looked at.

Made once a forward and shared by all layers of a group, on the device, without asking it anything:
what the host does not know (how long a request has become) stays in arithmetic on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tokenspeed.runtime.recipe import Recipe
from tokenspeed.runtime.runner import ForwardInput


@dataclass(frozen=True)
class Span:
    """The keys that the queries of some requests of equal width look at."""

    first: int
    """Its first input token; the queries are `first:first + requests * width`."""
    requests: int
    width: int
    blocks: torch.Tensor
    """int64 [requests * columns]: block ids, request after request."""
    num_keys: int
    """A request's keys: the rows of its blocks, up to this many."""
    mask: torch.Tensor | None
    """Added to the scores, `[requests, 1, width, num_keys]`; None: causal over equal lengths."""


@dataclass(frozen=True)
class GroupBatch:
    """A batch in one cache group."""

    write_blocks: torch.Tensor
    """int64 [T]: the block of each input token's row; 0 where none is to be written."""
    write_rows: torch.Tensor
    """int64 [T]: the row inside that block."""
    spans: tuple[Span, ...]
    """Prefills one by one, then all decodes together."""
    input: ForwardInput
    table: torch.Tensor
    """int32 [R, columns], of this group."""
    flash_plans: dict[Any, Any] = field(default_factory=dict)
    """By shape, of this forward."""


class BatchTensors:
    """The arrays of a `ForwardInput` as torch tensors on the model's device."""

    def __init__(self, batch: ForwardInput, device: torch.device) -> None:
        self.input = batch
        self.device = device
        self.input_ids = self._on_device(batch.input_ids)
        self.positions = self._on_device(batch.positions).long()
        self.seq_lens = self._on_device(batch.seq_lens).long()
        self.logit_tokens = self._on_device(batch.logit_tokens).long()
        starts = self._on_device(batch.query_start)
        places = torch.arange(len(self.positions), dtype=starts.dtype, device=device)
        self.request_of = torch.searchsorted(starts[1:], places, right=True)
        """int64 [T]: the request of each input token, by its place in the batch."""

    def _on_device(self, array: object) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)

    def table(self, group_id: str) -> torch.Tensor:
        """int32 [R, columns]."""
        return self._on_device(self.input.block_tables[group_id])


def group_batch(
    tensors: BatchTensors, recipe: Recipe, group_id: str, dtype: torch.dtype
) -> GroupBatch:
    """The batch in a group of keys and values; masks are of `dtype`."""
    batch, table = tensors.input, tensors.table(group_id)
    block_tokens, window = recipe.block_tokens(group_id), recipe.window_tokens(group_id)
    slots = tensors.positions.div(block_tokens, rounding_mode="floor")
    blocks = table[tensors.request_of, slots].long()
    if recipe.kind(group_id) != "replay":
        for at, replayed in enumerate(batch.extend_replay_lens.tolist()):
            first = int(batch.query_start_host[at])
            blocks[first : first + replayed] = 0
    spans = [
        _prefill(tensors, at, table[at], block_tokens, window, dtype)
        for at in range(batch.num_extends)
    ]
    if batch.num_decodes:
        spans.append(_decodes(tensors, table[batch.num_extends :], block_tokens, window, dtype))
    return GroupBatch(blocks, tensors.positions % block_tokens, tuple(spans), batch, table)


def _prefill(
    tensors: BatchTensors,
    at: int,
    table: torch.Tensor,
    block_tokens: int,
    window: int | None,
    dtype: torch.dtype,
) -> Span:
    batch = tensors.input
    first = int(batch.query_start_host[at])
    width = int(batch.query_start_host[at + 1]) - first
    begin = int(batch.extend_prefix_lens[at])
    end = begin + width
    slot = 0 if window is None else max(0, begin - window + 1) // block_tokens
    blocks = table[slot : -(-end // block_tokens)].long()
    seen = end - slot * block_tokens
    mask = None
    if seen > width or (window is not None and width > window):
        queries = tensors.positions[first : first + width]
        keys = torch.arange(slot * block_tokens, end, device=tensors.device)
        mask = _mask(queries[None], keys[None], window, dtype)
    return Span(first, 1, width, blocks, seen, mask)


def _decodes(
    tensors: BatchTensors,
    table: torch.Tensor,
    block_tokens: int,
    window: int | None,
    dtype: torch.dtype,
) -> Span:
    batch = tensors.input
    first, width = int(batch.query_start_host[batch.num_extends]), batch.width
    queries = tensors.positions[first:].view(batch.num_decodes, width)
    if window is None:
        columns = -(-batch.seq_lens_max // block_tokens)
        slot = torch.zeros_like(queries[:, 0])
    else:
        columns = -(-(window - 1 + width) // block_tokens) + 1
        slot = (queries[:, 0] - window + 1).clamp(min=0) // block_tokens
    columns = min(columns, table.shape[1])
    slots = slot[:, None] + torch.arange(columns, device=tensors.device)
    # Past its end a request looks at its own last block again, masked: the null block's bytes mean
    # nothing and may be NaN, which no mask would keep out of a sum.
    last = queries[:, -1:] // block_tokens
    blocks = table.gather(1, torch.minimum(slots, last)).long()
    keys = slots[:, :, None] * block_tokens + torch.arange(block_tokens, device=tensors.device)
    mask = _mask(queries, keys.flatten(1), window, dtype)
    return Span(first, batch.num_decodes, width, blocks.flatten(), columns * block_tokens, mask)


def _mask(
    queries: torch.Tensor, keys: torch.Tensor, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """`[requests, 1, width, keys]`: 0 where the query may look at the key, else minus infinity,
    for positions `[requests, width]` and `[requests, keys]`."""
    behind = queries[:, :, None] - keys[:, None, :]
    hidden = behind < 0
    if window is not None:
        hidden |= behind >= window
    mask = torch.zeros(behind.shape, dtype=dtype, device=queries.device)
    return mask.masked_fill_(hidden, -torch.inf)[:, None]
