"""A failing world made small: edits are kept while the world still fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .play import Outcome
from .workers import Pool
from .world import Group, Request, World

#: Worlds played for one shrink, at most.
ATTEMPTS = 2000


def shrink(outcome: Outcome, pool: Pool) -> Outcome:
    """The outcome of the smallest world found that fails as `outcome` does."""
    attempts = 0
    progress = True
    while progress:
        progress = False
        for candidate in edits(outcome.world):
            attempts += 1
            if attempts > ATTEMPTS:
                return outcome
            (result,) = pool.play([candidate])
            if _same_failure(outcome, result):
                outcome, progress = result, True
                break  # Start over from the largest cuts.
    return outcome


def _same_failure(first: Outcome, second: Outcome) -> bool:
    """True if `second` fails as `first` does: the same verdict, the same end of our side."""
    if second.passed or first.verdict != second.verdict:
        return False
    return first.ours.split(":")[0] == second.ours.split(":")[0]


def edits(world: World) -> Iterator[World]:
    """Smaller worlds, the largest cuts first."""
    yield from _fewer_requests(world)
    yield from _fewer_groups(world)
    yield from _simpler_configuration(world)
    for i, request in enumerate(world.requests):
        for smaller in _smaller_request(request, world):
            requests = (*world.requests[:i], smaller, *world.requests[i + 1 :])
            yield replace(world, requests=requests)
    for i, group in enumerate(world.groups):
        for simpler in _simpler_group(group, world):
            yield replace(world, groups=(*world.groups[:i], simpler, *world.groups[i + 1 :]))


def _fewer_requests(world: World) -> Iterator[World]:
    count = len(world.requests)
    if count > 3:
        yield replace(world, requests=world.requests[: count // 2])
        yield replace(world, requests=world.requests[count // 2 :])
    if count > 1:
        for i in range(count - 1, -1, -1):
            yield replace(world, requests=world.requests[:i] + world.requests[i + 1 :])


def _fewer_groups(world: World) -> Iterator[World]:
    if len(world.groups) > 1:
        for i in range(len(world.groups) - 1, -1, -1):
            yield replace(world, groups=world.groups[:i] + world.groups[i + 1 :])


def _simpler_configuration(world: World) -> Iterator[World]:
    for field in (
        "ack_lag",
        "result_lag",
        "bootstrap_lag",
        "transfer_lag",
        "peer_loss",
        "mixed",
        "depth",
        "host_blocks",
        "replay_tokens",
        "disable_prefix_cache",
        "disable_l2_cache",
        "storage_loss",
        "storage",
    ):
        value = getattr(world, field)
        if value:
            simpler = replace(world, **{field: type(value)(0)})
            yield replace(simpler, result_lag=0) if field == "depth" else simpler
    for i in range(len(world.stored)):
        yield replace(world, stored=world.stored[:i] + world.stored[i + 1 :])
    for i in range(len(world.flushes)):
        yield replace(world, flushes=world.flushes[:i] + world.flushes[i + 1 :])
    if world.width > 1:
        width = world.width - 1
        requests = tuple(replace(r, accept=min(r.accept, width)) for r in world.requests)
        yield replace(world, width=width, requests=requests)
    for field, floor in (("device_blocks", 2), ("host_blocks", 1)):
        value = getattr(world, field)
        for smaller in (value // 2, value - 1):
            if floor <= smaller < value:
                yield replace(world, **{field: smaller})
    if world.rows != 16:
        yield replace(world, rows=16)
    if world.token_budget != 64:
        yield replace(world, token_budget=64)


def _smaller_request(request: Request, world: World) -> Iterator[Request]:
    for i in range(len(request.prompt)):
        if len(request.prompt) > 1:
            yield replace(request, prompt=request.prompt[:i] + request.prompt[i + 1 :])
    for i, (stream, length) in enumerate(request.prompt):
        for shorter in {length // 2, length - world.granularity, length - 1}:
            if 0 < shorter < length:
                prompt = (*request.prompt[:i], (stream, shorter), *request.prompt[i + 1 :])
                yield replace(request, prompt=prompt)
    for output in {1, request.output // 2, request.output - 1}:
        if 0 < output < request.output:
            yield replace(request, output=output)
    if request.abort is not None:
        yield replace(request, abort=None)
    if request.budget:
        yield replace(request, budget=0)
        if request.budget > request.output:
            yield replace(request, budget=request.output)
    if request.accept > 1:
        yield replace(request, accept=1)
    for arrival in {0, request.arrival // 2, request.arrival - 1}:
        if 0 <= arrival < request.arrival:
            yield replace(request, arrival=arrival)


def _simpler_group(group: Group, world: World) -> Iterator[Group]:
    if group.packing > 1:
        yield replace(group, packing=1)
    if group.granularity != world.granularity:
        yield replace(group, granularity=world.granularity)
    if group.window is not None:
        for window in {1, group.window // 2, group.window - 1}:
            if 0 < window < group.window:
                yield replace(group, window=window)
