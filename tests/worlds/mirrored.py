"""Our side twice: mirrored ranks get the same calls and must make the same plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.conformance.events import Event
from tests.conformance.plan import Plan
from tests.conformance.side import Side
from tests.conformance.storage import Key
from tests.conformance.world import Request, World


class DigestsDiffer(Exception):
    """Two schedulers that were given the same calls made different plans (``liveness.md`` 5)."""


class GivesWayTooOften(Exception):
    """A request was retracted for capacity a fourth time where the engine keeps its batch
    (``docs/goodput.md``, 1)."""


class Chained(Side):
    """One rank; `digest` covers its plans so far, each chained to the one before."""

    def __init__(self, module: str, world: World, policy: str | None = None) -> None:
        super().__init__(module, world, policy)
        self.digest = 0
        self._keeps_batch = policy == "Goodput"
        self._seated: dict[int, str] = {}
        self._retractions: Counter[str] = Counter()

    def read(self, plan: Any) -> Plan:
        """Raises `GivesWayTooOften`."""
        self.digest = plan.digest(self.digest)
        if self._keeps_batch:
            # One whose prompt a peer was computing is not known by its handle.
            known = self._seated.keys() & map(int, plan.retracted)
            self._retractions.update(self._seated[handle] for handle in known)
            often = [name for name, times in self._retractions.items() if times > 3]
            if often:
                raise GivesWayTooOften(", ".join(often))
            if plan.batch is not None:
                handles = map(int, plan.batch.handles)
                self._seated.update(zip(handles, plan.batch.request_ids, strict=True))
        return super().read(plan)

    def follow(self, other: Side) -> None:
        """Plans beside `other`, whose operations it shares: of its own plan the digest is read."""
        self.digest = self._scheduler.next_execution_plan().digest(self.digest)
        self._operations = other._operations


class Mirrored(Chained):
    """Two ranks behind the surface of one. What is asked of it is answered by the first."""

    def __init__(self, module: str, world: World, policy: str | None = None) -> None:
        super().__init__(module, world, policy)
        self._mirror = Chained(module, world, policy)

    def plan(self, round_: int) -> Plan:
        """Raises `DigestsDiffer`."""
        plan = super().plan(round_)
        self._mirror.follow(self)
        if self.digest != self._mirror.digest:
            raise DigestsDiffer(f"{self.digest:016x}, mirrored {self._mirror.digest:016x}")
        return plan

    def submit(self, request: Request) -> str | None:
        self._mirror.submit(request)
        return super().submit(request)

    def advance(self, events: Iterable[Event]) -> None:
        events = list(events)
        try:
            self._mirror.advance(events)
        finally:  # What is refused is refused by both.
            super().advance(events)

    def register(self, keys: list[Key]) -> None:
        self._mirror.register(keys)
        super().register(keys)

    def unregister(self, keys: list[Key]) -> None:
        self._mirror.unregister(keys)
        super().unregister(keys)

    def clear(self) -> dict[str, bool]:
        self._mirror.clear()
        return super().clear()
