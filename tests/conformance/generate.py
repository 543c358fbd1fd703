"""A world from one integer seed.

The weights lean towards pressure: pools of about what one or two requests need, undeclared
budgets (a declared one is prepaid and so never retracted, scheduler.md §4), prompts that share
prefixes, follow-up turns, slow acknowledgements.
"""

from __future__ import annotations

import random
from dataclasses import replace

from .world import Group, Request, World

#: What a world is about: anything, bounded replay (scheduler.md §1.3), or an L3 store.
FAMILIES = ("plain", "replay", "storage")
#: Role and family of the worlds that both sides play, and how many of them. Those with an L3 store
#: our side plays alone: what a fetch gives up for room is the reference's own, and it raises where
#: that is what the same prompt hits.
PLAYED = {
    ("Fused", "plain"): 2000,
    ("P", "plain"): 2000,
    ("D", "plain"): 2000,
    ("Fused", "replay"): 500,
    ("P", "replay"): 500,
    ("D", "replay"): 500,
}

#: Kinds of group side by side, with weights.
LAYOUTS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("full",), 4),
    (("full", "sliding"), 5),
    (("full", "state"), 5),
    (("full", "sliding", "state"), 4),
    (("full", "full"), 1),
    (("full", "sliding", "sliding"), 2),
    (("full", "state", "state"), 1),
    (("sliding",), 1),
    (("state",), 1),
    (("sliding", "state"), 1),
)
REPLAY_LAYOUTS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("full", "replay"), 4),
    (("full", "sliding", "replay"), 3),
    (("full", "replay", "replay"), 2),
    (("full", "full", "replay"), 1),
    (("sliding", "replay"), 1),
    (("replay",), 1),
)


def world_from_seed(seed: int, role: str = "Fused", family: str = FAMILIES[0]) -> World:
    """The world of `seed`: the same on every platform and Python version we support."""
    return Generator(seed, role, family).world()


