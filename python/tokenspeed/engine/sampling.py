"""How a request's tokens are chosen, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SEED_MAX = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """What a request asks for. The defaults are greedy: the likeliest token each time.

    The same seed gives the same text, whomever the request is batched with and wherever it runs:
    the randomness of a token is a function of the seed and of the token's place in the sequence.
    """

    max_new_tokens: int = 128
    """The most tokens that are generated, the end-of-sequence token included."""

    temperature: float = 0.0
    """Logits are divided by it. 0 is greedy."""

    top_k: int = 0
    """Only the k likeliest tokens are chosen from. 0: all."""

    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability are chosen from."""

    seed: int | None = None
    """Of this request's randomness, 0 to 2**63 - 1. None: one that the system draws."""

    stop: str | Sequence[str] = ()
    """Texts that end the request. They are cut off, with all that stands behind them."""

    stop_token_ids: Sequence[int] = ()
    """Tokens that end the request like the model's own end of sequence."""

    ignore_eos: bool = False
    """Goes on past the model's end-of-sequence tokens."""

    def __post_init__(self) -> None:
        """Raises `ValueError` naming the field, its value and the rule."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        seed = 0 if self.seed is None else self.seed
        for name, holds, rule in (
            ("max_new_tokens", self.max_new_tokens >= 1, "is at least 1"),
            ("temperature", _is_temperature(self.temperature), "is 0 (greedy) or 1e-5 and above"),
            ("top_k", self.top_k >= 0, "is 0 (all tokens) or above"),
            ("top_p", 0 < self.top_p <= 1, "is above 0 and at most 1"),
            ("seed", 0 <= seed <= SEED_MAX, f"is between 0 and {SEED_MAX}"),
            ("stop", all(self.stop), "holds no empty text"),
        ):
            if not holds:
                raise ValueError(f"{name} = {getattr(self, name)!r}: {name} {rule}")


def _is_temperature(value: float) -> bool:
    return value == 0 or 1e-5 <= value < float("inf")
