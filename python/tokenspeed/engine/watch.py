"""What a round did, for who wants to see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


OnRound = Callable[[RoundView], None]
"""Called on the engine's thread, before the round's results are there."""


class WatchedLoop(EngineLoop):
    """An `EngineLoop` that shows its rounds."""

    def __init__(self, *args: Any, on_round: OnRound | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_round = on_round

    def _launch(self, plan: ExecutionPlan) -> None:
        if self._on_round is not None:
            self._on_round(self._view(plan))
        super()._launch(plan)

    def _view(self, plan: ExecutionPlan) -> RoundView:
        lost = set(plan.retracted.tolist())
        ids: list[str] = []
        extends = partial = tokens = hits = 0
        if plan.batch is not None:
            batch = plan.batch
            ids, extends = batch.request_ids, batch.num_extends()
            tokens = int(batch.input_lengths_array.sum())
            hits = int(batch.device_hit_tokens_array.sum() + batch.host_hit_tokens_array.sum())
            ends = batch.extend_prefix_lens_array + batch.input_lengths_array[:extends]
            partial = int((ends < batch.prefill_lengths_array[:extends]).sum())
        return RoundView(
            prefills=tuple(ids[:extends]),
            decodes=tuple(ids[extends:]),
            # A copy: clients submit from other threads.
            retracted=tuple(name for name, live in [*self._live.items()] if live.handle in lost),
            partial=partial,
            tokens=tokens,
            hit_tokens=hits,
            stored_blocks=plan.num_write_back_blocks,
            loaded_blocks=plan.num_load_back_blocks,
            used_pages=self.scheduler.active_lcm_blocks(),
            waiting=self.scheduler.waiting_size(),
        )