class Generator:
    """Draws one world."""

    def __init__(self, seed: int, role: str, family: str) -> None:
        name = role if family == FAMILIES[0] else f"{role} {family}"
        self._random = random.Random(f"{name} {seed}")
        self._seed = seed
        self._role = role
        self._family = family

    def world(self) -> World:
        r = self._random
        granularity = r.choice((2, 4, 4, 8, 8, 16))
        width = r.choice((1, 1, 1, 2, 3, 4))
        depth = r.choice((0, 1))
        groups = self._groups(granularity)
        token_budget = self._token_budget(groups, granularity, width)
        requests = self._requests(granularity, width, depth)
        need = max(
            self._need(request, groups, granularity, width, token_budget) for request in requests
        )
        if r.random() < 0.04:
            requests = self._with_a_giant(requests, need * granularity)
        factor = r.choice((1.0, 1.15, 1.15, 1.3, 1.5, 1.5, 2.0, 3.0, 6.0))
        device_blocks = max(2, round(need * factor) + r.randint(0, 2))
        world = World(
            groups=groups,
            requests=requests,
            role=self._role,
            granularity=granularity,
            device_blocks=device_blocks,
            host_blocks=self._host_blocks(device_blocks),
            token_budget=token_budget,
            rows=r.choice((2, 3, 4, 8, 16, 16, 16)),
            width=width,
            depth=depth,
            mixed=r.random() < 0.5,
            disable_prefix_cache=r.random() < 0.07,
            disable_l2_cache=r.random() < 0.04,
            replay_tokens=r.choice((0, 0, 0, 0, 1, r.randint(2, 2 * granularity))),
            timing=self._seed,
            result_lag=r.choice((0, 1, 1, 3)) if depth else 0,
            ack_lag=r.choice((0, 0, 1, 2, 5)),
            flushes=tuple(sorted(r.sample(range(60), 4))) if r.random() < 0.08 else (),
        )
        if self._family == "storage":
            world = self._with_storage(world)
        return world if self._role == "Fused" else self._with_peers(world)

    def _groups(self, granularity: int) -> tuple[Group, ...]:
        r = self._random
        layouts = REPLAY_LAYOUTS if self._family == "replay" else LAYOUTS
        kinds = r.choices([k for k, _ in layouts], [w for _, w in layouts])[0]
        groups = []
        for i, kind in enumerate(kinds):
            divisors = [d for d in range(1, granularity + 1) if granularity % d == 0]
            window = None
            if kind in ("sliding", "replay"):
                window = r.choice(
                    (1, 2, 3, granularity, granularity + 1, r.randint(2, 4 * granularity), 64)
                )
                window = min(window, 24) if kind == "replay" else window
            groups.append(
                Group(
                    id=f"{kind}{i}",
                    kind=kind,
                    granularity=r.choice((granularity, granularity, r.choice(divisors))),
                    packing=r.choice((1, 1, 1, 2, 3, 4)),
                    window=window,
                )
            )
        return tuple(groups)

    def _token_budget(self, groups: tuple[Group, ...], granularity: int, width: int) -> int:
        """At least what the configuration rules ask for (api.md, scheduler.md §1.3)."""
        r = self._random
        budget = r.choice((granularity, 2 * granularity, 3 * granularity + 1, 16, 24, 32, 64, 128))
        for group in groups:
            if group.kind == "replay":
                window = group.window or 1
                budget = max(budget, window + max(window, granularity))
        if self._family == "replay":
            # Decodes leave as much to a prompt: with no more than it they get nothing.
            budget += r.choice((0, width, 4 * width, 16))
        return max(budget, granularity, width)

    def _requests(self, granularity: int, width: int, depth: int) -> tuple[Request, ...]:
        r = self._random
        count = r.randint(3, 12)
        longest = r.choice((24, 48, 100))
        output_max = r.choice((4, 12, 24, 40))
        undeclared = r.choice((0.3, 0.8, 1.0))
        gap = r.choice((0, 1, 3, 8))
        requests: list[Request] = []
        arrival = 0
        stream = 1
        for i in range(count):
            prompt, stream = self._prompt(requests, granularity, longest, stream)
            output = r.randint(1, output_max)
            # Planned ahead, the reference schedules a step past a budget that results still out
            # will spend (liveness.md, "past the declared budget"): there a client stops before it.
            budget = 0 if r.random() < undeclared else output + depth + r.choice((0, 0, 1, 5, 20))
            requests.append(
                Request(
                    id="abcdefghijkl"[i],
                    prompt=prompt,
                    output_stream=stream,
                    arrival=arrival,
                    output=output,
                    budget=budget,
                    accept=r.randint(1, width),
                    abort=arrival + r.choice((0, 3, 8, 20, 40, 60)) if r.random() < 0.15 else None,
                )
            )
            stream += 1
            arrival += r.randint(0, gap) * r.choice((0, 1, 1, 2))
        return tuple(requests)

    def _with_a_giant(self, requests: tuple[Request, ...], need: int) -> tuple[Request, ...]:
        """One prompt made longer than most pools could ever hold: to be refused (liveness §4)."""
        i = self._random.randrange(len(requests))
        giant = replace(requests[i], prompt=(*requests[i].prompt, (99, 12 * need)))
        return (*requests[:i], giant, *requests[i + 1 :])

    def _with_storage(self, world: World) -> World:
        """An L3 store behind the Host tier, which must be there (api.md)."""
        r = self._random
        return replace(
            world,
            host_blocks=world.host_blocks or r.randint(1, world.device_blocks),
            disable_l2_cache=False,
            disable_prefix_cache=False,
            storage=True,
            stored=tuple(request.id for request in world.requests if r.random() < 0.3),
            storage_loss=r.choice((0, 0, 2, 4)),
        )

    def _with_peers(self, world: World) -> World:
        r = self._random
        requests = tuple(
            replace(request, abort=request.arrival + r.choice((1, 2, 4, 7, 15, 30)))
            if r.random() < 0.08
            else request
            for request in world.requests
        )
        return replace(
            world,
            requests=requests,
            bootstrap_lag=r.choice((0, 0, 2, 8)),
            transfer_lag=r.choice((0, 1, 2, 6)),
            peer_loss=r.choice((0, 0, 4, 10)),
        )

    def _prompt(
        self, requests: list[Request], granularity: int, longest: int, stream: int
    ) -> tuple[tuple[tuple[int, int], ...], int]:
        """A prompt: fresh, a follow-up turn, or one that shares another's beginning."""
        r = self._random
        shared: list[tuple[int, int]] = []
        if requests and r.random() < 0.75:
            other = r.choice(requests)
            if r.random() < 0.3:
                shared = [*other.prompt, (other.output_stream, r.randint(1, other.output))]
            else:
                cut = r.randint(1, other.prompt_tokens())
                if r.random() < 0.6:
                    cut = max(granularity, cut - cut % granularity)
                shared = _first_tokens(other.prompt, cut)
        length = sum(n for _, n in shared)
        rest = r.randint(0 if shared else 1, max(1, longest - length))
        if shared and r.random() < 0.4:
            rest = r.randint(0, 2 * granularity)
        if length + rest > 2 * longest:
            shared, rest = _first_tokens(tuple(shared), longest), 1
        if rest:
            return (*shared, (stream, rest)), stream + 1
        return tuple(shared), stream

    def _need(
        self,
        request: Request,
        groups: tuple[Group, ...],
        granularity: int,
        width: int,
        token_budget: int,
    ) -> int:
        """About the LCM blocks that `request` needs when it runs alone."""
        output = 0 if self._role == "P" else max(request.output, request.budget)
        total = request.prompt_tokens() + output + 2 * width
        blocks = 0
        for group in groups:
            tokens = total
            if group.kind == "state":
                tokens = 3 * group.granularity + max(group.granularity, width)
            elif group.window is not None:
                tokens = min(total, group.window + min(token_budget, total) + 2 * width)
            slots = -(-tokens // group.granularity)
            blocks += -(-slots // group.packing)
        return blocks

    def _host_blocks(self, device_blocks: int) -> int:
        r = self._random
        return r.choice(
            (0, 0, r.randint(1, 4), device_blocks, device_blocks, 2 * device_blocks, 200)
        )


def _first_tokens(prompt: tuple[tuple[int, int], ...], count: int) -> list[tuple[int, int]]:
    segments = []
    for stream, length in prompt:
        if count <= 0:
            break
        segments.append((stream, min(length, count)))
        count -= length
    return segments
