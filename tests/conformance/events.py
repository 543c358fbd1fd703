"""What reaches a scheduler before a plan: results, acknowledgements and the words of clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """``ExtendResult``: no token for an intermediate chunk. `candidates` are the drafter's, which
    the prefill role hands over."""

    request_id: str
    tokens: tuple[int, ...]
    candidates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finished:
    request_id: str


@dataclass(frozen=True)
class Aborted:
    request_id: str


@dataclass(frozen=True)
class Stored:
    """``WriteBackDoneEvent`` for the store at `place` of the plan of `round`."""

    round: int
    place: int


@dataclass(frozen=True)
class Loaded:
    """``LoadBackDoneEvent`` for the load at `place` of the plan of `round`."""

    round: int
    place: int
    success: bool = True


@dataclass(frozen=True)
class Retracted:
    """``Retract``: its forward was not run: a fetch from storage missed (scheduler.md §4)."""

    request_id: str


@dataclass(frozen=True)
class Reserve:
    """``UpdateReserveNumTokens``: what the next decode step needs beyond what was demanded."""

    request_id: str
    tokens: int


@dataclass(frozen=True)
class Bootstrapped:
    """The peers of a request have found each other."""

    request_id: str


@dataclass(frozen=True)
class PeerFailed:
    """The peer of a request, or the transfer between them, is lost: its last word."""

    request_id: str


@dataclass(frozen=True)
class HandedOver:
    """Prefill role, ``SucceededEvent``: the peer has all it needs."""

    request_id: str


@dataclass(frozen=True)
class RemotelyPrefilled:
    """Decode role, ``RemotePrefillDoneEvent``: the prompt has landed, with its first token."""

    request_id: str
    token: int


Event = (
    Result
    | Reserve
    | Finished
    | Aborted
    | Stored
    | Loaded
    | Retracted
    | Bootstrapped
    | PeerFailed
    | HandedOver
    | RemotelyPrefilled
)
