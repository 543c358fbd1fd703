"""The clients of the two roles that share a request: the prefill worker and the decode worker.

Each has a peer of the other role, of which it sees words only: a bootstrap, what was transferred,
a failure. A peer's last word always comes, also for a request that its client has given up.
"""

from __future__ import annotations

from .client import Client, Forward, Life
from .events import (
    Bootstrapped,
    Event,
    Finished,
    HandedOver,
    PeerFailed,
    RemotelyPrefilled,
    Reserve,
    Result,
    Retracted,
)
from .plan import Plan
from .world import Request, World

#: After which a peer does nothing more to the blocks of a request.
PEERS_WORDS = (HandedOver, RemotelyPrefilled, PeerFailed)


class PeerClient(Client):
    """What both roles share: bootstraps and lost peers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: Requests whose bootstrap has been told, and those whose peer has said its last word.
        self._met: set[str] = set()
        self._parted: set[str] = set()
        #: Requests whose blocks the engine took (``Retract``), until they are scheduled again.
        self.suspended: set[str] = set()

    def accepted(self, request: Request) -> None:
        super().accepted(request)
        event = Bootstrapped(request.id)
        self._holds_nothing.add(event)
        lag = self.world.draw(self.world.bootstrap_lag, "bootstrap", request.id)
        self._owe(event, request.arrival + lag)

    def events(self, round_: int) -> list[Event]:
        events = super().events(round_)
        self.suspended.update(e.request_id for e in events if isinstance(e, Retracted))
        return events

    def read(self, round_: int, plan: Plan) -> None:
        super().read(round_, plan)
        for batch in (plan.batch, plan.remote_prefill):
            self.suspended.difference_update(batch.request_ids if batch else ())

    def touched(self) -> set[str]:
        """Requests that have ended while their peer may still read or write their blocks."""
        words = (e for _, e in self._acks if isinstance(e, PEERS_WORDS))
        names = {word.request_id for word in words} - self._parted
        return {name for name in names if not self.lives[name].alive}

    def _due_acks(self, round_: int) -> list[Event]:
        return [*super()._due_acks(round_), *self._lost_peers(round_)]

    def _deliver(self, event: Event) -> list[Event]:
        if isinstance(event, (Bootstrapped, *PEERS_WORDS)):
            if event.request_id in self._parted:
                return []
            said = self._met if isinstance(event, Bootstrapped) else self._parted
            said.add(event.request_id)
        return super()._deliver(event)

    def strays(self, round_: int) -> list[Event]:
        """An event out of place: the scheduler must refuse it or ignore it, and go on as if it had
        not come."""
        names = self.live_ids()
        if not names or self.world.draw(3, "stray", round_):
            return []
        name = names[self.world.draw(len(names) - 1, "stray request", round_)]
        events = self._out_of_place(self.lives[name])
        return [events[self.world.draw(len(events) - 1, "stray event", round_)]] if events else []

    def _out_of_place(self, life: Life) -> list[Event]:
        """The events that `life` cannot take now."""
        name = life.request.id
        events: list[Event] = [Bootstrapped(name)] if name in self._met else []
        if not life.scheduled and name not in self.suspended:
            events += [Result(name, ()), Retracted(name), Reserve(name, 1), Finished(name)]
        return events

    def _aborts(self, round_: int) -> list[Event]:
        """The peer of an aborted request is told, and says at once or later that it is off."""
        events: list[Event] = []
        for event in super()._aborts(round_):
            name = event.request_id
            events.append(event)
            if self._has_word_due(name, round_) or self.world.draw(3, "peer told", name):
                self._parted.add(name)
                events.append(PeerFailed(name))
            elif name not in self._parted:
                self._owe(PeerFailed(name), self._transfer_round(round_, name))
        return events

    def _has_word_due(self, name: str, round_: int) -> bool:
        words = (e for at, e in self._acks if at <= round_ and isinstance(e, PEERS_WORDS))
        return any(word.request_id == name for word in words)

    def _lost_peers(self, round_: int) -> list[Event]:
        events: list[Event] = []
        for name, life in self.lives.items():
            if life.alive and name not in self._parted and self._peer_is_lost(life, round_):
                self._parted.add(name)
                life.alive = False
                events.append(PeerFailed(name))
        return events

    def _peer_is_lost(self, life: Life, round_: int) -> bool:
        name, loss = life.request.id, self.world.peer_loss
        if not loss or self.world.draw(loss - 1, "peer lost", name):
            return False
        return round_ >= life.request.arrival + self.world.draw(30, "peer lost in", name)

    def _transfer_round(self, round_: int, name: str) -> int:
        return round_ + 1 + self.world.draw(self.world.transfer_lag, "transfer", name)


class PrefillClient(PeerClient):
    """A prefill worker: a request ends when its peer has it."""

    def read(self, round_: int, plan: Plan) -> None:
        super().read(round_, plan)
        for name in plan.remote_decode.request_ids if plan.remote_decode else ():
            self._life(name)
            self._owe(HandedOver(name), self._transfer_round(round_, name))
        for name in plan.ended:
            self._owe(PeerFailed(name), self._transfer_round(round_, name))

    def _deliver(self, event: Event) -> list[Event]:
        if isinstance(event, HandedOver):
            self.lives[event.request_id].alive = False
        return super()._deliver(event)

    def _finish(self, life: Life) -> list[Event]:
        return []

    def _out_of_place(self, life: Life) -> list[Event]:
        name = life.request.id
        events = [*super()._out_of_place(life), RemotelyPrefilled(name, 1)]
        if name not in self.suspended:
            events.append(Finished(name))
        return events if life.produced else [*events, HandedOver(name), Reserve(name, 1)]

    def _result(self, life: Life, forward: Forward) -> Result:
        """The prompt's sample, and what the drafter proposes behind it."""
        request = life.request
        if not forward.tokens_max:
            return Result(request.id, ())
        token = request.output_token(life.produced)
        life.produced += 1
        drafted = self.world.width if self.world.draw(2, "drafts", request.id) else 0
        candidates = tuple(request.output_token(i) for i in range(1, drafted)) if drafted else ()
        return Result(request.id, (token,), (token, *candidates) if drafted > 1 else ())


