"""The comparator can fail: one fact of one plan is altered, and that round must be found.

Both sides are the reference here; one of them is made to lie once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from .compare import Renaming
from .generate import world_from_seed
from .liveness import STILL
from .plan import Batch, Copy, Plan
from .play import AGREES, DIFFERS, FINISHES, RAISES, play
from .side import Side
from .world import Group, Request, World

THEIRS = "tokenspeed_scheduler"
pytest.importorskip(THEIRS, reason="the reference has no wheel here")

#: A small world with stores, retractions and loads, of unpacked groups.
WORLD = World(
    groups=(Group("full"), Group("sliding", kind="sliding", window=5)),
    requests=(
        Request("a", prompt=((1, 14),), output_stream=2, output=20),
        Request("b", prompt=((1, 8), (3, 5)), output_stream=4, output=20),
        Request("c", prompt=((1, 8), (5, 3)), output_stream=6, arrival=6, output=12),
    ),
    device_blocks=14,
    host_blocks=20,
    token_budget=16,
    mixed=True,
    ack_lag=1,
)

#: Worlds in which each lie is told until one has a plan that it fits.
SEEDS = range(60)

#: A lie: takes a true plan and returns a false one, or None if it does not fit the plan.
Lie = Callable[[Plan], "Plan | None"]


def _first(values: list[Any], new: Callable[[Any], Any]) -> list[Any]:
    return [new(values[0]), *values[1:]]


def batch_field(name: str, new: Callable[[Any], Any], part: str = "batch") -> Lie:
    """Alters the first entry of a list of the batch `part`."""

    def lie(plan: Plan) -> Plan | None:
        batch = getattr(plan, part)
        values = getattr(batch, name) if batch else ()
        if not values:
            return None
        changes: dict[str, Any] = {name: _first(values, new)}
        altered: dict[str, Any] = {part: replace(batch, **changes)}
        return replace(plan, **altered)

    return lie


def drop(part: str) -> Lie:
    """Leaves out one of the batches of the peers."""

    def lie(plan: Plan) -> Plan | None:
        nothing: dict[str, Any] = {part: None}
        return replace(plan, **nothing) if getattr(plan, part) else None

    return lie


def swap_requests(plan: Plan) -> Plan | None:
    batch = plan.batch
    if batch.num_extends < 2:
        return None
    first, second, *rest = batch.request_ids
    return replace(plan, batch=replace(batch, request_ids=[second, first, *rest]))


def skip_decodes(plan: Plan) -> Plan | None:
    return replace(plan, batch=Batch()) if plan.batch.request_ids else None


def table(new: Callable[[list[int]], list[int] | None]) -> Lie:
    """Alters the first row that `new` fits."""

    def lie(plan: Plan) -> Plan | None:
        for group, rows in plan.batch.block_tables.items():
            for i, row in enumerate(rows):
                altered = new(row)
                if altered is not None:
                    tables = plan.batch.block_tables | {group: [*rows[:i], altered, *rows[i + 1 :]]}
                    return replace(plan, batch=replace(plan.batch, block_tables=tables))
        return None

    return lie


def hole(row: list[int]) -> list[int] | None:
    return [0, *row[1:]] if row and row[0] > 0 else None


def shorter(row: list[int]) -> list[int] | None:
    return row[:-1] if row else None


def exchange_slots(plan: Plan) -> Plan | None:
    """Exchanges two slots of a table. Not in a plan with fresh blocks: there it is a renaming."""

    def exchange(row: list[int]) -> list[int] | None:
        return [row[1], row[0], *row[2:]] if len(row) > 1 and min(row[:2]) > 0 else None

    return None if plan.pages_to_zero or plan.batch.num_extends else table(exchange)(plan)


def forget_zero(plan: Plan) -> Plan | None:
    for group, ids in plan.pages_to_zero.items():
        return replace(plan, pages_to_zero=plan.pages_to_zero | {group: ids[1:]})
    return None


def copies(tier: str, new: Callable[[list[Copy]], list[Copy] | None]) -> Lie:
    """Alters the first operation of a tier."""

    def lie(plan: Plan) -> Plan | None:
        operations: dict[int, list[Copy]] = getattr(plan, tier)
        for op_id, op in operations.items():
            altered = new(op)
            if altered is not None:
                changes: dict[str, Any] = {tier: operations | {op_id: altered}}
                return replace(plan, **changes)
        return None

    return lie


def copy_field(**new: Callable[[Any], Any]) -> Callable[[list[Copy]], list[Copy]]:
    ((name, change),) = new.items()
    return lambda op: _first(op, lambda c: replace(c, **{name: change(getattr(c, name))}))


def reverse(op: list[Copy]) -> list[Copy] | None:
    return op[::-1] if len(op) > 1 else None


def add_one(value: int) -> int:
    return value + 1


LIES: dict[str, tuple[Lie, str]] = {
    "another request": (batch_field("request_ids", lambda _: "z"), "request_ids"),
    "requests exchanged": (swap_requests, "request_ids"),
    "nothing scheduled": (skip_decodes, "request_ids"),
    "another row": (batch_field("request_pool_indices", add_one), "request_pool_indices"),
    "a longer chunk": (batch_field("input_lengths", add_one), "input_lengths"),
    "a longer prompt": (batch_field("prefill_lengths", add_one), "prefill_lengths"),
    "another token": (batch_field("input_ids", add_one), "input_ids"),
    "another shifted token": (batch_field("shifted_input_ids", add_one), "shifted_input_ids"),
    "a longer hit": (batch_field("extend_prefix_lens", add_one), "extend_prefix_lens"),
    "tokens re-fed": (batch_field("extend_replay_lens", add_one), "extend_replay_lens"),
    "a decode token": (batch_field("decode_input_ids", add_one), "decode_input_ids"),
    "a hole": (table(hole), "block_tables"),
    "two slots exchanged": (exchange_slots, "block_tables"),
    "a slot lost": (table(shorter), "block_tables"),
    "a block not zeroed": (forget_zero, "pages_to_zero"),
    "a store less": (copies("stores", lambda op: op[1:]), "stores"),
    "a store guarded otherwise": (copies("stores", copy_field(guard=lambda g: not g)), "stores"),
    "a store of another key": (
        copies("stores", copy_field(content_hash=lambda h: h[::-1])),
        "stores",
    ),
    "a store of another group": (copies("stores", copy_field(group=add_one)), "stores"),
    "a store of another ordinal": (copies("stores", copy_field(offset=add_one)), "stores"),
    "a store in another order": (copies("stores", reverse), "order of stores"),
    "a load less": (copies("loads", lambda op: op[1:]), "loads"),
    "a load from storage": (copies("loads", copy_field(guard=lambda g: not g)), "loads"),
    "a load in another order": (copies("loads", reverse), "order of loads"),
}


def _remote(part: str, role: str) -> dict[str, tuple[Lie, str, str]]:
    """Lies about a batch of the peers, with what they alter and the role that plans it."""
    changes: dict[str, Callable[[Any], Any]] = {
        "request_pool_indices": add_one,
        "input_lengths": add_one,
        "prefill_lengths": add_one,
    }
    if role == "P":
        changes["decode_input_ids"] = add_one
        changes["spec_candidate_ids"] = lambda row: [*row, 1]
    else:
        changes["input_ids"] = add_one
        changes["extend_prefix_lens"] = add_one
    lies = {
        f"another {name} in {part}": (batch_field(name, new, part), f"{part}.{name}", role)
        for name, new in changes.items()
    }
    return {f"no {part}": (drop(part), part, role), **lies}


PEER_LIES = {**_remote("remote_decode", "P"), **_remote("remote_prefill", "D")}


class Liar(Side):
    """A side that tells `lie` in the first plan that it fits, or in every one."""

    def __init__(self, lie: Lie, world: World, always: bool = False) -> None:
        super().__init__(THEIRS, world)
        self._lie = lie
        self._always = always
        self.told: int | None = None

    def plan(self, round_: int) -> Plan:
        plan = super().plan(round_)
        false = self._lie(plan) if self.told is None or self._always else None
        if false is None:
            return plan
        self.told = round_
        return false


HONEST = partial(Side, THEIRS)


def _given(side: Side, _: World) -> Side:
    return side


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_found_in_its_round(name: str) -> None:
    _assert_found(*LIES[name], role="Fused")


@pytest.mark.parametrize("name", PEER_LIES)
def test_a_lie_about_a_peer_is_found_in_its_round(name: str) -> None:
    _assert_found(*PEER_LIES[name])


def _assert_found(lie: Lie, field: str, role: str) -> None:
    for seed in SEEDS:
        world = world_from_seed(seed, role)
        liar = Liar(lie, world)
        match = play(world, partial(_given, liar), HONEST, deviations=())
        if liar.told is not None:
            assert (match.verdict, match.round) == (DIFFERS, liar.told)
            assert any(d.field.startswith(field) for d in match.differences), match.differences
            return
    pytest.fail(f"no plan of seeds {SEEDS} fits the lie")


class Altered(Side):
    """A side that answers some calls otherwise, from its third round on."""

    def __init__(self, world: World, **answers: Any) -> None:
        super().__init__(THEIRS, world)
        self._answers = answers
        self._rounds = 0

    def plan(self, round_: int) -> Plan:
        self._rounds += 1
        plan: Plan = self._answer("plan", super().plan(round_))
        return plan

    def gauges(self, request_ids: Iterable[str]) -> dict[str, int]:
        gauges: dict[str, int] = self._answer("gauges", super().gauges(request_ids))
        return gauges

    def submit(self, request: Request) -> str | None:
        refusal = super().submit(request)
        return self._answers["submit"](refusal) if "submit" in self._answers else refusal

    def bounds(self) -> dict[str, int]:
        bounds = super().bounds()
        return self._answers["bounds"](bounds) if "bounds" in self._answers else bounds

    def _answer(self, call: str, value: Any) -> Any:
        # Not in the first rounds, so that some of the world is played in agreement.
        return self._answers[call](value) if call in self._answers and self._rounds > 2 else value


def _raise(_: object) -> Any:
    raise RuntimeError("as told")


@pytest.mark.parametrize(
    ("answers", "field"),
    [
        ({"gauges": lambda g: g | {"active_lcm_blocks": -1}}, "active_lcm_blocks"),
        ({"gauges": lambda g: g | {"request_token_size(a)": -1}}, "request_token_size(a)"),
        ({"submit": lambda _: "refused"}, "refusal of a"),
        ({"bounds": lambda b: b | {"max_single_request_tokens": 1}}, "max_single_request_tokens"),
    ],
)
def test_another_answer_is_found(answers: dict[str, Any], field: str) -> None:
    outcome = play(WORLD, partial(Altered, **answers), HONEST, deviations=())
    assert outcome.verdict == DIFFERS
    assert outcome.differences[0].field.startswith(field)


def test_a_side_that_raises_has_failed() -> None:
    outcome = play(WORLD, partial(Altered, plan=_raise), HONEST)
    assert "raises in plan" in outcome.ours
    assert not outcome.passed


def test_a_reference_that_raises_ends_the_comparison_only() -> None:
    outcome = play(WORLD, HONEST, partial(Altered, plan=_raise))
    assert (outcome.verdict, outcome.round, outcome.ours) == (RAISES, 2, FINISHES)
    assert outcome.passed


def test_a_side_that_schedules_nothing_stands_still() -> None:
    outcome = play(WORLD, partial(Altered, plan=lambda _: Plan()), HONEST)
    assert (outcome.verdict, outcome.ours) == (DIFFERS, STILL)


def test_a_reference_that_schedules_nothing_stands_still() -> None:
    outcome = play(WORLD, HONEST, partial(Altered, plan=lambda _: Plan()))
    # It is a difference that the suite has a name for.
    assert (outcome.verdict, outcome.round, outcome.ours) == (
        "deviation: an empty round",
        2,
        FINISHES,
    )


def test_a_block_that_stays_owned_is_a_leak() -> None:
    outcome = play(WORLD, partial(Altered, gauges=lambda g: g | {"active_lcm_blocks": 1}), None)
    assert outcome.ours.startswith("leaks")


def test_blocks_may_have_other_names() -> None:
    """Mirrored ids in one group on one side: no difference, yet no round is equal to the id."""

    def mirror(plan: Plan) -> Plan:
        def other(block: int) -> int:
            return block if block <= 0 else WORLD.device_blocks + 1 - block

        tables = {
            group: [[other(block) for block in row] for row in rows]
            for group, rows in plan.batch.block_tables.items()
        }
        return replace(
            plan,
            batch=replace(plan.batch, block_tables=tables),
            pages_to_zero={g: [other(b) for b in ids] for g, ids in plan.pages_to_zero.items()},
            stores={
                op: [replace(c, source=other(c.source)) for c in copies]
                for op, copies in plan.stores.items()
            },
            loads={
                op: [replace(c, destination=other(c.destination)) for c in copies]
                for op, copies in plan.loads.items()
            },
        )

    outcome = play(WORLD, partial(Liar, mirror, always=True), HONEST)
    assert outcome.verdict == AGREES
    assert outcome.rounds_exact < outcome.rounds_compared


def test_a_renaming_is_one_to_one() -> None:
    renaming = Renaming()
    assert renaming.match("device full", 3, 5)
    assert renaming.match("device full", 3, 5)
    assert not renaming.match("device full", 3, 4)
    assert not renaming.match("device full", 4, 5)
    assert renaming.match("device other", 4, 5)
    assert not renaming.match("device full", 0, 1)
    renaming.forget("device full", theirs=[3], ours=[])
    assert renaming.match("device full", 4, 5)
