"""Every fence and step of a round, taken out or done early: each has to be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from tokenspeed.runtime.device import Event, Stream
from tokenspeed.runtime.executor import Fence, Launched, RoundExecutor
from tokenspeed.runtime.rounds import Round
from tokenspeed.runtime.simulated import SimulatedEvent

from .checksums import WatchedDevice


def without_fence(name: Fence) -> type[RoundExecutor]:
    """Rounds in which nobody waits there."""

    class Without(RoundExecutor):
        def _fence(self, fence: Fence, stream: Stream, event: Event) -> None:
            if fence != name:
                super()._fence(fence, stream, event)

    return Without


class NothingZeroed(RoundExecutor):
    def _zero(self, round_: Round) -> None:
        pass


class ZeroesFirst(RoundExecutor):
    """Steps 1 and 2 exchanged."""

    def _store(self, round_: Round) -> Any:
        super()._zero(round_)
        return super()._store(round_)

    def _zero(self, round_: Round) -> None:
        pass


class LoadsFirst(RoundExecutor):
    """Steps 1 and 3 exchanged."""

    def _store(self, round_: Round) -> Any:
        self._early = Launched([])
        self._ready = super()._load(round_, self._early)
        return super()._store(round_)

    def _load(self, round_: Round, launched: Launched) -> dict[int, Event]:
        launched.acknowledgements += self._early.acknowledgements
        return self._ready


class ForwardFirst(RoundExecutor):
    """Steps 2 and 5 exchanged."""

    def _zero(self, round_: Round) -> None:
        pass

    def _forward(self, *arguments: Any) -> None:
        super()._forward(*arguments)

    def _carry_out(self, round_: Round) -> Launched:
        launched = super()._carry_out(round_)
        super()._zero(round_)
        return launched


class AcknowledgesAtLaunch(RoundExecutor):
    """Copies told as over when they are on their stream."""

    def _carry_out(self, round_: Round) -> Launched:
        launched = super()._carry_out(round_)
        launched.acknowledgements = [
            replace(one, event=_over(one.event)) for one in launched.acknowledgements
        ]
        return launched


class AcknowledgesByForward(RoundExecutor):
    """Copies told as over when the stream of the forwards has come that far."""

    def _carry_out(self, round_: Round) -> Launched:
        event = self._main.record()
        launched = super()._carry_out(round_)
        launched.acknowledgements = [replace(one, event=event) for one in launched.acknowledgements]
        return launched


class ResultsAtLaunch(RoundExecutor):
    """Results read before their copy is over."""

    def _carry_out(self, round_: Round) -> Launched:
        launched = super()._carry_out(round_)
        if launched.results is not None:
            launched.results.event = _over(launched.results.event)  # type: ignore[misc]
        return launched


def _over(event: Event) -> SimulatedEvent:
    assert isinstance(event, SimulatedEvent)
    over = SimulatedEvent(event._device)
    over.passed = True
    return over


class ReusesStaging(WatchedDevice):
    """Staging buffers that are written again while their copy is in flight."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.staging._is_free = lambda event: True  # type: ignore[method-assign]


EXECUTORS: dict[str, type[RoundExecutor]] = {
    **{f"no fence: {name}": without_fence(name) for name in get_args(Fence)},
    "nothing zeroed": NothingZeroed,
    "zeroes before it stores": ZeroesFirst,
    "loads before it stores": LoadsFirst,
    "zeroes after the forward": ForwardFirst,
    "acknowledged at launch": AcknowledgesAtLaunch,
    "acknowledged by the forwards' stream": AcknowledgesByForward,
    "results at launch": ResultsAtLaunch,
}
DEVICES: dict[str, Callable[..., WatchedDevice]] = {"staging reused": ReusesStaging}
