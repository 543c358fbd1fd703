"""What every LLM scheduler has, as the benchmarks see it: a pool, requests, a `Peer` that decides.

A peer is one small class: it takes requests, decides rounds, takes results in, lets requests go.
To add one, write a class with the methods of `Peer` and name it in `peers.PEERS`. What is timed is
`submit`, `plan` and `feed`: a peer does in them what an engine would have to do to use it, and
nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

SAMPLE = 7
"""The token that every request samples."""


@dataclass(frozen=True)
class Pool:
    """The engine that a scheduler plans for: one full-attention group, no host cache."""

    page_tokens: int
    """Tokens of a cache block, and of a page of the prefix cache."""
    blocks: int
    """Usable blocks."""
    rows: int
    """Requests that may hold blocks at once."""
    round_tokens: int
    """Tokens of input that a round may take."""
    running: int | None = None
    """Requests that are to run at once, where that is less than `rows`: what a scheduler that
    reserves no room for declared output has to be told, since its pool is not full without it."""


@dataclass(frozen=True)
class Request:
    """One request to come."""

    id: str
    tokens: npt.NDArray[np.int32]
    max_new_tokens: int = 0
    """0: undeclared."""


class Peer(Protocol):
    """One scheduler. Its engine's forwards end at once; whoever may sample samples one token."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line: what it is and how it is used here."""

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be played here, if it cannot."""

    def __init__(self, pool: Pool) -> None: ...

    def prepare(self, requests: Sequence[Request]) -> Any:
        """Requests in the form in which an engine would have them. Not timed."""

    def submit(self, prepared: Any) -> None:
        """Timed: hands prepared requests in."""

    def plan(self) -> Any:
        """Timed: decides a round and reads all of it that a model runner needs."""

    def feed(self, round_: Any) -> None:
        """Timed: brings the results of a round in, one token for each request that samples."""

    def sampled(self, round_: Any) -> list[str]:
        """Ids of the requests that sample a token in a round. Not timed."""

    def finish(self, request_ids: Sequence[str]) -> None:
        """Lets requests go; what they computed stays cached. Not timed."""


def not_importable(module: str) -> str | None:
    """Why a module cannot be imported here, if it cannot."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None
