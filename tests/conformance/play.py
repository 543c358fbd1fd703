"""Plays one world: both sides in lockstep while they agree, then our side alone to its end."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from .client import Misplanned
from .compare import Comparator, Difference, compare_values
from .coverage import Coverage
from .deviations import DEVIATIONS, Deviation, Divergence, explained
from .liveness import FOR_EVER, STILL, Liveness
from .peers import CLIENTS
from .plan import Plan
from .player import ABORTS, MakeSide, Marker, Player, Raised, Silent
from .round import Round
from .world import World

#: Rounds kept for the report of a difference.
HISTORY_ROUNDS = 6

AGREES = "agrees"
DIFFERS = "differs"
REFUSED = "both refuse the configuration"
STANDS_STILL = "reference stands still"
RUNS_FOR_EVER = "reference runs for ever"
RAISES = "reference raises"

FINISHES = "finishes"


@dataclass
class Outcome:
    """How one world went."""

    world: World
    #: One of the names above, or ``deviation: <name>``.
    verdict: str = AGREES
    #: The round of the first difference, or the last one compared.
    round: int = 0
    differences: list[Difference] = field(default_factory=list)
    #: What led to the verdict, for a person; a line an entry.
    story: list[str] = field(default_factory=list)
    #: How our side ended: `FINISHES`, or what it did instead.
    ours: str = FINISHES
    features: set[str] = field(default_factory=set)
    rounds_compared: int = 0
    rounds_exact: int = 0

    @property
    def passed(self) -> bool:
        """True if nothing is left unexplained and our side served everyone."""
        return self.verdict != DIFFERS and self.ours == FINISHES


def play(
    world: World,
    ours: MakeSide,
    theirs: MakeSide | None,
    *,
    marker: Marker | None = None,
    their_calls_max: int | None = None,
    deviations: Sequence[Deviation] = DEVIATIONS,
    watch: Callable[[Round], None] = lambda _: None,
) -> Outcome:
    """Plays `world` to its end; without `theirs`, our side plays alone.

    `their_calls_max` is the number of calls after which the reference is known to end the
    process; `watch` sees every round.
    """
    marker = marker or Silent()
    match = Match(
        world,
        Player("ours", ours, marker),
        Player("theirs", theirs, marker, their_calls_max) if theirs else None,
        deviations,
        watch,
    )
    match.run()
    return match.outcome


class Match:
    """One world under way."""

    def __init__(
        self,
        world: World,
        ours: Player,
        theirs: Player | None,
        deviations: Sequence[Deviation],
        watch: Callable[[Round], None],
    ) -> None:
        self.world = world
        self.ours = ours
        self.theirs = theirs
        self.client = CLIENTS[world.role](world)
        self.comparator = Comparator([group.id for group in world.groups])
        self.coverage = Coverage(world)
        self.outcome = Outcome(world, features=self.coverage.features)
        self._deviations = deviations
        self._watch = watch
        self._history: deque[Round] = deque(maxlen=HISTORY_ROUNDS)
        self._round = Round(0)

    def run(self) -> None:
        """Plays to the end and fills in `outcome`."""
        if not self._start():
            return
        liveness = Liveness(self.world)
        try:
            for number in count():
                self._round = Round(number)
                self._history.append(self._round)
                plan, gauges = self._play_round()
                self._watch(self._round)
                if self.client.done():
                    self._check_end()
                    return
                if end := liveness.observe(self.client, plan, gauges):
                    if self.theirs:  # The two agree to the last, so this is theirs as well.
                        self.outcome.verdict = STANDS_STILL if end == STILL else RUNS_FOR_EVER
                        self.outcome.round = number
                    self._end_of_ours(end)
                    return
        except (Raised, Misplanned) as error:
            self._end_of_ours(str(error))
        finally:
            self.outcome.rounds_compared = self.comparator.rounds
            self.outcome.rounds_exact = self.comparator.exact_rounds

    def _start(self) -> bool:
        refusals = {}
        for player in (self.theirs, self.ours):
            if player is not None:
                try:
                    player.start(self.world)
                except Raised as error:
                    refusals[player.name] = error.error
        if len(refusals) == 2:
            self.outcome.verdict = REFUSED
            self.outcome.story = [f"{name}: {error}" for name, error in refusals.items()]
            return False
        if "ours" in refusals:
            self._end_of_ours(f"refuses the configuration: {refusals['ours']}")
            self.outcome.verdict = DIFFERS if self.theirs else AGREES
            return False
        if "theirs" in refusals:
            self._drop_theirs(RAISES, f"the configuration: {refusals['theirs']}")
        if self.theirs:
            self._compare_bounds()
            tokens = self.world.requests[0].tokens()
            self._compare(
                "of the first prompt", lambda p: {"hashes": p.call("prefix_hashes", tokens)}
            )
        if self.world.storage:
            self._fill_storage()
        return True

    def _play_round(self) -> tuple[Plan, dict[str, int]]:
        """One round of the sides still in play; returns our plan and the gauges after it."""
        number, client = self._round.number, self.client
        for request in client.arrivals(number):
            self._round.arrivals.append(request.id)
            refusal = self.ours.call("submit", request)
            self._compare_refusal(request, refusal)
            if refusal is None:
                client.accepted(request)
            else:
                self.coverage.add("refused request")
        events = client.events(number)
        self._round.events = events
        self.coverage.events(client, events)
        self._both("advance", events)
        for stray in client.strays(number):
            self._round.events.append(stray)
            taken = self.ours.call("offer", stray)
            self.coverage.add("event out of place, " + ("ignored" if taken else "refused"))
            self._compare(
                "is taken",
                lambda p, event=stray: {str(event): p.call("offer", event)},
                {str(stray): taken},
            )
        if number in self.world.flushes:
            self._clear()
        if self.world.storage:
            self._offer_storage()
        names = client.live_ids()
        before = self.ours.call("gauges", names)
        self._compare("after the events", lambda p: p.call("gauges", names), before)

        plan = self.ours.call("plan", number)
        self._round.plans["ours"] = plan
        after = self.ours.call("gauges", names)
        self._round.gauges = after
        self._compare_plans(plan, after)
        if self.theirs:
            self.coverage.plan(client, before, plan, after)
        client.read(number, plan)
        return plan, after

    def _fill_storage(self) -> None:
        """Puts into storage what another engine has computed of the world's prompts."""
        for request in self.world.requests:
            if request.id in self.world.stored:
                hashes = self.ours.call("prefix_hashes", request.tokens())
                self.client.storage.put(self.ours.call("expand", hashes))

    def _offer_storage(self) -> None:
        """Tells both sides what storage holds of what their waiting prompts could use."""
        lost, self.client.lost_keys = self.client.lost_keys, []
        if lost:
            self._both("unregister", lost)
        hashes = self.ours.call("waiting_hashes")
        self._compare(
            "that wait", lambda p: {"hashes": p.call("waiting_hashes")}, {"hashes": hashes}
        )
        keys = self.ours.call("expand", hashes)
        self._compare(
            "of the waiting hashes", lambda p: {"keys": p.call("expand", hashes)}, {"keys": keys}
        )
        if held := self.client.storage.held(keys):
            self._both("register", held)

    def _both(self, method: str, *args: Any) -> None:
        """Makes one call, which has no answer, on every side in play."""
        self.ours.call(method, *args)
        self._theirs(lambda p: p.call(method, *args))

    def _clear(self) -> None:
        """Empties the caches of both sides; whether they let it happen must agree."""
        cleared = self.ours.call("clear")
        self._compare("of the cache", lambda p: p.call("clear"), cleared)
        if cleared["clear_cache"]:
            self.coverage.add("cache cleared")

    def _theirs(self, run: Callable[[Player], Any]) -> Any:
        """Calls the reference if it is still in play; leaves it behind if it raises."""
        if self.theirs is None:
            return None
        try:
            return run(self.theirs)
        except Raised as error:
            aborted = error.error == ABORTS
            self._drop_theirs(ABORTS if aborted else RAISES, str(error))
            return None

    def _compare(
        self, title: str, read: Callable[[Player], dict[str, Any]], ours: Any = None
    ) -> None:
        if self.theirs is None:
            return
        ours = read(self.ours) if ours is None else ours
        theirs = self._theirs(read)
        if theirs is not None:
            self._judge(compare_values(title, theirs, ours))

    def _compare_bounds(self) -> None:
        ours, theirs = self.ours.call("bounds"), self._theirs(lambda p: p.call("bounds"))
        if theirs is not None:
            differences = compare_values("of the scheduler", theirs, ours)
            self._judge([d for d in differences if not explained(self.world, d)])

    def _compare_refusal(self, request: Any, ours: str | None) -> None:
        theirs = self._theirs(lambda p: (p.call("submit", request),))
        if theirs is not None and (theirs[0] is None) != (ours is None):
            self._judge([Difference(f"refusal of {request.id}", theirs[0], ours)])

    def _compare_plans(self, ours: Plan, gauges: dict[str, int]) -> None:
        theirs = self._theirs(lambda p: p.call("plan", self._round.number))
        if theirs is None:
            return
        self._round.plans = {"theirs": theirs, "ours": ours}
        differences = self.comparator.compare(theirs, ours)
        names = self.client.live_ids()
        their_gauges = self._theirs(lambda p: p.call("gauges", names))
        if their_gauges is not None:
            differences += compare_values("after the plan", their_gauges, gauges)
            self._judge(differences)

    def _judge(self, differences: list[Difference]) -> None:
        """Ends the comparison at the first round with a difference, and says why."""
        self.outcome.round = self._round.number
        if not differences or self.theirs is None:
            return
        divergence = Divergence(
            self.world,
            self._round.number,
            differences,
            self._round.plans.get("theirs"),
            self._round.plans.get("ours"),
            self.client,
            list(self._history),
        )
        self.outcome.differences = differences
        deviation = next((d for d in self._deviations if d.explains(divergence)), None)
        if deviation:
            self._drop_theirs(f"deviation: {deviation.name}", deviation.why)
        elif verdict := self._their_end():
            self._drop_theirs(verdict, "the reference serves nobody from here on")
        else:
            self._drop_theirs(DIFFERS)

    def _their_end(self) -> str | None:
        """`STANDS_STILL` or `RUNS_FOR_EVER` if the reference, alone from this round on, serves
        nobody any more; in a standstill it does not even plan anything any more."""
        assert self.theirs is not None
        client, liveness = copy.deepcopy(self.client), Liveness(self.world)
        served, planned = client.served(), False
        number, plan = self._round.number, self._round.plans.get("theirs")
        try:
            while client.served() == served:
                if plan is None:
                    plan = self.theirs.call("plan", number)
                planned |= not plan.is_empty()
                client.read(number, plan)
                gauges = self.theirs.call("gauges", client.live_ids())
                end = liveness.observe(client, plan, gauges)
                if end == STILL and not planned:
                    return STANDS_STILL
                if end:
                    return RUNS_FOR_EVER if end == FOR_EVER else None
                number, plan = number + 1, None
                for request in client.arrivals(number):
                    if self.theirs.call("submit", request) is None:
                        client.accepted(request)
                self.theirs.call("advance", client.events(number))
        except (Raised, Misplanned):
            pass
        return None

    def _drop_theirs(self, verdict: str, *story: str) -> None:
        self.outcome.verdict = verdict
        self.outcome.round = self._round.number
        self.outcome.story = [*story, *self._history_lines()]
        self.theirs = None

    def _check_end(self) -> None:
        """When nobody lives and nothing is owed, every block is empty or evictable (liveness 2)."""
        gauges = self.ours.call("gauges", [])
        usable = self.world.device_blocks
        leaks = {
            name: gauges[name]
            for name, wanted in {
                "active_lcm_blocks": 0,
                "available_lcm_blocks": usable,
                "bootstrapping_size": 0,
                "waiting_size": 0,
                "prefilling_size": 0,
                "remote_prefilling_size": 0,
                "decoding_size": 0,
                "pd_transfer_size": 0,
            }.items()
            if gauges[name] != wanted
        }
        if leaks:
            self._end_of_ours(f"leaks: {leaks}")
        elif not self.ours.call("can_clear_cache"):
            self._end_of_ours("leaks: can_clear_cache is false")

    def _end_of_ours(self, what: str) -> None:
        self.outcome.ours = what
        self.outcome.story += [f"ours {what} in round {self._round.number}", *self._history_lines()]

    def _history_lines(self) -> list[str]:
        return [line for round_ in self._history for line in round_.lines()]
