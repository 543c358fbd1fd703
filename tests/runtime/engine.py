"""An engine on the simulated device with a toy model, and what a test asks of it."""

from __future__ import annotations

from typing import Any

from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Output, Request
from tokenspeed.runtime.simulated import Pace

from .checksums import Checksums, WatchedDevice, WatchedScheduler
from .toy import Story, Toy, ToyLayer, alone

FULL = (ToyLayer("full"),)


class Engine:
    """An engine whose outputs and blocks are compared with each request alone."""

    def __init__(
        self,
        requests: list[Request],
        *,
        layers: tuple[ToyLayer, ...] = FULL,
        page_tokens: int = 2,
        pace: Pace = "any",
        seed: int = 0,
        executor_type: Any = None,
        peer: Any = None,
        device: WatchedDevice | None = None,
        name: str = "",
        **settings: Any,
    ) -> None:
        self.toy = Toy(layers, page_tokens)
        self.requests = {request.request_id: request for request in requests}
        self.stories: dict[str, Story] = {
            name: alone(self.toy, list(request.tokens), request.max_new_tokens)
            for name, request in self.requests.items()
        }
        given = {"max_scheduled_tokens": 64, "max_batch_size": 8, **settings}
        self.device = device or WatchedDevice(seed, pace)
        self.checks = Checksums(self.toy, self.stories, self.device)
        self.loop = EngineLoop(
            self.toy.recipe().scheduler_config(**given),
            self.toy,
            self.device,
            inline=True,
            on_acknowledged=self.checks.acknowledged,
            peer=peer,
            name=name,
            **({} if executor_type is None else {"executor_type": executor_type}),
        )
        self.watched = WatchedScheduler(self.loop.scheduler, self.checks)
        self.loop.scheduler = self.watched  # type: ignore[assignment]
        self.said: dict[str, list[int]] = {name: [] for name in self.requests}
        self.reasons: dict[str, str] = {}

    def submit(self, *names: str) -> None:
        for name in names or self.requests:
            self.loop.submit(self.requests[name])

    def step(self) -> list[Output]:
        outputs = self.loop.step()
        for output in outputs:
            name = output.request_id
            assert name not in self.reasons, f"{output} behind its end"
            self.said[name] += output.tokens
            assert self.said[name] == self.stories[name].generated[: len(self.said[name])]
            if output.finish_reason is not None:
                self.reasons[name] = output.finish_reason
        return outputs

    def run(self, steps_max: int = 2000) -> None:
        """Plays until nothing is left to do."""
        for _ in range(steps_max):
            if not self.loop.has_work:
                return
            self.step()
        raise AssertionError(f"not over after {steps_max} steps")

    def close(self) -> None:
        """Everything is conserved: no block is held, and all that is cached can be dropped."""
        scheduler = self.loop.scheduler
        assert scheduler.owed_results() == []
        assert scheduler.active_lcm_blocks() == 0
        assert scheduler.clear_cache()
        usable = scheduler.cache_group_total_pages(scheduler.group_ids[0]) - 1
        assert scheduler.cache_group_available_pages(scheduler.group_ids[0]) == usable
        self.loop.close()
