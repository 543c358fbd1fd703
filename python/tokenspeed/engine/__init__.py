"""An offline engine: `LLM`, `AsyncLLM` and what they take and give.

`LLM` and `AsyncLLM` need the extra `models` (torch, transformers) and import it when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenspeed.engine.outputs import Completion, Delta
from tokenspeed.engine.sampling import SamplingParams
from tokenspeed.engine.settings import EngineSettings

if TYPE_CHECKING:
    from tokenspeed.engine.async_llm import AsyncLLM
    from tokenspeed.engine.llm import LLM

__all__ = ["LLM", "AsyncLLM", "Completion", "Delta", "EngineSettings", "SamplingParams"]

NEEDS_MODELS = "torch and transformers are needed: pip install 'tokenspeed-core[models]'"
"""What to do where a module of the extra cannot be imported."""

_LAZY = {"LLM": "llm", "AsyncLLM": "async_llm"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; {NEEDS_MODELS}", name=error.name) from None
