"""What a client gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]
"""`stop`: an end-of-sequence or stop token, or a stop string. `length`: as many tokens as were
asked for. `abort`: cancelled."""


@dataclass(frozen=True)
class Delta:
    """What came at once; a request's deltas, joined, are its completion."""

    text: str
    """May be empty: a character or a stop string may still be incomplete."""
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    """In the last one only."""


@dataclass(frozen=True)
class Completion:
    """All that a request generated."""

    prompt_token_ids: tuple[int, ...]
    text: str
    """Without stop strings and stop tokens."""
    token_ids: tuple[int, ...]
    """As the model gave them, the last one and a stop string's included."""
    finish_reason: FinishReason

    @classmethod
    def of(cls, prompt: Sequence[int], deltas: Sequence[Delta]) -> Completion:
        """What a request's deltas, the last one included, come to."""
        reason = deltas[-1].finish_reason
        assert reason is not None
        tokens = tuple(token for delta in deltas for token in delta.token_ids)
        return cls(tuple(prompt), "".join(delta.text for delta in deltas), tokens, reason)
