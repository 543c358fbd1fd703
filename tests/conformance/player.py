"""One side with its calls counted, so that a dead process can be explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .side import Side
from .world import World

ABORTS = "reference aborts the process"

#: Builds a side for a world; ``functools.partial(Side, module)``.
MakeSide = Callable[[World], Side]


class Raised(Exception):
    """A side raised, or would have ended the process, at one of its calls."""

    def __init__(self, side: str, call: str, error: str) -> None:
        super().__init__(f"{side} raises in {call}: {error}")
        self.error = error


class Marker(Protocol):
    """Is told of every call of a side, so that a dead process can be explained."""

    def enter(self, side: str) -> None: ...
    def leave(self) -> None: ...


class Silent:
    """A marker for a process that nobody watches."""

    def enter(self, side: str) -> None:
        pass

    def leave(self) -> None:
        pass


@dataclass
class Player:
    """One side with its calls counted. `calls_max`: the call after it is known to be fatal."""

    name: str
    make: MakeSide
    marker: Marker
    calls_max: int | None = None
    calls: int = 0
    side: Any = None

    def start(self, world: World) -> None:
        self.side = self._guard("Scheduler(config)", lambda: self.make(world))

    def call(self, method: str, *args: Any) -> Any:
        return self._guard(method, lambda: getattr(self.side, method)(*args))

    def _guard(self, what: str, run: Callable[[], Any]) -> Any:
        if self.calls_max is not None and self.calls >= self.calls_max:
            raise Raised(self.name, what, ABORTS)
        self.calls += 1
        self.marker.enter(self.name)
        try:
            return run()
        except Exception as error:
            raise Raised(self.name, what, f"{type(error).__name__}: {error}") from error
        finally:
            self.marker.leave()
