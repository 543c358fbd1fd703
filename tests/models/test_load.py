"""Checkpoints: glassllm against its own NumPy code, safetensors, GGUF, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import glassllm
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenspeed.models import CheckpointError, TransformersRunner, UnsupportedModelError, load
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from .tiny import VOCABULARY, plain


@pytest.mark.parametrize("language", ["en", "pt"])
def test_glassllm_gives_the_logits_of_its_own_numpy_code(language: str) -> None:
    source, tokenizer = glassllm.load_pretrained(language)
    tokens = tokenizer.encode("Alice olhou para o mar, and began to laugh.")
    loaded = load(f"glassllm:{language}", torch.float32)
    assert loaded.tokenizer.encode("Alice olhou para o mar, and began to laugh.") == tokens
    with torch.inference_mode():
        got = loaded.model(torch.tensor([tokens])).logits[0].numpy()
    np.testing.assert_allclose(got, source.forward(tokens).data[0], atol=1e-3)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder as they are published."""
    words = {f"w{at}": at for at in range(VOCABULARY)}
    inner = Tokenizer(WordLevel(words, unk_token="w3"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w3", eos_token="w2")
    model = plain("qwen3").to(torch.float32)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    plain.cache_clear()
    return tmp_path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_folder_of_safetensors_is_loaded_as_it_is(checkpoint: Path, dtype: torch.dtype) -> None:
    loaded = load(checkpoint, dtype)
    assert loaded.model.dtype == dtype
    assert loaded.eos_token_ids == {2}
    want = plain("qwen3").to(torch.float32).to(dtype).state_dict()
    for name, got in loaded.model.state_dict().items():
        assert torch.equal(got, want[name]), name
    plain.cache_clear()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("no.gguf", "there is no such file or folder"),
        ("./nowhere", "there is no such file or folder"),
        ("./glassllm", "there is no such file or folder"),
        (Path("smollm2"), "there is no such file or folder"),
        ("nowhere", "neither a folder with a config.json nor a .gguf file, nor one of glassllm,"),
        ("", "neither a folder with a config.json nor a .gguf file, nor one of glassllm,"),
        ("x" * 5000, "File name too long"),
        ("x" * 5000 + "/b", "File name too long"),
    ],
)
def test_a_name_that_is_nothing_is_quoted(
    source: str | Path, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"^{str(source)!r}: {reason}"):
        load(source)


def test_what_is_no_checkpoint_is_refused_by_name(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere': there is no such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="glassllm"):
        load("glassllm:xx")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="safetensors"):
        load(checkpoint)
    (checkpoint / "config.json").write_text("{")
    (checkpoint / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=str(checkpoint)):
        load(checkpoint)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no such format")
    with pytest.raises(CheckpointError, match="broken"):
        load(broken)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "batch"),
        ({"layer_types": ["chunked_attention"] * 2}, "chunked"),
    ],
)
def test_a_model_that_no_group_fits_is_refused(settings: dict[str, Any], reason: str) -> None:
    config = AutoConfig.for_model(
        "llama", vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2
    )
    model = AutoModelForCausalLM.from_config(config)
    for name, value in settings.items():
        setattr(model.config, name, value)
    with pytest.raises(UnsupportedModelError, match=reason):
        TransformersRunner(model)
