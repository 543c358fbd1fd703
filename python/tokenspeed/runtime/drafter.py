"""Speculative decoding: who proposes the tokens that a verify step checks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Drafter(Protocol):
    """Proposes tokens on the device, after each forward, for the next one."""

    def draft(self, xp: Any, history: Any, lengths: Any, count: int) -> Any:
        """Device int32 [R, count]: a guess at each request's next tokens. `history`: device int32
        [R, columns], each request's tokens from its first one, of which `lengths` [R] count; `xp`
        is the device's array library. Any guess is right: a bad one is only slow."""
        ...


class PromptLookup:
    """Proposes what followed the last occurrence of the newest tokens in the request itself."""

    def __init__(self, match_tokens: int = 2) -> None:
        """`match_tokens`: how many of the newest tokens have to recur."""
        self._match_tokens = match_tokens

    def draft(self, xp: Any, history: Any, lengths: Any, count: int) -> Any:
        match = self._match_tokens
        requests, columns = history.shape
        each = xp.arange(requests)[:, None]
        wanted = history[each, xp.maximum(lengths[:, None] - match + xp.arange(match), 0)]
        starts = xp.arange(max(columns - match, 1))
        same = xp.ones((requests, len(starts)), dtype=bool)
        for at in range(match):
            same &= history[:, at : at + len(starts)] == wanted[:, at : at + 1]
        same &= starts + match < lengths[:, None]  # an earlier occurrence, with something behind it
        last = xp.where(same, starts, -1).max(axis=1)
        # Past its newest token a request has nothing to copy: the newest again.
        places = xp.minimum(
            xp.where(last < 0, lengths - 1, last + match)[:, None] + xp.arange(count),
            lengths[:, None] - 1,
        )
        return history[each, xp.maximum(places, 0)].astype(np.int32)
