"""The nouns of a conformance world: its configuration, its requests, its timing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

#: Tokens of one stream are ``stream * STREAM_STRIDE + position``: distinct, short and readable.
STREAM_STRIDE = 1000

ROLES = ("Fused", "P", "D")
KINDS = ("full", "sliding", "state", "replay")


class Literal:
    """Prints a dataclass as a literal that leaves out what has its default value."""

    def __repr__(self) -> str:
        parts = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Group(Literal):
    """One cache group (cache.md §1).

    ``granularity`` is tokens a block, ``packing`` blocks an LCM block, ``window`` tokens, for the
    kinds ``sliding`` and ``replay`` (a sliding group that is regenerated, scheduler.md §1.3).
    """

    id: str
    kind: str = "full"
    granularity: int = 4
    packing: int = 1
    window: int | None = None


@dataclass(frozen=True, repr=False)
class Request(Literal):
    """One client's request.

    ``prompt`` is a list of ``(stream, tokens)`` segments. A segment continues its stream where
    the prompt last left it, so equal leading segments are a shared prefix. What the request
    generates are the tokens of stream ``output_stream``, from its start: a follow-up turn is a
    prompt that contains ``(output_stream, n)``.
    """

    id: str
    prompt: tuple[tuple[int, int], ...]
    output_stream: int
    #: The round in which it is submitted.
    arrival: int = 0
    #: Tokens it generates before its client finishes it; at least 1.
    output: int = 1
    #: Its declared ``max_new_tokens``; 0 is undeclared.
    budget: int = 0
    #: Tokens accepted in a decode step, at most; drawn from 1 to this.
    accept: int = 1
    #: The round in which its client aborts it, if it still lives then.
    abort: int | None = None

    def tokens(self) -> list[int]:
        """The prompt's token ids."""
        position: dict[int, int] = {}
        result: list[int] = []
        for stream, length in self.prompt:
            start = position.get(stream, 0)
            position[stream] = start + length
            result.extend(stream * STREAM_STRIDE + i for i in range(start, start + length))
        return result

    def prompt_tokens(self) -> int:
        """The prompt's length in tokens."""
        return sum(length for _, length in self.prompt)

    def output_token(self, index: int) -> int:
        """The id of the token it generates at `index`."""
        return self.output_stream * STREAM_STRIDE + index


@dataclass(frozen=True, repr=False)
class World(Literal):
    """Everything that surrounds a scheduler, from its first call to its last.

    `timing` seeds every delay; each delay is drawn from what it belongs to and not from a running
    generator, so that an edit of one request leaves the delays of the others as they were.
    """

    groups: tuple[Group, ...]
    requests: tuple[Request, ...]
    role: str = "Fused"
    #: P, tokens.
    granularity: int = 4
    #: LCM blocks without the null one, on each tier.
    device_blocks: int = 16
    host_blocks: int = 0
    #: ``max_scheduled_tokens`` of a round.
    token_budget: int = 64
    #: ``max_batch_size``.
    rows: int = 16
    #: ``decode_input_tokens``.
    width: int = 1
    #: ``overlap_schedule_depth``.
    depth: int = 0
    mixed: bool = False
    disable_prefix_cache: bool = False
    disable_l2_cache: bool = False
    #: ``enable_l3_storage``.
    storage: bool = False
    #: Requests whose prompts another engine has put into storage before the first round.
    stored: tuple[str, ...] = ()
    #: One fetch from storage in so many misses; 0: none does.
    storage_loss: int = 0
    #: ``prefix_replay_tokens``.
    replay_tokens: int = 0
    timing: int = 0
    #: Rounds by which a result may be late beyond the next plan; needs ``depth`` 1.
    result_lag: int = 0
    #: Rounds by which an acknowledgement of a copy may be late.
    ack_lag: int = 0
    #: Rounds by which a peer may be late with its bootstrap and with what it transfers.
    bootstrap_lag: int = 0
    transfer_lag: int = 0
    #: One peer in so many is lost on the way; 0: none is.
    peer_loss: int = 0
    #: Rounds in which the engine asks for the caches to be cleared.
    flushes: tuple[int, ...] = ()

    def draw(self, limit: int, *about: object) -> int:
        """A number from 0 to `limit`, both included, that depends on `timing` and `about` only."""
        if limit <= 0:
            return 0
        text = repr((self.timing, *about)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") % (limit + 1)

    def group(self, group_id: str) -> Group:
        return next(group for group in self.groups if group.id == group_id)

    def patience(self) -> int:
        """Rounds in which no client gets a token or an end before the world is held to run for
        ever: time for every prompt to be computed twice over, a page a round, each round late."""
        pages = sum(r.prompt_tokens() + r.output for r in self.requests) // self.granularity
        lag = self.result_lag + self.ack_lag + self.transfer_lag
        last = max((r.arrival for r in self.requests), default=0) + self.bootstrap_lag
        return 64 + last + 2 * (pages + len(self.requests)) * (1 + lag)

    def literal(self) -> str:
        """The world as Python source that builds it, a request a line."""
        lines = ["World("]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("groups", "requests"):
                lines.append(f"    {field.name}=(")
                lines.extend(f"        {item!r}," for item in value)
                lines.append("    ),")
            elif value != field.default:
                lines.append(f"    {field.name}={value!r},")
        lines.append(")")
        return "\n".join(lines)
