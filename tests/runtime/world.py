"""Worlds by seed: a model, pools, requests, arrivals and aborts; and a game that plays one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenspeed.runtime.drafter import PromptLookup
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.recipe import Kind
from tokenspeed.runtime.request import Output, Request
from tokenspeed.runtime.simulated import PACES, Pace
from tokenspeed.scheduler import SchedulerConfig

from .checksums import Checksums, WatchedDevice, WatchedScheduler
from .toy import Story, Toy, ToyLayer, alone

STEPS_MAX = 3000


class Wrong(AssertionError):
    """An engine that says something else than the request alone."""


class NeverOver(Wrong):
    """An engine that plans round after round and ends nothing."""


@dataclass
class World:
    """One seed's draw."""

    seed: int
    toy: Toy
    config: SchedulerConfig
    pace: Pace
    requests: dict[str, Request]
    arrivals: dict[str, int]
    """Step at which each request comes."""
    aborts: dict[str, int]
    """Step at which a client gives up."""
    finishes: dict[str, int]
    """Step at which a client has enough of it."""
    drafts: bool
    raises: dict[str, int] = field(default_factory=dict)
    """As `Toy.raises`."""

    def __str__(self) -> str:
        config = self.config
        kinds = "+".join(layer.kind for layer in self.toy.layers)
        return (
            f"seed {self.seed}: {kinds}, {config.num_device_pages} and {config.num_host_pages} "
            f"pages, depth {config.overlap_schedule_depth}, width {config.decode_input_tokens}, "
            f"{len(self.requests)} requests, {len(self.aborts)} aborts, "
            f"{len(self.raises)} failures, {self.pace}"
        )


def draw(seed: int, *, pressed: bool = False) -> World:
    """The world of a seed; `pressed`: one that retracts and reloads much, with rounds planned ahead
    and nothing that fails."""
    r = random.Random(seed)
    page_tokens = r.choice((2, 4))
    width = 1 if pressed else r.choice((1, 1, 1, 2, 3))
    depth = 1 if pressed else r.choice((0, 1, 1))
    layers = _layers(r, page_tokens)
    toy = Toy(layers, page_tokens, vocabulary=3 if width > 1 else 40)
    window = max(
        (layer.window_tokens or 0 for layer in layers if layer.kind == "replay"), default=0
    )
    settings: dict[str, Any] = {
        "max_scheduled_tokens": max(r.choice((8, 16, 24, 40)), 2 * window + 4, 2 * page_tokens),
        "max_batch_size": 6 if pressed else r.choice((2, 4, 6)),
        "decode_input_tokens": width,
        "overlap_schedule_depth": depth,
        "enable_mixed_prefill_decode": r.random() < 0.5,
        "disable_prefix_cache": r.random() < 0.1,
    }
    requests = _requests(r, pressed)
    largest = max(len(q.tokens) + q.max_new_tokens for q in requests.values())
    spare = (0, 1, 2) if pressed else (0, 0, 1, 2, 4, 12)
    pages = _least_pages(toy, largest + width, settings) + r.choice(spare)
    host_pages = r.choice((4 * pages,) if pressed else (0, 3, pages, 4 * pages, 4 * pages))
    config = toy.recipe().scheduler_config(
        num_device_pages=pages, num_host_pages=host_pages, **settings
    )
    spread = r.choice((1, 20, 60))
    aborts, raises = (0, 0) if pressed else (r.choice((0, 0, 0.3)), r.choice((0, 0, 0, 0.3)))
    finishes = 0.3 if seed % 4 == 0 else 0
    toy.raises_early = r.random() < 0.5
    return World(
        seed,
        toy,
        config,
        r.choice(PACES),
        requests,
        arrivals={name: r.randrange(spread) for name in requests},
        aborts={name: r.randrange(60) for name in requests if r.random() < aborts},
        drafts=width > 1 and r.random() < 0.8,
        raises={name: r.randrange(8) for name in requests if r.random() < raises},
        finishes={
            name: r.randrange(60) for name in requests if not pressed and r.random() < finishes
        },
    )


