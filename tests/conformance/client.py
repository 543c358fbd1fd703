"""The engine and its users, played from a world: turns plans into the events of later rounds.

`peers` adds what the prefill and the decode role need. A client is well behaved: it finishes a
request at or before its declared budget, returns results in order and at most
``overlap_schedule_depth`` of them late, acknowledges every copy. Results later than that are left
out on purpose: the reference then issues the same decodes again (liveness.md, "planning ahead
without results"), so that nothing is left to compare.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .events import Aborted, Event, Finished, Loaded, Reserve, Result, Retracted, Stored
from .plan import Plan
from .storage import Key, Storage
from .world import Request, World


class Misplanned(Exception):
    """A plan schedules a request that does not live."""


@dataclass
class Forward:
    """One forward of one request whose result is not in yet."""

    due: int
    #: Largest number of tokens it can bring; 0 for an intermediate chunk.
    tokens_max: int


@dataclass
class Life:
    """What the client knows of one request it submitted."""

    request: Request
    alive: bool = True
    produced: int = 0
    #: Tokens demanded of a full group so far; None before its first decode step is planned.
    demanded: int | None = None
    #: Its (rebased) prompt, and what its next decode step demands.
    prompt_tokens: int = 0
    next_demand: int = 0
    #: End of its last chunk while that did not complete its prompt, else None.
    chunk_end: int | None = None
    #: Certainly decoding, and its next demand may have changed.
    moved: bool = False
    #: Forwards it was ever scheduled in, and those whose results are not in, oldest first.
    scheduled: int = 0
    out: deque[Forward] = field(default_factory=deque)

    def hurry(self) -> None:
        """Makes every result that is out due before the next plan."""
        for forward in self.out:
            forward.due = 0


class Client:
    """The fused role's client. `read` takes a plan; `events` gives what is due before the next."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lives: dict[str, Life] = {}
        self.storage = Storage()
        #: Keys that turned out to be missing, to be unregistered before the next plan.
        self.lost_keys: list[Key] = []
        self._acks: list[tuple[int, Event]] = []
        self._stored_keys: dict[Stored, list[Key]] = {}
        #: Acknowledgements to come that give no Device block back.
        self._holds_nothing: set[Event] = set()
        #: Requests of a forward that was not run.
        self._withheld: list[str] = []
        self._unsubmitted = sorted(world.requests, key=lambda r: r.arrival)

    def arrivals(self, round_: int) -> list[Request]:
        """The requests to submit in `round_`, in order."""
        due = [r for r in self._unsubmitted if r.arrival <= round_]
        self._unsubmitted = self._unsubmitted[len(due) :]
        return due

    def accepted(self, request: Request) -> None:
        """`request` was submitted and not refused."""
        self.lives[request.id] = Life(request)

    def live_ids(self) -> list[str]:
        return [name for name, life in self.lives.items() if life.alive]

    def events(self, round_: int) -> list[Event]:
        """What reaches the scheduler before the plan of `round_`, in order.

        An abort may overtake the result of its request, which is late then and fed all the same.
        """
        overtakes = self.world.draw(1, "abort first", round_)
        early = self._aborts(round_) if overtakes else []
        results = self._results(round_)
        acks = self._due_acks(round_)
        if self.world.draw(1, "acks first", round_):
            results, acks = acks, results
        retracts = [Retracted(name) for name in self._withheld if self.lives[name].alive]
        self._withheld = []
        events = [*early, *results, *acks, *retracts, *self._aborts(round_)]
        return [*events, *self._reserves()]

    def strays(self, round_: int) -> list[Event]:
        """Events out of place, each to be offered on its own after those of `round_`."""
        return []

    def read(self, round_: int, plan: Plan) -> None:
        """Launches `plan`: notes the results and acknowledgements that it owes. Raises
        `Misplanned`."""
        if self._misses(round_, plan):
            self._withhold(round_, plan)
        else:
            for name, _, end, prompt in plan.batch.chunks():
                self._launch(round_, name, tokens_max=1 if end == prompt else 0)
                life = self._life(name)
                life.demanded, life.prompt_tokens = None, prompt
                life.chunk_end = end if end < prompt else None
            for name in plan.batch.decodes():
                self._count_demand(name)
                self._launch(round_, name, tokens_max=None)
            for place in range(len(plan.loads)):
                self._owe(Loaded(round_, place), self._ack_round(round_, "load", place))
        for place, copies in enumerate(plan.stores.values()):
            stored = Stored(round_, place)
            self._stored_keys[stored] = [(c.group, c.content_hash, c.offset) for c in copies]
            if not all(copy.guard for copy in copies):
                self._holds_nothing.add(stored)
            self._owe(stored, self._ack_round(round_, "store", place))
        for name in plan.ended:
            self.lives[name].alive = False

    def owed(self) -> bool:
        """True while a result, an acknowledgement or an arrival is still to come."""
        out = any(life.out for life in self.lives.values() if life.alive)
        return out or bool(self._acks) or bool(self._unsubmitted)

    def owes_results(self) -> bool:
        """True while a result, or an acknowledgement that gives blocks back, is still to come."""
        acks = any(event not in self._holds_nothing for _, event in self._acks)
        return acks or any(life.out for life in self.lives.values() if life.alive)

    def recovering(self) -> set[str]:
        """Readmitted requests whose rebased prompt is half done, for all the client knows."""
        return {
            name
            for name, life in self.lives.items()
            if life.alive and life.chunk_end is not None and life.scheduled > 1
        }

    def served(self) -> int:
        """Tokens and ends that clients have got so far; it never falls."""
        return sum(life.produced + (not life.alive) for life in self.lives.values())

    def done(self) -> bool:
        """True when every request has ended and nothing is owed."""
        return not self.owed() and not self.live_ids()

    def _launch(self, round_: int, name: str, tokens_max: int | None) -> None:
        """Notes one forward; `tokens_max` None: what its request accepts a step."""
        life = self._life(name)
        lag = self.world.draw(self.world.result_lag, "result", name, life.scheduled)
        life.scheduled += 1
        if tokens_max is None:
            tokens_max = life.request.accept
        life.out.append(Forward(round_ + 1 + lag, tokens_max))

    def _misses(self, round_: int, plan: Plan) -> bool:
        """True if a fetch of `plan` from storage finds nothing."""
        if not any(c.guard for copies in plan.loads.values() for c in copies):
            return False
        loss = self.world.storage_loss
        return loss > 0 and self.world.draw(loss - 1, "loss", round_) == 0

    def _withhold(self, round_: int, plan: Plan) -> None:
        """Does not run `plan`'s forward: its whole batch retracts, so that ranks stay aligned."""
        self._withheld = list(plan.batch.request_ids)
        for name in self._withheld:
            life = self._life(name)
            life.hurry()
            life.demanded, life.moved = None, False
        for place, copies in enumerate(plan.loads.values()):
            fetched = any(c.guard for c in copies)
            self._owe(Loaded(round_, place, success=not fetched), round_ + 1)
            self.lost_keys += self.storage.lose(copies)

    def _owe(self, event: Event, round_: int) -> None:
        self._acks.append((round_, event))

    def _due_acks(self, round_: int) -> list[Event]:
        due = [event for at, event in self._acks if at <= round_]
        self._acks = [(at, event) for at, event in self._acks if at > round_]
        return [said for event in due for said in self._deliver(event)]

    def _deliver(self, event: Event) -> list[Event]:
        """What reaches the scheduler when `event` is due."""
        if isinstance(event, Stored):
            keys = self._stored_keys.pop(event)
            if self.world.draw(2, "write through", event.round, event.place):
                self.storage.put(keys)
        return [event]

    def _life(self, name: str) -> Life:
        life = self.lives.get(name)
        if life is None or not life.alive:
            raise Misplanned(f"schedules {name!r}, which does not live")
        return life

    def _ack_round(self, round_: int, tier: str, place: int) -> int:
        return round_ + 1 + self.world.draw(self.world.ack_lag, tier, round_, place)

    def _results(self, round_: int) -> list[Event]:
        events: list[Event] = []
        for life in self.lives.values():
            while life.out and (len(life.out) > self.world.depth or life.out[0].due <= round_):
                forward = life.out.popleft()
                life.moved = life.demanded is not None
                if life.alive or self.world.draw(1, "late", life.request.id, round_):
                    events.append(self._result(life, forward))
                events += self._finish(life)
        return events

    def _finish(self, life: Life) -> list[Event]:
        """Ends a request that has got all it wants."""
        if not life.alive or life.produced < life.request.output:
            return []
        life.alive = False
        return [Finished(life.request.id)]

    def _count_demand(self, name: str) -> None:
        """A decode step of `name` was planned."""
        life = self._life(name)
        if life.demanded is None:
            life.demanded, life.next_demand = life.prompt_tokens, self.world.width
        life.demanded += life.next_demand
        life.moved = True
        life.next_demand = self.world.width

    def _reserves(self) -> list[Event]:
        """What an engine that verifies several tokens a step reports before a plan.

        A step that accepts fewer tokens than it is wide leaves the rest of its slots to the next
        one. The reference learns of it by this event only and otherwise takes a whole width of
        fresh slots each step; our side knows by itself (scheduler.md §5, first rule).
        """
        events: list[Event] = []
        for life in self.lives.values():
            moved, life.moved = life.moved, False
            if self.world.width == 1 or life.demanded is None or not (moved and life.alive):
                continue
            known = life.request.prompt_tokens() + life.produced
            out = sum(1 for forward in life.out if forward.tokens_max)
            if known == life.prompt_tokens:  # the prompt's own sample is among those out
                known, out = known + 1, out - 1
            end = known - 1 + (out + 1) * self.world.width
            life.next_demand = max(0, end - life.demanded)
            if life.next_demand != self.world.width:
                events.append(Reserve(life.request.id, life.next_demand))
        return events

    def _result(self, life: Life, forward: Forward) -> Result:
        request = life.request
        count = min(forward.tokens_max, request.output - life.produced)
        if count > 1:
            count = 1 + self.world.draw(count - 1, "accept", request.id, life.produced)
        tokens = tuple(request.output_token(life.produced + i) for i in range(count))
        life.produced += count
        return Result(request.id, tokens)

    def _aborts(self, round_: int) -> list[Aborted]:
        events: list[Aborted] = []
        for life in self.lives.values():
            abort = life.request.abort
            if life.alive and abort is not None and abort <= round_:
                life.alive = False
                events.append(Aborted(life.request.id))
        return events
