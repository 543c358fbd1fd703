"""What every LLM scheduler has, as the benchmarks see it: a pool, requests, a `Peer` that decides.

A peer is one small class: it takes requests, decides rounds, takes results in, lets requests go.
To add one, write a class with the methods of `Peer` and name it in `peers.PEERS`. What is timed is
`submit`, `plan` and `feed`: a peer does in them what an engine would have to do to use it, and
nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

SAMPLE = 7
"""The token that every request samples."""

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 2**31 - 1,
    "max_position_embeddings": 1 << 20,
    "eos_token_id": 1,
}
"""The smallest model that others take; any token is one of its words."""


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


def imported(names: Mapping[str, Sequence[str]]) -> SimpleNamespace:
    """What a peer uses of another project; `names` by module."""
    found = {n: getattr(importlib.import_module(m), n) for m, ns in names.items() for n in ns}
    return SimpleNamespace(**found)


@contextmanager
def model_folder() -> Iterator[str]:
    """A folder with a `config.json` of `MODEL`, and nothing else of a model."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        yield folder


def not_importable(module: str) -> str | None:
    """Why a module cannot be imported here, if it cannot."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None
