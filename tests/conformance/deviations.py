"""Where we differ from the reference on purpose: which rule, and why.

A world whose sides diverge passes only if one of `DEVIATIONS` explains the first divergence. Each
entry states the rule of the document that decides, and why the reference breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .client import Client
from .compare import Difference
from .peers import DecodeClient, PeerClient
from .plan import Plan
from .round import Round
from .world import World


@dataclass(frozen=True)
class Divergence:
    """The first round on which the sides differ."""

    world: World
    round: int
    #: Never empty; in the order of ``Comparator.compare``.
    differences: list[Difference]
    #: The plans of that round; None if the sides differ before they plan.
    theirs: Plan | None
    ours: Plan | None
    #: As it was before it read the plans of that round.
    client: Client
    #: The last rounds, this one included.
    rounds: list[Round]

    def fields(self) -> set[str]:
        """The names of the fields that differ, without what they are indexed by."""
        return {d.field.split("[")[0].split("(")[0].strip() for d in self.differences}


@dataclass(frozen=True)
class Deviation:
    """One reason to differ."""

    name: str
    #: The section of the document that decides.
    rule: str
    why: str
    explains: Callable[[Divergence], bool]


def _schedules_nothing(d: Divergence) -> bool:
    """Their plan is empty, ours is not, and nobody owes anything that could bring theirs on."""
    if d.theirs is None or d.ours is None or d.theirs.batch.request_ids:
        return False
    return bool(d.ours.batch.request_ids or d.ours.ended) and not d.client.owes_results()


def _chunks_can_start_inside_a_block(world: World) -> bool:
    """A later chunk of a sliding group need not begin where a block does."""
    budget = world.token_budget
    cut_short = any(g.kind == "state" for g in world.groups) and budget % world.granularity
    return any(
        group.kind == "replay"
        or (group.kind == "sliding" and (budget % group.granularity or cut_short))
        for group in world.groups
    )


def _recovers_in_windows(world: World) -> bool:
    """A recovery on the decode role computes chunks in the blocks of a sliding group."""
    return world.role == "D" and any(group.window is not None for group in world.groups)


def _refuses_what_never_runs(d: Divergence) -> bool:
    """We refuse a request that they accept, by the tighter bound."""
    tighter = d.world.width > 2 or _chunks_can_start_inside_a_block(d.world)
    tighter |= d.world.role == "P" or _recovers_in_windows(d.world)
    refused = [x for x in d.differences if x.field.startswith("refusal of")]
    return tighter and bool(refused) and all(x.theirs is None for x in refused)


def _exceeds_the_budget(d: Divergence) -> bool:
    """Their plan has more input than a round may take."""
    return d.theirs is not None and sum(d.theirs.batch.input_lengths) > d.world.token_budget


def _starts_a_second_recovery(d: Divergence) -> bool:
    """They readmit a request while another recovery is half done; we go on with that one."""
    if d.theirs is None or d.ours is None:
        return False
    half_done = d.client.recovering()
    theirs = next(d.theirs.batch.chunks(), None)
    ours = next(d.ours.batch.chunks(), None)
    return theirs is not None and bool(half_done - {theirs[0]}) and (ours or ("",))[0] != theirs[0]


def _cuts_a_landing(d: Divergence) -> bool:
    """Their remote prefill is not the whole prompt."""
    landing = d.theirs and d.theirs.remote_prefill
    return bool(landing) and any(end < prompt for _, _, end, prompt in landing.chunks())


def _feeds_the_prompt_again(d: Divergence) -> bool:
    """A first decode behind a recovery, the prompt's own sample still out: theirs names the
    prompt's last token as its input."""
    if d.world.role != "D" or d.fields() != {"decode_input_ids"}:
        return False
    (x,) = d.differences
    return all(ours in (theirs, -1) for theirs, ours in zip(x.theirs, x.ours, strict=True))


def _overtakes_a_recovery(d: Divergence) -> bool:
    """Their remote admission takes blocks while a recovery waits for some; ours seals newcomers."""
    landing = d.theirs and d.theirs.remote_prefill
    if landing is None or not isinstance(d.client, DecodeClient):
        return False
    ours = d.ours.remote_prefill.request_ids if d.ours and d.ours.remote_prefill else []
    stalled = d.client.landed() - set(d.theirs.batch.request_ids)
    # Beside a recovery that is stuck half done ours takes the recovery's blocks for the newcomer.
    retracts = bool(d.client.recovering()) and "waiting_size after the plan" in d.fields()
    return (landing.request_ids != ours or retracts) and bool(stalled)


