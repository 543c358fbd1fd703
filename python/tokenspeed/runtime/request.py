"""What a client gives and gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.errors import RuntimeFault
from tokenspeed.scheduler import RequestError, RequestSpec

FinishReason = Literal["length", "stop", "abort", "error", "handed over"]


@dataclass(frozen=True)
class Request:
    """A prompt and when to stop."""

    request_id: str
    tokens: Sequence[int] | NDArray[np.int32]
    max_new_tokens: int
    """Tokens to generate at most, 1 or more."""
    stop_token_ids: frozenset[int] = frozenset()
    """Generation ends with any of these, which is still given."""
    sampling: object = None
    """For the sampler; the runtime does not look into it."""
    declared_new_tokens: int | None = None
    """The budget that the scheduler is told, which by the document keeps room for it (scheduler.md
    §4); None: `max_new_tokens`; 0: none, so that it takes less room and may be retracted."""

    def spec(self, tokens_max: int) -> RequestSpec:
        """As the scheduler takes it. Raises `RequestError` for one that asks for less than one new
        token or declares less than none, or whose prompt and output are more than `tokens_max`
        tokens."""
        if self.max_new_tokens < 1:
            raise RequestError(
                f"request {self.request_id!r}: max_new_tokens = {self.max_new_tokens}: it is 1 or "
                "more",
                "invalid_argument",
            )
        declared = self.declared_new_tokens
        if declared is not None and declared < 0:
            raise RequestError(
                f"request {self.request_id!r}: declared_new_tokens = {declared}: it is None, 0 (no "
                "budget) or more",
                "negative_budget",
            )
        budget = self.max_new_tokens if declared is None else declared
        new_tokens = max(self.max_new_tokens, budget)
        if len(self.tokens) + new_tokens > tokens_max:
            raise RequestError(
                f"request {self.request_id!r}: a prompt of {len(self.tokens)} tokens and "
                f"{new_tokens} new ones are more than the {tokens_max} that fit; shorten it, ask "
                "for fewer, or give the engine a larger pool, as far as the model bears it",
                "request_too_large",
            )
        return RequestSpec(self.request_id, self.tokens, budget)


class Output(NamedTuple):
    """What one step brought for one request."""

    request_id: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None = None
    """None: there is more to come. A request has exactly one output with a reason, its last."""
    error: RuntimeFault | None = None
    """With the reason `error`: what happened."""


@dataclass(slots=True)
class Live:
    """A request under way, as the control side knows it."""

    request: Request
    generated: list[int] = field(default_factory=list)
    handle: int | None = None
    """Of the admission that it last ran under; None before the first."""
    num_tokens: int = 0
    """Known so far, prompt and output."""
    drafts: tuple[int, ...] = ()
    """Guesses at the tokens behind the first, from the engine that computed the prompt."""

    def __post_init__(self) -> None:
        self.num_tokens = len(self.request.tokens)

    def add(self, token: int) -> FinishReason | None:
        """Takes one token: why the request ends with it, if it does."""
        self.generated.append(token)
        self.num_tokens += 1
        if token in self.request.stop_token_ids:
            return "stop"
        return "length" if len(self.generated) >= self.request.max_new_tokens else None

    def all_tokens(self) -> NDArray[np.int32]:
        """Prompt and output."""
        prompt = np.asarray(self.request.tokens, dtype=np.int32)
        return np.concatenate([prompt, np.array(self.generated, dtype=np.int32)])

    def take(self, tokens: list[int]) -> tuple[list[int], FinishReason | None]:
        """Takes what was sampled up to the request's end: those tokens, and why it ends if it
        does."""
        for count, token in enumerate(tokens, 1):
            reason = self.add(token)
            if reason is not None:
                return tokens[:count], reason
        return tokens, None
