"""FlashInfer in place of torch's attention, on a GPU where it is installed.

It reads blocks where they lie, by block table, and takes prefills and decodes in one launch. Its
`plan` is made on the host from arrays that are known there: nothing waits for the device.
"""

from __future__ import annotations

import importlib
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from tokenspeed.models.batch import GroupBatch
from tokenspeed.runtime.runner import ForwardInput

_WORKSPACE_BYTES = 128 << 20
"""What FlashInfer's documentation advises."""

_DTYPES = (torch.float16, torch.bfloat16)
_HEAD_DIMS = (64, 128, 256)


@dataclass(frozen=True)
class Shape:
    """What a plan is made for, beside the batch."""

    heads: int
    kv_heads: int
    head_dim: int
    scaling: float
    softcap: float | None
    window: int | None
    dtype: torch.dtype


@dataclass(frozen=True)
class Pages:
    """A batch's keys, page by page, as `plan` takes them: arrays on the host but `indices`."""

    query_start: torch.Tensor
    """int32 [R + 1]."""
    page_start: torch.Tensor
    """int32 [R + 1]: pages of request i are `page_start[i]:page_start[i + 1]` of `indices`."""
    indices: torch.Tensor
    """int32, on the device: block ids."""
    last_page_tokens: torch.Tensor
    """int32 [R]: rows of each request's last page that count."""


def pages_of(batch: ForwardInput, table: torch.Tensor, tokens: int, window: int | None) -> Pages:
    """The blocks, of so many `tokens`, that a batch's queries look at; `table` is the group's, on
    the device. Blocks before a window are left out: their bytes mean nothing, and may be NaN."""
    ends = batch.seq_lens_host
    assert ends is not None, "a batch whose lengths the host does not know"
    queries = np.diff(batch.query_start_host)
    first = np.zeros_like(ends)
    if window is not None:
        first = np.maximum(ends - queries - window + 1, 0) // tokens
    counts = -(-ends // tokens) - first
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rows = np.repeat(np.arange(len(ends)), counts)
    slots = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, counts)
    flat = torch.from_numpy(rows * table.shape[1] + slots)
    if table.is_cuda:
        flat = flat.pin_memory().to(table.device, non_blocking=True)
    return Pages(
        torch.from_numpy(batch.query_start_host.copy()),
        torch.from_numpy(starts),
        table.reshape(-1).index_select(0, flat).int(),
        torch.from_numpy(((ends - 1) % tokens + 1).astype(np.int32)),
    )


class FlashAttention:
    """FlashInfer's wrappers, each used again only when the device is done with its last forward."""

    def __init__(self, flashinfer: Any, device: torch.device) -> None:
        """`flashinfer`: the module."""
        self._flashinfer = flashinfer
        self._workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._planned: list[Any] = []
        """Wrappers of the forward that is being launched."""
        self._sent: deque[tuple[Any, Any]] = deque()
        """Wrappers of forwards before it, with the event behind each."""

    def takes(self, shape: Shape, batch: ForwardInput) -> bool:
        """Whether it computes this; torch does what it does not."""
        known = shape.dtype in _DTYPES and shape.head_dim in _HEAD_DIMS
        return known and batch.seq_lens_host is not None

    def _plan(self, shape: Shape, pages: Pages, tokens: int) -> Any:
        wrapper = self._free_wrapper()
        wrapper.plan(
            pages.query_start,
            pages.page_start,
            pages.indices,
            pages.last_page_tokens,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            tokens,
            causal=True,
            sm_scale=shape.scaling,
            window_left=-1 if shape.window is None else shape.window - 1,
            logits_soft_cap=shape.softcap or 0.0,
            q_data_type=shape.dtype,
            kv_data_type=shape.dtype,
        )
        self._planned.append(wrapper)
        return wrapper

    def launched(self) -> None:
        """A forward is launched: the wrappers that were planned for it may have others, later."""
        if self._planned:
            event = self._mark()
            self._sent += [(wrapper, event) for wrapper in self._planned]
            self._planned = []

    def attend(
        self,
        shape: Shape,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        batch: GroupBatch,
    ) -> torch.Tensor:
        """`query` `[T, heads, head_dim]`; `keys` and `values` are the arena's, without a copy.
        Planned once for all layers of a shape in one group of one forward."""
        planned = batch.flash_plans.get(shape)
        if planned is None:
            tokens = keys.shape[1]
            pages = pages_of(batch.input, batch.table, tokens, shape.window)
            planned = batch.flash_plans[shape] = self._plan(shape, pages, tokens)
        out: torch.Tensor = planned.run(query.contiguous(), (keys, values))
        return out

    def _free_wrapper(self) -> Any:
        # Its plan lies in pinned memory of its own, which a copy in flight may still read.
        if self._sent and self._is_over(self._sent[0][1]):
            return self._sent.popleft()[0]
        return self._flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD")

    def _mark(self) -> Any:
        event = torch.cuda.Event()
        event.record()
        return event

    def _is_over(self, event: Any) -> bool:
        return bool(event.query())


def open_flash(device: torch.device) -> FlashAttention | None:
    """FlashInfer for a device, where it is installed and there is a GPU."""
    if device.type != "cuda" or find_spec("flashinfer") is None:
        return None
    return FlashAttention(importlib.import_module("flashinfer"), device)
