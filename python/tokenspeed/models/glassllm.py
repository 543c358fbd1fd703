"""The PyPI package glassllm, 852,608 parameters: a Llama in all but the names of its weights.

Small enough for every test run. Its own NumPy code is a second, independent implementation of the
same model, which `tests/models` compares with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tokenspeed.models.errors import CheckpointError

BOS, EOS = 2, 3
"""Token ids of `<bos>` and `<eos>`; the model was trained on running text and emits neither."""


def load_glassllm(
    language: str, dtype: torch.dtype, max_tokens: int = 1024
) -> tuple[LlamaForCausalLM, GlassTokenizer]:
    """The model of `language` (`"en"` or `"pt"`) in transformers' own Llama, and its tokenizer.

    `max_tokens` bounds a request. The model was trained on 128; its rotary positions go on.
    """
    try:
        import glassllm
    except ModuleNotFoundError:
        raise CheckpointError("glassllm is not installed: pip install glassllm") from None
    try:
        source, tokenizer = glassllm.load_pretrained(language)
    except (ValueError, FileNotFoundError) as error:
        raise CheckpointError(f"glassllm: {error}") from None
    config = _llama_config(source.cfg, max_tokens)
    weights = {
        name: torch.from_numpy(np.ascontiguousarray(array)).to(dtype)
        for name, array in _as_llama(source, config.head_dim).items()
    }
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model = model.to_empty(device="cpu").to(dtype)
    model.load_state_dict(weights, strict=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffers are in no state
    return model.eval(), GlassTokenizer(tokenizer)


def _llama_config(source: Any, max_tokens: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=source.vocab_size,
        hidden_size=source.d_model,
        intermediate_size=8 * source.d_model // 3,
        num_hidden_layers=source.n_layers,
        num_attention_heads=source.n_heads,
        num_key_value_heads=source.n_kv_heads,
        head_dim=source.d_model // source.n_heads,
        max_position_embeddings=max_tokens,
        rope_theta=source.rope_base,
        rms_norm_eps=source.eps,
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=0,
    )


def _as_llama(source: Any, head_dim: int) -> dict[str, np.ndarray[Any, Any]]:
    """Weights by their names in `LlamaForCausalLM`; linear maps as `[out, in]`."""
    arrays = {name: tensor.data for name, tensor in source.named_parameters().items()}
    halves = np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])

    def rotated(name: str) -> np.ndarray[Any, Any]:
        # glassllm rotates neighbours (0, 1), (2, 3) ..., Llama the two halves of a head.
        heads = arrays[name].T.reshape(-1, head_dim, arrays[name].shape[0])
        rows: np.ndarray[Any, Any] = heads[:, halves].reshape(-1, heads.shape[-1])
        return rows

    weights = {
        "model.embed_tokens.weight": arrays["E"],
        "lm_head.weight": arrays["E"],
        "model.norm.weight": arrays["norm_f.gamma"],
    }
    for layer in range(source.cfg.n_layers):
        old, new = f"blocks.{layer}.", f"model.layers.{layer}."
        weights |= {
            new + "input_layernorm.weight": arrays[old + "norm1.gamma"],
            new + "post_attention_layernorm.weight": arrays[old + "norm2.gamma"],
            new + "self_attn.q_proj.weight": rotated(old + "attn.W_Q"),
            new + "self_attn.k_proj.weight": rotated(old + "attn.W_K"),
            new + "self_attn.v_proj.weight": arrays[old + "attn.W_V"].T,
            new + "self_attn.o_proj.weight": arrays[old + "attn.W_O"].T,
            new + "mlp.gate_proj.weight": arrays[old + "ffn.W1"].T,
            new + "mlp.up_proj.weight": arrays[old + "ffn.W3"].T,
            new + "mlp.down_proj.weight": arrays[old + "ffn.W2"].T,
        }
    return weights


@dataclass(frozen=True)
class GlassTokenizer:
    """glassllm's tokenizer behind the two calls that the engine makes."""

    inner: Any

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; characters outside its alphabet become `<unk>`."""
        return list(self.inner.encode(text))

    def decode(self, tokens: list[int]) -> str:
        """The text of `tokens`, special ones left out."""
        return str(self.inner.decode(tokens))
