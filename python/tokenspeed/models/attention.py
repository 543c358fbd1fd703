"""Attention over an arena's blocks, under the name that transformers' models call it by.

A model is built with `attn_implementation=PAGED`. Each of its attention modules then calls
`paged_attention` with the new tokens' queries, keys and values; where the earlier keys and values
lie is known to the module's `PagedLayer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface

from tokenspeed.models.batch import GroupBatch, Span
from tokenspeed.models.errors import UnsupportedModelError
from tokenspeed.models.flash import FlashAttention, Shape
from tokenspeed.runtime.arena import Arena

PAGED = "tokenspeed_paged"
"""The name in transformers' attention interface."""


class PagedLayer:
    """One layer's keys and values in an arena, and the batch under way."""

    def __init__(self, arena: Arena, layer: int) -> None:
        self.layer = layer
        self.keys: torch.Tensor = arena.tensor(layer, "k")
        """[blocks, block_tokens, heads, head_dim], as `values`; no copy."""
        self.values: torch.Tensor = arena.tensor(layer, "v")
        self.group_id = arena.layout.find(layer, "k")[0].group_id
        self.window: int | None = None
        self.flash: FlashAttention | None = None
        """In place of torch, where it takes the layer's shape."""
        self.batch: GroupBatch | None = None
        self.ready: Callable[[int], None] | None = None
        """`ForwardInput.layer_ready` of that batch."""

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: Rule
    ) -> torch.Tensor:
        """Writes the new rows, then lets each query look at its request's.

        `query` `[1, heads, T, head_dim]`, `key` and `value` `[1, kv_heads, T, ...]`; returns
        `[1, T, heads, value_dim]`.
        """
        batch, ready = self.batch, self.ready
        assert batch and ready, "a forward outside TransformersRunner.forward"
        ready(self.layer)
        place = batch.write_blocks, batch.write_rows
        self.keys.index_put_(place, key[0].transpose(0, 1))
        self.values.index_put_(place, value[0].transpose(0, 1))
        if self.flash is not None:
            shape = rule.shape(query, key, value, self.window)
            if shape is not None and self.flash.takes(shape, batch.input):
                rows = query[0].transpose(0, 1)
                return self.flash.attend(shape, rows, self.keys, self.values, batch)[None]
        pieces = [
            rule(_rows(query, span), _read(self.keys, span), _read(self.values, span), span)
            for span in batch.spans
        ]
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces))[None]


class Rule:
    """How scores are made, as a module asks for it."""

    def __init__(
        self, scaling: float, softcap: float | None = None, sinks: torch.Tensor | None = None
    ) -> None:
        self.scaling = scaling
        self.softcap = softcap
        self.sinks = sinks

    def shape(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None
    ) -> Shape | None:
        """What FlashInfer would plan for; None with sinks, or where keys and values are of
        different widths."""
        if self.sinks is not None or key.shape != value.shape:
            return None
        heads, kv_heads, dim = query.shape[1], key.shape[1], query.shape[3]
        return Shape(heads, kv_heads, dim, self.scaling, self.softcap, window, query.dtype)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, span: Span
    ) -> torch.Tensor:
        """`query` `[requests, heads, width, head_dim]`, the others `[requests, kv_heads, keys,
        ...]`; returns `[requests * width, heads, value_dim]`."""
        requests, heads, width, _ = query.shape
        groups = heads // key.shape[1]
        mask = span.mask
        if mask is None and (self.softcap or self.sinks is not None):
            hidden = torch.ones(width, width, dtype=torch.bool, device=query.device).triu(1)
            mask = torch.zeros_like(hidden, dtype=query.dtype).masked_fill(hidden, -torch.inf)
        if self.softcap or self.sinks is not None:
            out = self._plainly(query, key, value, mask, groups)
        elif width == 1:
            # The heads that share keys become queries of one head, so that no key is repeated.
            packed = query.view(requests, -1, groups, query.shape[-1])
            out = nn.functional.scaled_dot_product_attention(
                packed, key, value, attn_mask=mask, scale=self.scaling
            ).reshape(requests, heads, 1, -1)
        else:
            out = nn.functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                is_causal=mask is None,
                scale=self.scaling,
                enable_gqa=groups > 1,
            )
        return out.transpose(1, 2).flatten(0, 1)

    def _plainly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        groups: int,
    ) -> torch.Tensor:
        key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
        scores = query @ key.transpose(-1, -2) * self.scaling
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if mask is not None:
            scores = scores + mask
        if self.sinks is not None:
            sinks = self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
            scores = torch.cat([scores, sinks], dim=-1)
        weights = scores.softmax(dim=-1)[..., : key.shape[2]]
        return weights @ value


def _rows(query: torch.Tensor, span: Span) -> torch.Tensor:
    """The span's queries: `[requests, heads, width, head_dim]`."""
    rows = query[0, :, span.first : span.first + span.requests * span.width]
    return rows.unflatten(1, (span.requests, span.width)).transpose(0, 1)


def _read(cache: torch.Tensor, span: Span) -> torch.Tensor:
    """The rows of the span's blocks: `[requests, heads, num_keys, dim]`."""
    # Over two dimensions: a row of this view is one contiguous piece of a block, copied whole.
    flat = cache.as_strided(
        (cache.shape[0], cache[0].numel()), (cache.stride(0), 1), cache.storage_offset()
    )
    rows = flat.index_select(0, span.blocks).view(span.requests, -1, *cache.shape[2:])
    return rows[:, : span.num_keys].transpose(1, 2)


def paged_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers' attention modules call. Raises `UnsupportedModelError` for a module that
    asks for more than causal attention over its own keys and values."""
    paged = getattr(module, "paged", None)
    name = type(module).__name__
    if not isinstance(paged, PagedLayer):
        raise UnsupportedModelError(f"{name} attends, and its layer keeps no keys and values")
    if is_causal is False or not getattr(module, "is_causal", True) or position_bias is not None:
        raise UnsupportedModelError(f"{name}: only causal attention without a bias is supported")
    if sliding_window is not None and sliding_window != paged.window:
        raise UnsupportedModelError(
            f"{name}: a window of {sliding_window} tokens, in a cache of {paged.window}"
        )
    rule = Rule(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap, s_aux)
    return paged.attend(query, key, value, rule), None


AttentionInterface.register(PAGED, paged_attention)
