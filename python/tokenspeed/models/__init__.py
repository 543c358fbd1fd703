"""Decoders for the runtime: transformers' own model code over paged caches.

    model, tokenizer = load("path/to/checkpoint", dtype=torch.bfloat16)
    runner = TransformersRunner(model, page_tokens=16)

Needs the extra `models` (torch, transformers); nothing of it is imported by `tokenspeed` itself.
"""

from tokenspeed.models.errors import CheckpointError, ModelError, UnsupportedModelError
from tokenspeed.models.load import Loaded, load
from tokenspeed.models.runner import TransformersRunner

__all__ = [
    "CheckpointError",
    "Loaded",
    "ModelError",
    "TransformersRunner",
    "UnsupportedModelError",
    "load",
]
