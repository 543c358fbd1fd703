"""From tokens to text as they come, and the stop strings in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer shows for a character of which it has seen some bytes only."""


class Tokenizer(Protocol):
    """What the engine asks of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str: ...


class TextStream:
    """One request's text, given out as soon as nothing can change it any more.

    Held back are characters of which bytes are missing, and an end that may be the beginning of a
    stop string. The pieces given out, joined, are `text`.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._tokens: list[int] = []
        self._settled = 0
        """Tokens whose text is final."""
        self._context = 0
        """The first token that is decoded again, so that a joint with what follows is right."""
        self._text = ""
        self._given = 0
        self.stopped_by: str | None = None
        """The stop string that was met, if one was."""

    @property
    def text(self) -> str:
        """All of the text up to now, without what a stop string cut off."""
        return self._text

    def push(self, token: int) -> str:
        """Takes one more token; returns what can be given out. Nothing after a stop string."""
        if self.stopped_by is not None:
            return ""
        self._tokens.append(token)
        known = self._tokenizer.decode(self._tokens[self._context : self._settled])
        both = self._tokenizer.decode(self._tokens[self._context :])
        if both.endswith(REPLACEMENT) or len(both) < len(known):
            return ""
        self._context, self._settled = self._settled, len(self._tokens)
        return self._append(both[len(known) :])

    def close(self) -> str:
        """The rest: no more tokens come."""
        if self.stopped_by is not None:
            return ""
        known = self._tokenizer.decode(self._tokens[self._context : self._settled])
        both = self._tokenizer.decode(self._tokens[self._context :])
        self._context = self._settled = len(self._tokens)
        given = self._append(both[len(known) :])
        return given if self.stopped_by is not None else given + self._give(len(self._text))

    def _append(self, piece: str) -> str:
        longest = max(map(len, self._stop), default=0)
        searched = max(0, len(self._text) - longest + 1)
        self._text += piece
        found = [(at, stop) for stop in self._stop if (at := self._text.find(stop, searched)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            self._text = self._text[:at]
            return self._give(at)
        return self._give(len(self._text) - self._held())

    def _held(self) -> int:
        """Characters at the end that may be the beginning of a stop string."""
        held = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self._text)), held, -1):
                if self._text.endswith(stop[:length]):
                    held = length
                    break
        return held

    def _give(self, end: int) -> str:
        piece = self._text[self._given : end]
        self._given = max(self._given, end)
        return piece
