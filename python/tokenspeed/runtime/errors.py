"""What the runtime raises.

Every exception has a `code`, one of `ErrorCode`, for programs to match on. An error of one
request reaches its client as an `Output` with the same code and text; the engine goes on.
"""

from __future__ import annotations

from enum import Enum


class ErrorCode(str, Enum):
    """All that can go wrong, by its stable name."""

    RECIPE = "recipe"
    """A model's declaration of its caches breaks a rule."""
    FORWARD = "forward"
    """The model's forward raised; the requests of its batch have failed."""
    ENDED = "ended"
    """The scheduler ended a request that could never run again."""
    CLOSED = "closed"
    """The engine is closed."""
    SYNC = "sync"
    """The forward thread waited for the device inside a round."""
    DEVICE = "device"
    """The device refuses: it is missing, out of memory, or an operation on it failed."""
    STANDSTILL = "standstill"
    """Requests live, nothing is planned and nothing is owed."""
    TRANSFER = "transfer"
    """A peer of a prefill or decode engine failed."""


class RuntimeFault(RuntimeError):
    """Base of what the runtime raises."""

    code: ErrorCode = ErrorCode.DEVICE


class RecipeError(RuntimeFault, ValueError):
    """A recipe or an arena that breaks a rule; the text names the layer or the number."""

    code = ErrorCode.RECIPE


class ForwardFault(RuntimeFault):
    """A model's forward raised; the cause is chained."""

    code = ErrorCode.FORWARD


class EndedByScheduler(RuntimeFault):
    """The scheduler ended a request by itself; the text has its reason."""

    code = ErrorCode.ENDED


class EngineClosed(RuntimeFault):
    """A call on a closed engine."""

    code = ErrorCode.CLOSED


class SyncForbidden(RuntimeFault):
    """A wait for the device where none may be (runtime.md, "Two threads")."""

    code = ErrorCode.SYNC


class DeviceFault(RuntimeFault):
    """The device refuses an operation."""

    code = ErrorCode.DEVICE


class Standstill(RuntimeFault):
    """Nothing can move any more: a fault of the scheduler or of the runtime."""

    code = ErrorCode.STANDSTILL


class TransferFault(RuntimeFault):
    """A peer failed."""

    code = ErrorCode.TRANSFER
