"""How a request's tokens are chosen, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

SEED_MAX = 2**63 - 1
COUNT_MAX = 2**31 - 1
"""Of tokens and token ids: what the scheduler counts with."""


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
        for name, rule, read in (
            ("max_new_tokens", f"is a whole number, 1 to {COUNT_MAX}", _within(1, COUNT_MAX)),
            ("temperature", "is 0 (greedy) or a number from 1e-5 on", _temperature),
            ("top_k", f"is a whole number, 0 (all tokens) to {COUNT_MAX}", _within(0, COUNT_MAX)),
            ("top_p", "is a number above 0 and at most 1", _share),
            ("seed", f"is None or a whole number, 0 to {SEED_MAX}", _seed),
            ("stop", "is a text or some, none of them empty", _texts),
            ("stop_token_ids", "holds whole numbers, 0 or above", _token_ids),
        ):
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, read(given))
            except (TypeError, ValueError, OverflowError):
                raise ValueError(f"{name} = {given!r:.80}: {name} {rule}") from None


def _within(least: int, most: int) -> Callable[[Any], int]:
    def read(given: Any) -> int:
        value = index(given)
        if not least <= value <= most:
            raise ValueError
        return value

    return read


def _temperature(given: Any) -> float:
    value = float(given)
    if value != 0 and not 1e-5 <= value < float("inf"):
        raise ValueError
    return value


def _share(given: Any) -> float:
    value = float(given)
    if not 0 < value <= 1:
        raise ValueError
    return value


def _seed(given: Any) -> int | None:
    return None if given is None else _within(0, SEED_MAX)(given)


def _texts(given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return texts


def _token_ids(given: Any) -> tuple[int, ...]:
    return tuple(map(_within(0, COUNT_MAX), given))