def _leaves_out_a_window(d: Divergence) -> bool:
    """Their landing of a replayable group has no block where its window begins."""
    landing = d.theirs and d.theirs.remote_prefill
    if not landing:
        return False
    for group in (g for g in d.world.groups if g.kind == "replay"):
        rows = zip(landing.block_tables[group.id], landing.prefill_lengths, strict=True)
        for row, tokens in rows:
            first = max(0, tokens - (group.window or 1) + 1) // group.granularity
            if row[first] == 0:
                return True
    return False


def _forgets_a_landing(d: Divergence) -> bool:
    """Their remote prefill of a request that the engine had retracted counts as landed at once."""
    landing = d.theirs and d.theirs.remote_prefill
    suspended = d.client.suspended if isinstance(d.client, PeerClient) else set()
    fields = {"remote_prefilling_size after the plan", "pd_transfer_size after the plan"}
    return bool(landing) and not suspended.isdisjoint(landing.request_ids) and fields <= d.fields()


#: Gauges of how many blocks are in use.
BLOCK_GAUGES = ("active_", "available_", "empty_", "cache_group_available_pages")


def _holds_the_handover(d: Divergence) -> bool:
    """Our completing chunk holds more of a state group, and that is all that differs."""
    states = [group.id for group in d.world.groups if group.kind == "state"]
    longer = False
    for x in d.differences:
        if any(x.field.startswith(f"block_tables[{group}]") for group in states):
            theirs, ours = ([b for b in row if b >= 0] for row in (x.theirs, x.ours))
            if len(ours) <= len(theirs):
                return False
            longer = True
        elif not x.field.startswith(("pages_to_zero[state", *BLOCK_GAUGES)):
            return False
    return longer and d.world.role == "P"


def _keeps_room_for_handovers(d: Divergence) -> bool:
    """Their plan admits what ours leaves waiting, and leaves less than handovers may take; or it
    evicts less."""
    states = [group for group in d.world.groups if group.kind == "state"]
    if d.world.role != "P" or d.theirs is None or d.ours is None or not states:
        return False
    if all(x.field.startswith(BLOCK_GAUGES) for x in d.differences):
        return True
    ahead = set(d.theirs.batch.request_ids) - set(d.ours.batch.request_ids)
    left = d.rounds[-1].gauges["available_lcm_blocks"]  # Where the sides agree nothing is said.
    for x in d.differences:
        left = x.theirs if x.field == "available_lcm_blocks after the plan" else left
    to_come = len(d.client.live_ids()) * len(states) * d.world.width
    return bool(ahead) and left < to_come


def _holds_what_a_peer_touches(d: Divergence) -> bool:
    """We hold the blocks of an ended request until its peer's last word; they give them away."""
    touched = (*BLOCK_GAUGES, "pd_transfer_", "clear_", "can_clear_")
    gauges = all(x.field.startswith(touched) for x in d.differences)
    return gauges and isinstance(d.client, PeerClient) and bool(d.client.touched())


