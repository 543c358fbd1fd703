"""What each layer of a model keeps between tokens, as `runtime.recipe` takes it.

Nothing is read off a configuration's many spellings: one forward with transformers' own cache shows
the arrays that each layer puts there, and transformers says which layers have a window.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import (
    DummyLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from tokenspeed.models.errors import UnsupportedModelError
from tokenspeed.runtime.recipe import Field, Kind, LayerCache

ROPE_BY_LENGTH = ("dynamic", "longrope")
"""Rotary embeddings whose angles depend on the longest sequence of the batch."""

_KNOWN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionCacheLayerMixin)


def layer_caches(model: PreTrainedModel) -> list[list[LayerCache]]:
    """Each layer's caches, in model order: none, one, or a state beside an attention's keys and
    values. Raises `UnsupportedModelError`."""
    config = model.config.get_text_config(decoder=True)
    _refuse(config)
    cache = DynamicCache(config=config)
    tokens = torch.tensor([[1, 2]], device=model.device)
    with torch.inference_mode():
        model(input_ids=tokens, cache=cache, use_cache=True)
    return [_of_layer(at, layer) for at, layer in enumerate(cache.layers)]


def _refuse(config: Any) -> None:
    name = type(config).__name__
    ropes = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in ropes.values() if isinstance(value, dict)]
    for rope in nested or [ropes]:
        kind = rope.get("rope_type", rope.get("type"))
        if kind in ROPE_BY_LENGTH:
            raise UnsupportedModelError(
                f"{name}: rope_type {kind!r} makes a request's angles depend on whom it is batched "
                "with"
            )
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        raise UnsupportedModelError(f"{name}: chunked attention has no cache group")
    if getattr(config, "num_kv_shared_layers", 0):
        raise UnsupportedModelError(f"{name}: layers that share keys and values are not supported")


def _of_layer(at: int, layer: Any) -> list[LayerCache]:
    if isinstance(layer, DummyLayer):
        return []
    # A subclass that keeps more than its parents (an index, say) is not one of those known.
    kept = {kind for kind in type(layer).__mro__ if kind.__module__ == DynamicCache.__module__}
    if not isinstance(layer, _KNOWN_LAYERS) or any("Index" in kind.__name__ for kind in kept):
        raise UnsupportedModelError(f"layer {at}: {type(layer).__name__} has no cache group")
    caches = []
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        states = {"conv": layer.conv_states, "recurrent": layer.recurrent_states}
        fields = {
            f"{name}{index}": _field(state.shape[1:], state)
            for name, tensors in states.items()
            for index, state in tensors.items()
            if state is not None
        }
        if fields:
            caches.append(LayerCache("state", fields))
    keys = getattr(layer, "keys", None)
    if keys is not None and keys.numel():
        fields = {
            "k": _field((keys.shape[1], keys.shape[3]), keys),
            "v": _field((layer.values.shape[1], layer.values.shape[3]), layer.values),
        }
        window = getattr(layer, "sliding_window", None)
        kind: Kind = "full" if window is None else "sliding"
        caches.append(LayerCache(kind, fields, window_tokens=window))
    return caches


def _field(shape: Any, tensor: torch.Tensor) -> Field:
    return Field(tuple(shape), str(tensor.dtype).removeprefix("torch."))
