"""A KV-cache-aware batch scheduler for LLM engines, and what one needs to run and study it.

    from tokenspeed import LLM, SamplingParams

`LLM` and `AsyncLLM` need the extra `models`; everything else does without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenspeed.engine import LLM, AsyncLLM, SamplingParams

__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]

__version__: str
"""Of the installed package."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("tokenspeed-core")
        except PackageNotFoundError as error:
            raise AttributeError(f"{__name__} is not installed: {error}") from None
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tokenspeed import engine

    return getattr(engine, name)