def _ends_what_cannot_go_on(d: Divergence) -> bool:
    """Our plan ends a request and says so."""
    return d.ours is not None and bool(d.ours.ended)


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "an end for what cannot go on",
        "liveness.md, an undeclared budget outgrows the pool",
        "the reference retracts a request that can never be readmitted and keeps it waiting for"
        " ever",
        _ends_what_cannot_go_on,
    ),
    Deviation(
        "a second recovery at once",
        "scheduler.md §5: at most one readmission is in progress per role",
        "the reference's readmission phase comes before the resident chunks and starts one recovery"
        " after the other, each half done",
        _starts_a_second_recovery,
    ),
    Deviation(
        "a round beyond its token budget",
        "scheduler.md §1 (max_scheduled_tokens), api.md",
        "the reference grants a blocked decode its blocks, and a place in the batch, when less of"
        " the round's budget is left than the step is wide",
        _exceeds_the_budget,
    ),
    Deviation(
        "a remote prefill cut short",
        "scheduler.md §3.2: the whole prompt at once",
        "the reference cuts a remote prefill at the promotion boundary: it asks its peer for a part"
        " of the prompt, takes the answer for the whole of it, and raises at the first decode",
        _cuts_a_landing,
    ),
    Deviation(
        "what a handover needs",
        "liveness.md, the role without retraction fills up",
        "the reference takes the state block that a handover needs when it hands over, and waits"
        " for ever if there is none; we hold it since the chunk that completes the prompt",
        _holds_the_handover,
    ),
    Deviation(
        "room for handovers",
        "liveness.md, the role without retraction fills up",
        "the reference lets newcomers take the state blocks that completed prompts need to be"
        " handed over; we keep room for them",
        _keeps_room_for_handovers,
    ),
    Deviation(
        "blocks that a peer may still touch",
        "scenarios.md 29, liveness.md 3",
        "the reference grants the blocks of an aborted request at once, though its peer may still"
        " read or write them; we hold them until the peer's last word",
        _holds_what_a_peer_touches,
    ),
    Deviation(
        "a prompt fed again",
        "api.md: decode_input_ids",
        "behind a recovery whose own sample is still out the reference names the prompt's last"
        " token as the input of the first decode; the executor knows better",
        _feeds_the_prompt_again,
    ),
    Deviation(
        "a newcomer ahead of a recovery",
        "scheduler.md §4: new-prompt admission is sealed behind a waiting readmission; §1.2, §5",
        "on the decode role the reference admits new prompts beside a recovery that lacks blocks,"
        " and may starve it",
        _overtakes_a_recovery,
    ),
    Deviation(
        "a window that has not landed",
        "scheduler.md §1.3, PD: the landed tail is what the first decode steps read",
        "the reference grants a replayable group no blocks below a prefix hit, though its window"
        " reaches there and nothing of it is cached",
        _leaves_out_a_window,
    ),
    Deviation(
        "a landing that nobody awaits",
        "scheduler.md §3.2 and §4",
        "the reference asks a peer for a retracted prompt again but decodes from the next round on,"
        " whatever has landed",
        _forgets_a_landing,
    ),
    Deviation(
        "a tighter bound on one request",
        "scheduler.md §1.4; liveness.md, an exempt request needs one block more",
        "the reference accepts a request that can never run or end: it does not count the verify"
        " window past the last token (width above 2), nor a chunk that starts inside a block of a"
        " sliding group, nor, on the prefill role, the decode slot of the completing chunk, nor, on"
        " the decode role, the chunks in which a sliding group recovers",
        _refuses_what_never_runs,
    ),
    Deviation(
        "an empty round",
        "liveness.md 1",
        "the reference schedules nothing though a live request exists and nothing is owed: its"
        " victim was the blocker and no waiting prompt fits, or the budget is left to a prompt that"
        " cannot use it, or all who hold blocks are exempt; it goes on a round later, or never",
        _schedules_nothing,
    ),
)


@dataclass(frozen=True)
class CapacityDeviation:
    """One reason to answer otherwise for a pool's size or a request's bound."""

    name: str
    rule: str
    why: str
    explains: Callable[[World, Difference], bool]


def _bounds_less(world: World, difference: Difference) -> bool:
    """Ours is the tighter answer, where the reference accepts what then never runs."""
    pages = "group_pages" in difference.field
    ours, theirs = difference.ours, difference.theirs
    if pages:
        tighter = all(o >= t for o, t in zip(ours, theirs, strict=True))
    else:
        tighter = isinstance(ours, int) and isinstance(theirs, int) and ours <= theirs
    forgotten = _chunks_can_start_inside_a_block(world) or _recovers_in_windows(world)
    return tighter and (forgotten or world.role == "P")


CAPACITY_DEVIATIONS: tuple[CapacityDeviation, ...] = (
    CapacityDeviation(
        "a chunk that starts inside a block",
        "scheduler.md §1.4",
        "chunks of a sliding group need not end on a block; a later one then starts inside a block"
        " and needs one more. The reference does not count it: it accepts prompts that never run."
        " On the prefill role it also forgets the decode slot of the completing chunk, on the"
        " decode role that a recovery computes chunks here.",
        _bounds_less,
    ),
)


def explained(world: World, difference: Difference) -> bool:
    """Whether an entry of `CAPACITY_DEVIATIONS` explains a difference of capacity or bound."""
    return any(d.explains(world, difference) for d in CAPACITY_DEVIATIONS)
