"""Whether a side still serves its clients (liveness.md §1)."""

from __future__ import annotations

from .client import Client
from .plan import Plan
from .world import World

#: How a side can fail to end a world.
STILL = "stands still"
FOR_EVER = "runs for ever"

#: Rounds in which nothing changes and nothing is owed before a side is said to stand still.
STILL_ROUNDS = 3


class Liveness:
    """Watches whether a side still serves its clients."""

    def __init__(self, world: World) -> None:
        self._patience = world.patience()
        self._gauges: dict[str, int] | None = None
        self._served = -1
        self._still_rounds = 0
        self._fruitless_rounds = 0

    def observe(self, client: Client, plan: Plan, gauges: dict[str, int]) -> str | None:
        """Notes one round; `STILL` or `FOR_EVER` if nobody will ever be served again.

        A side stands still if it asks for nothing, and nothing changes, while nothing is owed to
        it. It runs for ever if it keeps asking but no client gets a token or an end.
        """
        still = plan.is_empty() and gauges == self._gauges and not client.owed()
        self._gauges = gauges
        self._still_rounds = self._still_rounds + 1 if still else 0
        served = client.served()
        self._fruitless_rounds = 0 if served != self._served else self._fruitless_rounds + 1
        self._served = served
        if self._still_rounds >= STILL_ROUNDS:
            return STILL
        return FOR_EVER if self._fruitless_rounds >= self._patience else None