class DecodeClient(PeerClient):
    """A decode worker: the prompt and the first token come from the peer."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: Requests whose prompt is on its way.
        self._landing: set[str] = set()

    def read(self, round_: int, plan: Plan) -> None:
        super().read(round_, plan)
        batch = plan.remote_prefill
        if batch is None:
            return
        for name, prompt in zip(batch.request_ids, batch.prefill_lengths, strict=True):
            life = self._life(name)
            life.scheduled += 1
            self._landing.add(name)
            self._parted.discard(name)  # A prompt whose blocks the engine took is asked for again.
            life.demanded, life.prompt_tokens = None, prompt
            token = life.request.output_token(life.produced)
            self._owe(RemotelyPrefilled(name, token), self._transfer_round(round_, name))

    def _deliver(self, event: Event) -> list[Event]:
        said = super()._deliver(event)
        if said and isinstance(event, RemotelyPrefilled):
            life = self.lives[event.request_id]
            self._landing.discard(event.request_id)
            if life.alive:
                life.produced += 1
                return [*said, *self._finish(life)]
        return said

    def landed(self) -> set[str]:
        """Live requests whose prompt has come: they decode, or recover."""
        names = {name for name, life in self.lives.items() if life.alive and life.scheduled}
        return names - self._landing

    def _out_of_place(self, life: Life) -> list[Event]:
        name = life.request.id
        events = super()._out_of_place(life)
        if not life.produced and name not in self.suspended:
            events += [HandedOver(name), Finished(name), Reserve(name, 1)]
        return events if name in self._landing else [*events, RemotelyPrefilled(name, 1)]


#: The client of each role.
CLIENTS: dict[str, type[Client]] = {"Fused": Client, "P": PrefillClient, "D": DecodeClient}
