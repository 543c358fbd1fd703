"""What a round did, for who wants to see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.scheduler import ExecutionPlan


@dataclass(frozen=True)
class RoundView:
    """A round as planned."""

    prefills: tuple[str, ...]
    decodes: tuple[str, ...]
    retracted: tuple[str, ...]
    """Requests that lost their blocks in this round."""
    partial: int
    """Prefills that do not reach the end of their prompt."""
    tokens: int
    """Input of the forward."""
    hit_tokens: int
    """What prompts found in the prefix cache, on the device and on the host."""
    stored_blocks: int
    """To the host."""
    loaded_blocks: int
    """From the host."""
    used_pages: int
    """Parents of the pool that a request or the prefix cache needs."""
    waiting: int

    @classmethod
    def of(cls, loop: EngineLoop, plan: ExecutionPlan) -> RoundView:
        """Of a plan that `loop` is about to carry out (`EngineLoop.on_plan`)."""
        ids: list[str] = []
        extends = partial = tokens = hits = 0
        if plan.batch is not None:
            batch = plan.batch
            ids, extends = batch.request_ids, batch.num_extends()
            tokens = int(batch.input_lengths_array.sum())
            hits = int(batch.device_hit_tokens_array.sum() + batch.host_hit_tokens_array.sum())
            ends = batch.extend_prefix_lens_array + batch.input_lengths_array[:extends]
            partial = int((ends < batch.prefill_lengths_array[:extends]).sum())
        return cls(
            prefills=tuple(ids[:extends]),
            decodes=tuple(ids[extends:]),
            retracted=loop.names_of(plan.retracted.tolist()),
            partial=partial,
            tokens=tokens,
            hit_tokens=hits,
            stored_blocks=plan.num_write_back_blocks,
            loaded_blocks=plan.num_load_back_blocks,
            used_pages=loop.scheduler.active_lcm_blocks(),
            waiting=loop.scheduler.waiting_size(),
        )


OnRound = Callable[[RoundView], None]
"""Called on the engine's thread, before the round's results are there."""
