"""What a scheduler raises.

Every exception has a `code`: the stable name of what went wrong, for programs to match on. Nothing
that raises has changed the scheduler. The classes also answer to the built-in exceptions that
engines already catch for these cases.
"""

from __future__ import annotations


class SchedulerError(ValueError):
    """A call that the scheduler refuses; the text names what is at fault and what to do."""

    code: str
    """Stable name of the refusal, such as ``"request_too_large"``."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ConfigError(SchedulerError):
    """A configuration, or an argument that sizes a pool, breaks a rule."""


class UnknownGroupError(ConfigError, IndexError):
    """No cache group of the configuration has that id."""


class RequestError(SchedulerError):
    """A submitted request cannot be taken."""


class EventError(SchedulerError, RuntimeError):
    """An event or a result cannot happen in the state that the scheduler is in."""


class UnsupportedError(SchedulerError):
    """Something that this version does not offer."""


class RecordingError(SchedulerError):
    """A recording cannot be begun or ended, or a file is none."""


class RecordingWarning(RuntimeWarning):
    """A recording has broken off; the scheduler goes on without it."""


class InternalError(RuntimeError):
    """A bug of the scheduler. Where a call broke off midway, every later call raises this too."""

    code: str
    """Always ``"internal"``."""

    def __init__(self, message: str, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code
