"""The choices that a configuration makes by name (`scheduler.md` §1)."""

from __future__ import annotations

from enum import Enum


class CacheRetention(Enum):
    """How much of a request's past a cache group keeps."""

    FullHistory = 0
    """All of it."""
    SlidingWindow = 1
    """The last `sliding_window_tokens` tokens."""


class CacheGroupFamily(Enum):
    """What the blocks of a cache group hold."""

    History = 0
    """Keys and values, one row a token."""
    State = 1
    """One snapshot of a recurrent state a block."""


class CacheTransferPolicy(Enum):
    """What of a cache group a prefill worker ships to its decoding peer."""

    Unspecified = 0
    """Not declared; refused on the roles P and D."""
    FullSuffix = 1
    """Every retained block: history groups."""
    LatestSnapshot = 2
    """The last snapshot alone: state groups."""


class PressurePolicy(Enum):
    """What happens when the pool cannot hold what all residents come to need."""

    Document = 0
    """`scheduler.md` §2 and §4 to the letter."""
    Goodput = 1
    """The engine keeps its batch: what residents need next comes before any admission, who came
    last, or loses least by it, gives way, and who would end last goes first."""


class Role(Enum):
    """What an engine does; `SchedulerConfig.Role`."""

    P = 0
    """Prefill for a peer."""
    D = 1
    """Decode what a peer has prefilled."""
    Fused = 2
    """Prefill and decode in one engine."""
