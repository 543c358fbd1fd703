"""A trace: who asks when, for how many tokens, and which prompts begin alike."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 512
"""Tokens that one hash id of a trace stands for."""

TOKENS_MAX = 2**31 - 1
"""Of one request, prompt and output: what the scheduler counts with."""

DEFAULT_TRACE = "mooncake_conversation_trace.jsonl.gz"
"""The trace that ships with the project, under `tokenspeed/simulate/data/`."""


class TraceError(ValueError):
    """A trace that cannot be read. The message names the file, the line and what is wrong."""


@dataclass(frozen=True)
class Trace:
    """Requests in columns, in order of arrival; nothing in it grows with the prompts' tokens.

    A prompt is a run of blocks of `BLOCK_TOKENS` tokens, each named by a *block number* from 1 up:
    equal numbers hold equal tokens. What the blocks leave uncovered belongs to the request alone.
    """

    name: str
    arrival_s: NDArray[np.float64]
    """Seconds since the first request, never decreasing."""
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    blocks: NDArray[np.int32]
    """Block numbers, one request's after the other's."""
    block_offsets: NDArray[np.int64]
    """Request i owns `blocks[block_offsets[i]:block_offsets[i + 1]]`."""
    num_blocks: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_blocks", int(self.blocks.max(initial=0)))

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1]) if len(self) else 0.0

    def own_token(self, request: int) -> int:
        """A token that no other request holds: it heads a private tail and fills every output."""
        return self.num_blocks + 1 + request

    def tokens(self, request: int) -> NDArray[np.int32]:
        """The prompt of one request, `[prompt_tokens]` int32, made anew at each call.

        Block number b is the token b and 511 zeros; a private tail is the request's own token and
        zeros. A page's content hash covers the pages before it (`cache.md` §4), so two prompts
        match exactly as far as their block numbers do.
        """
        count = int(self.prompt_tokens[request])
        blocks = self.blocks[self.block_offsets[request] : self.block_offsets[request + 1]]
        tokens = np.zeros(count, dtype=np.int32)
        covered = min(len(blocks) * BLOCK_TOKENS, count)
        tokens[:covered:BLOCK_TOKENS] = blocks
        if covered < count:
            tokens[covered] = self.own_token(request)
        return tokens

    def first(self, count: int) -> Trace:
        """The trace's first `count` requests."""
        end = self.block_offsets[: count + 1]
        return Trace(
            self.name,
            self.arrival_s[:count],
            self.prompt_tokens[:count],
            self.output_tokens[:count],
            self.blocks[: end[-1]],
            end,
        )

    def shuffled(self, seed: int) -> Trace:
        """The same requests in another order, at the arrivals of this one."""
        order = np.random.default_rng(seed).permutation(len(self))
        counts = np.diff(self.block_offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        firsts = np.repeat(self.block_offsets[order] - offsets[:-1], counts)
        return Trace(
            self.name,
            self.arrival_s,
            self.prompt_tokens[order],
            self.output_tokens[order],
            self.blocks[firsts + np.arange(len(self.blocks))],
            offsets,
        )


class TraceBuilder:
    """Collects a reader's rows and turns them into a `Trace`."""

    def __init__(self) -> None:
        self._arrivals: list[float] = []
        self._prompts: list[int] = []
        self._outputs: list[int] = []
        self._hash_ids: list[list[int]] = []

    def add(self, arrival_s: float, prompt: int, output: int, hash_ids: list[int]) -> None:
        """Adds a request; `ValueError` says which of its numbers cannot be."""
        if prompt < 1:
            raise ValueError(f"the prompt has {prompt} tokens; it needs at least 1")
        if output < 1:
            raise ValueError(f"the output has {output} tokens; it needs at least 1")
        if prompt + output > TOKENS_MAX:
            raise ValueError(f"it has {prompt + output} tokens; {TOKENS_MAX} are the most")
        coverable = -(-prompt // BLOCK_TOKENS)
        if len(hash_ids) > coverable:
            raise ValueError(
                f"{len(hash_ids)} hash ids name more than the {coverable} blocks of "
                f"{BLOCK_TOKENS} tokens in a prompt of {prompt} tokens"
            )
        self._arrivals.append(arrival_s)
        self._prompts.append(prompt)
        self._outputs.append(output)
        self._hash_ids.append(hash_ids)

    def build(self, name: str) -> Trace:
        """The trace, ordered by arrival (ties keep the file's order), its first request at 0 s."""
        arrivals = np.array(self._arrivals, dtype=np.float64)
        order = np.argsort(arrivals, kind="stable")
        hash_ids = [self._hash_ids[i] for i in order]
        offsets = np.zeros(len(order) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in hash_ids], out=offsets[1:])
        flat = np.array([i for ids in hash_ids for i in ids], dtype=np.int64)
        blocks = np.unique(flat, return_inverse=True)[1].astype(np.int32) + np.int32(1)
        arrivals = arrivals[order]
        return Trace(
            name,
            arrivals - arrivals[0],
            np.array(self._prompts, dtype=np.int64)[order],
            np.array(self._outputs, dtype=np.int64)[order],
            blocks.reshape(-1),
            offsets,
        )


def default_trace_path() -> Path:
    """Where the shipped Mooncake conversation trace lies."""
    return Path(str(files("tokenspeed.simulate") / "data" / DEFAULT_TRACE))


def load_trace(path: Path) -> Trace:
    """Reads a Mooncake (JSON lines) or Azure (CSV) trace, plain or gzip, told by its content.

    Every line is a request or an error: `TraceError` names the first line that is not, and why.
    """
    from tokenspeed.simulate import azure, mooncake

    lines = _lines(path)
    if not lines:
        raise TraceError(f"{path}: the file is empty; a trace holds one request a line")
    if lines[0].lstrip().startswith("{"):
        return _read(path, lines, 1, mooncake.parse)
    if lines[0] == azure.HEADER:
        if len(lines) == 1:
            raise TraceError(f"{path}: the file holds a header and no request")
        return _read(path, lines[1:], 2, azure.parse)
    raise TraceError(
        f"{path} line 1: neither a Mooncake request (a JSON object) nor the Azure header "
        f"'{azure.HEADER}'"
    )


Parser = Callable[[str], tuple[float, int, int, list[int]]]
"""Reads one line into (arrival in seconds, prompt tokens, output tokens, hash ids)."""


def _read(path: Path, lines: Iterable[str], first_line: int, parse: Parser) -> Trace:
    builder = TraceBuilder()
    for number, line in enumerate(lines, first_line):
        try:
            if not line.strip():
                raise ValueError("the line is blank")
            builder.add(*parse(line))
        except ValueError as error:
            raise TraceError(f"{path} line {number}: {error}") from None
    return builder.build(path.name)


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        return data.decode("utf-8").splitlines()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: the gzip data is damaged ({error})") from None
    except OSError as error:
        raise TraceError(
            f"{path}: {error.strerror or error}; name a Mooncake or Azure trace, or none to play "
            "the one that ships with tokenspeed"
        ) from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text at byte {error.start}") from None
