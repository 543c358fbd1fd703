"""Small random models of several families, and glassllm."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import torch
from tokenspeed.models.load import load
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCABULARY = 97
WINDOW = 6

_ATTENTION: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
_SLIDING = ["sliding_attention", "sliding_attention", "full_attention"]

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {"sliding_window": WINDOW, "query_pre_attn_scalar": 8},
    "gemma3_text": {
        "sliding_window": WINDOW,
        "layer_types": _SLIDING,
        "query_pre_attn_scalar": 8,
    },
    "gpt_oss": {
        "sliding_window": WINDOW,
        "layer_types": _SLIDING,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "falcon_h1": {
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
    },
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "mamba2": {
        "expand": 2,
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
}
"""Architecture -> what its configuration says beyond `_ATTENTION`."""


def tiny(family: str) -> PreTrainedModel:
    """A model of one's own in float64: a random one of a family, always the same, or glassllm,
    which is trained."""
    return deepcopy(plain(family))


@cache
def plain(family: str) -> PreTrainedModel:
    """The one that nobody changes."""
    dtype = torch.float64
    if family == "glassllm":
        return load("glassllm", dtype).model
    given = _ATTENTION | FAMILIES[family]
    if family == "mamba2":
        del given["head_dim"], given["num_attention_heads"]
        given |= FAMILIES[family]
    torch.manual_seed(sum(family.encode()))
    config = AutoConfig.for_model(family, **given)
    # Grouped matrix products over experts know no float64.
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager")
    return model.to(dtype).eval()