def _layers(r: random.Random, page_tokens: int) -> list[ToyLayer]:
    kinds: tuple[Kind, ...] = r.choice(
        (
            ("full",),
            ("full", "full"),
            ("full", "sliding"),
            ("sliding", "full", "sliding"),
            ("full", "state"),
            ("state", "full", "state"),
            ("full", "replay"),
            ("full", "sliding", "state"),
        )
    )
    blocks = {kind: r.choice((None, None, page_tokens // 2)) for kind in sorted(set(kinds))}
    windows = {"sliding": r.choice((1, 3, 5)), "replay": r.choice((2, 3, 6))}
    return [ToyLayer(kind, windows.get(kind), blocks[kind]) for kind in kinds]


def _requests(r: random.Random, pressed: bool) -> dict[str, Request]:
    """Prompts of a few families, each a prefix that many share and a tail of its own."""
    families = [[r.randrange(1000) for _ in range(24)] for _ in range(r.choice((1, 2, 3)))]
    longest = r.choice((12, 24))
    requests = {}
    for at in range(16 if pressed else r.choice((2, 4, 8, 12))):
        shared = r.choice(families)[: r.choice((longest, r.randrange(longest)))]
        prompt = shared + [r.randrange(1000) for _ in range(r.randrange(1, 10))]
        declared = 0 if pressed else r.choice((None, 0, 0))
        new_tokens = r.choice((4, 12, 24) if pressed else (1, 4, 12, 24))
        requests[f"r{at}"] = Request(f"r{at}", prompt, new_tokens, declared_new_tokens=declared)
    return requests


def _least_pages(toy: Toy, tokens: int, settings: dict[str, Any]) -> int:
    return toy.recipe().pages_for(
        1, tokens, **{k: v for k, v in settings.items() if k != "max_batch_size"}
    )


@dataclass
class Game:
    """What a world came to."""

    steps: int
    retractions: int
    stores: int
    """Blocks compared behind stores."""
    loads: int
    """Blocks compared behind loads."""
    ordered_stores: int
    hit_tokens: int
    outputs: dict[str, list[int]]
    reasons: dict[str, str]


def play(
    world: World,
    *,
    executor_type: type[RoundExecutor] = RoundExecutor,
    device_type: Callable[..., Any] = WatchedDevice,
    inline: bool = True,
) -> Game:
    """Plays a world to its end. Raises `Wrong` for a wrong token or byte, or a request that does
    not end exactly once."""
    device = device_type(world.seed, world.pace)
    toy = world.toy
    toy.raises = dict(world.raises)
    stories = {
        name: alone(toy, list(q.tokens), q.max_new_tokens) for name, q in world.requests.items()
    }
    checks = Checksums(toy, stories, device)
    loop = EngineLoop(
        world.config,
        toy,
        device,
        drafter=PromptLookup(1) if world.drafts else None,
        inline=inline,
        on_acknowledged=checks.acknowledged,
        executor_type=executor_type,
    )
    watched = WatchedScheduler(loop.scheduler, checks)
    loop.scheduler = watched  # type: ignore[assignment]
    outputs: dict[str, list[int]] = {name: [] for name in world.requests}
    reasons: dict[str, str] = {}
    step = 0
    while loop.has_work or step <= max(world.arrivals.values()):
        for name, at in world.arrivals.items():
            if at == step:
                loop.submit(world.requests[name])
        for name, at in world.aborts.items():
            if world.arrivals[name] + at == step:
                loop.abort(name)
        for name, at in world.finishes.items():
            if world.arrivals[name] + at == step:
                loop.finish(name)
        for output in loop.step():
            _take(output, stories, outputs, reasons, world)
        step += 1
        if step > STEPS_MAX:
            raise NeverOver(f"{world}: not over after {step} steps")
    _check_end(world, loop, reasons)
    loop.close()
    return Game(
        steps=step,
        retractions=watched.retractions,
        stores=checks.stores,
        loads=checks.loads,
        ordered_stores=watched.ordered_stores,
        hit_tokens=watched.hit_tokens,
        outputs=outputs,
        reasons=reasons,
    )


def _take(
    output: Output,
    stories: dict[str, Story],
    outputs: dict[str, list[int]],
    reasons: dict[str, str],
    world: World,
) -> None:
    name = output.request_id
    if name in reasons:
        raise Wrong(f"{world}: {name} says more after its end: {output}")
    outputs[name] += output.tokens
    expected = stories[name].generated[: len(outputs[name])]
    if outputs[name] != expected:
        raise Wrong(f"{world}: {name} says {outputs[name]} instead of {expected}")
    if output.finish_reason is not None:
        reasons[name] = output.finish_reason
        if output.finish_reason == "length" and len(outputs[name]) != len(stories[name].generated):
            raise Wrong(f"{world}: {name} ended early: {output}")
        if output.finish_reason == "stop" and name not in world.finishes:
            raise Wrong(f"{world}: {name} stopped by itself")
        if output.finish_reason == "error" and not world.raises:
            raise Wrong(f"{world}: {name} failed") from output.error


def _check_end(world: World, loop: EngineLoop, reasons: dict[str, str]) -> None:
    missing: Sequence[str] = sorted(set(world.requests) - set(reasons))
    if missing:
        raise Wrong(f"{world}: {missing} never ended")
    if loop.scheduler.owed_results() or loop.scheduler.waiting_size():
        raise Wrong(f"{world}: the scheduler is still owed results")
    if not loop.scheduler.can_clear_cache():
        raise Wrong(f"{world}: blocks are still held")
