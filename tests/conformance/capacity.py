"""The capacity model of both sides on the configurations of random worlds (scheduler.md §1.4)."""

from __future__ import annotations

import importlib
from typing import Any

from .compare import Difference, compare_values
from .deviations import explained
from .side import build_config
from .world import World


def capacity(module: str, world: World) -> dict[str, Any]:
    """Every answer of ``CapacityModel`` that is asked for `world`, or how it refuses."""
    api = importlib.import_module(module)
    try:
        model = api.CapacityModel(build_config(api, world))
    except ValueError:
        return {"CapacityModel(config)": "ValueError"}
    answers: dict[str, Any] = {"num_groups": model.num_groups}

    def ask(call: str, *arguments: Any) -> None:
        name = f"{call}{arguments}"
        try:
            answer = getattr(model, call)(*arguments)
            answers[name] = int(answer) if isinstance(answer, int) else [int(n) for n in answer]
        except ValueError:
            answers[name] = "ValueError"

    for blocks in {1, 2, world.device_blocks, 1 + world.draw(200, "blocks")}:
        ask("max_single_request_tokens", blocks)
    for i in range(6):
        tokens = 1 + world.draw(3 * world.token_budget, "tokens", i)
        ask("single_request_group_pages", tokens)
        ask("concurrent_group_pages", tokens, 1 + world.draw(tokens - 1, "context", i))
    ask("lcm_blocks_needed_for", [world.draw(40, "pages", group.id) for group in world.groups])
    return answers


def compare_capacity(ours: str, theirs: str, world: World) -> list[Difference]:
    """The answers that differ and that no entry of `CAPACITY_DEVIATIONS` explains."""
    differences = compare_values("", capacity(theirs, world), capacity(ours, world))
    return [difference for difference in differences if not explained(world, difference)]
