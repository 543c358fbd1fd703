"""The same worlds on two engines: one prefills, the other decodes, and bytes go from one arena to
the other behind their fences."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from tokenspeed.runtime.drafter import PromptLookup
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.local_transfer import LocalTransfer
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Output
from tokenspeed.runtime.simulated import SimulatedDevice
from tokenspeed.scheduler import Scheduler, SchedulerConfig

from .toy import Toy, alone
from .world import STEPS_MAX, NeverOver, World, Wrong


@dataclass
class SplitGame:
    """What a world on two engines came to."""

    steps: int
    retractions: int
    landed: int
    outputs: dict[str, list[int]]
    reasons: dict[str, str]


def play_split(
    world: World,
    *,
    transfer_type: type[LocalTransfer] = LocalTransfer,
    executor_type: type[RoundExecutor] = RoundExecutor,
    steps_max: int = STEPS_MAX,
) -> SplitGame:
    """Plays a world to its end. Raises `Wrong`."""
    r = random.Random(world.seed)
    device = SimulatedDevice(world.seed, world.pace)
    transfer = transfer_type(device, idle_s=0)
    stories = {
        name: alone(world.toy, list(q.tokens), q.max_new_tokens)
        for name, q in world.requests.items()
    }
    common: dict[str, Any] = {
        "inline": True,
        "executor_type": executor_type,
        "drafter": PromptLookup(1) if world.drafts else None,
    }
    prefill = EngineLoop(
        _config(world, "P"),
        _toy(world, world.seed % 2 == 0),
        device,
        peer=transfer.prefill,
        name="P ",
        **common,
    )
    decode = EngineLoop(
        _config(world, "D"),
        _toy(world, world.seed % 2 == 1),
        device,
        peer=transfer.decode,
        name="D ",
        **common,
    )
    counting = _Counting(decode.scheduler)
    decode.scheduler = counting  # type: ignore[assignment]
    game = SplitGame(0, 0, 0, {name: [] for name in world.requests}, {})
    handed_over: set[str] = set()
    loops = [prefill, decode]
    while any(loop.has_work for loop in loops) or game.steps <= max(world.arrivals.values()):
        for name, at in world.arrivals.items():
            if at == game.steps:
                for loop in r.sample(loops, 2):
                    loop.submit(world.requests[name])
        for name, at in world.aborts.items():
            if world.arrivals[name] + at == game.steps:
                for loop in r.sample(loops, r.choice((1, 2))):
                    loop.abort(name)
        for name, at in world.finishes.items():
            if world.arrivals[name] + at == game.steps:
                decode.finish(name)
        for loop in r.choices(loops, k=2):
            for output in loop.step():
                if loop is decode:
                    _take(world, game, output, stories[output.request_id].generated)
                elif output.finish_reason == "handed over":
                    handed_over.add(output.request_id)
                elif output.finish_reason is None or output.tokens:
                    raise Wrong(f"{world}: the prefill engine says {output}")
        game.steps += 1
        if game.steps > steps_max:
            raise NeverOver(f"{world}: not over after {steps_max} steps: {_state(loops)}")
    missing = sorted(set(world.requests) - set(game.reasons))
    held = [loop for loop in loops if not loop.scheduler.clear_cache()]
    if missing or held or any(loop.scheduler.active_lcm_blocks() for loop in loops):
        raise Wrong(f"{world}: {missing} never ended, or blocks are held: {_state(loops)}")
    for loop in loops:
        loop.close()
    game.landed, game.retractions = len(handed_over), counting.retractions
    return game


def _take(world: World, game: SplitGame, output: Output, generated: list[int]) -> None:
    name = output.request_id
    if name in game.reasons:
        raise Wrong(f"{world}: {name} says more after its end: {output}")
    game.outputs[name] += output.tokens
    if game.outputs[name] != generated[: len(game.outputs[name])]:
        raise Wrong(f"{world}: {name} says {game.outputs[name]} instead of {generated}")
    if output.finish_reason is not None:
        game.reasons[name] = output.finish_reason
        if output.finish_reason == "length" and game.outputs[name] != generated:
            raise Wrong(f"{world}: {name} ended early")
        if output.finish_reason == "stop" and name not in world.finishes:
            raise Wrong(f"{world}: {name} stopped by itself")
        if output.finish_reason == "error" and name not in world.aborts and not world.raises:
            raise Wrong(f"{world}: {name} failed: {output.error}")


def _toy(world: World, raises: bool) -> Toy:
    """One engine's model; the forwards of one of the two fail."""
    toy = Toy(world.toy.layers, world.config.prefix_granularity, world.toy.vocabulary)
    toy.raises, toy.raises_early = dict(world.raises) if raises else {}, world.toy.raises_early
    return toy


def _config(world: World, role: Literal["P", "D"]) -> SchedulerConfig:
    """The world's configuration for one of the roles. A prefill engine never retracts, so it gets
    room for what it has begun."""
    config = world.config
    spare = 12 if role == "P" else 0
    return world.toy.recipe().scheduler_config(
        num_device_pages=config.num_device_pages + spare,
        num_host_pages=config.num_host_pages,
        max_scheduled_tokens=config.max_scheduled_tokens,
        max_batch_size=config.max_batch_size,
        decode_input_tokens=config.decode_input_tokens,
        overlap_schedule_depth=config.overlap_schedule_depth,
        enable_mixed_prefill_decode=config.enable_mixed_prefill_decode,
        disable_prefix_cache=config.disable_prefix_cache,
        role=getattr(SchedulerConfig.Role, role),
    )


def _state(loops: list[EngineLoop]) -> str:
    return "; ".join(
        f"{s.bootstrapping_size()} meeting, {s.waiting_size()} waiting, {s.prefilling_size()} "
        f"prefilling, {s.pd_transfer_size()} in transfer, {s.decoding_size()} decoding"
        for s in (loop.scheduler for loop in loops)
    )


class _Counting:
    """A scheduler whose retractions are counted."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.retractions = 0

    def next_execution_plan(self) -> Any:
        plan = self._scheduler.next_execution_plan()
        self.retractions += plan.num_retractions
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)
