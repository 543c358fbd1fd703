"""transformers' own decoders as the runtime's `ModelRunner`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from tokenspeed.models.attention import PAGED, PagedLayer
from tokenspeed.models.batch import BatchTensors, group_batch
from tokenspeed.models.errors import UnsupportedModelError
from tokenspeed.models.flash import FlashAttention, open_flash
from tokenspeed.models.inspection import layer_caches
from tokenspeed.models.state import StateLayer
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.recipe import Recipe
from tokenspeed.runtime.runner import ForwardInput, ForwardOutput


class TransformersRunner:
    """A causal language model of transformers with its caches in an arena.

    The model's own code runs: embeddings, projections, rotary positions, experts, norms and head
    are transformers'. Attention and recurrent state alone are redirected to the arena's blocks.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        page_tokens: int = 16,
        flash: FlashAttention | None = None,
    ) -> None:
        """`model` is for this runner from now on; `page_tokens` is the prefix granularity;
        `flash` computes attention where it can, by default where FlashInfer is installed.

        Raises `UnsupportedModelError` for a model whose layers keep something that there is no
        cache group for.
        """
        self.model = model.eval()
        self._dtype = model.dtype
        self._recipe = Recipe(layer_caches(model), page_tokens)
        self._flash = flash or open_flash(model.device)
        self._attention: list[PagedLayer] = []
        self._state: list[StateLayer] = []

    def recipe(self) -> Recipe:
        """One group for each kind and window of the model's layers."""
        return self._recipe

    def bind(self, arena: Arena, device: Device) -> None:
        """Redirects the model's attention and state to `arena`."""
        if self._attention or self._state:
            raise UnsupportedModelError("the model is bound to an arena already")
        self.model.set_attn_implementation(PAGED)
        for layer, caches in enumerate(self._recipe.layers):
            for cache in caches:
                if cache.kind == "state":
                    self._bind_state(arena, layer, list(cache.fields))
                else:
                    self._bind_attention(arena, layer, cache.window_tokens)

    def _bind_attention(self, arena: Arena, layer: int, window: int | None) -> None:
        paged = PagedLayer(arena, layer)
        paged.window, paged.flash = window, self._flash
        for module in self._of_layer(layer):
            module.paged = paged
        self._attention.append(paged)

    def _bind_state(self, arena: Arena, layer: int, names: list[str]) -> None:
        mixers = [module for module in self._of_layer(layer) if hasattr(module, "conv1d")]
        mixers = mixers or [module for module in self._of_layer(layer) if hasattr(module, "conv")]
        if len(mixers) != 1:
            raise UnsupportedModelError(f"layer {layer}: no mixer found that keeps its state")
        state = StateLayer(arena, layer, names, mixers[0])
        state.block_tokens = self._recipe.block_tokens(state.group_id)
        mixers[0].forward = state
        self._state.append(state)

    def _of_layer(self, layer: int) -> list[nn.Module]:
        return [one for one in self.model.modules() if getattr(one, "layer_idx", None) == layer]

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        """Computes a batch; logits come as the model's dtype has them."""
        tensors = BatchTensors(batch, self.model.device)
        with torch.inference_mode(), self._during(tensors):
            out = self.model(
                input_ids=tensors.input_ids[None].long(),
                position_ids=tensors.positions[None],
                use_cache=False,
                logits_to_keep=tensors.logit_tokens,
            )
        return ForwardOutput(out.logits[0])

    @contextmanager
    def _during(self, tensors: BatchTensors) -> Iterator[None]:
        """Lays the batch out for the layers."""
        groups = {
            group_id: group_batch(tensors, self._recipe, group_id, self._dtype)
            for group_id in {layer.group_id for layer in self._attention}
        }
        for paged in self._attention:
            paged.batch = groups[paged.group_id]
            paged.ready = tensors.input.layer_ready
        for state in self._state:
            state.batch = tensors
        try:
            yield
        finally:
            if self._flash is not None:
                self._flash.launched()
            for paged in self._attention:
                paged.batch = None
            if tensors.input.width == 1:  # else `accepted` comes
                for state in self._state:
                    state.batch = None

    def accepted(self, batch: ForwardInput, counts: Any) -> None:
        """Settles the state layers on the tokens that verification kept."""
        if not batch.num_decodes:
            return
        kept = torch.as_tensor(counts, device=self.model.device)[batch.num_extends :].long()
        with torch.inference_mode():
            for state in self._state:
                state.settle(kept)
