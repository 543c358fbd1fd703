"""What `goodput.py` plays: worlds of requests, pools that are too small for them, schedulers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from goodput_rivals import Reference, Rival, RivalPlayer, Vllm
from tokenspeed.simulate import Player, Scenario, Trace, load_trace
from tokenspeed.simulate.ledger import Ledger
from tokenspeed.simulate.player import OnProgress
from tokenspeed.simulate.report import Report

ROWS, ROUND_TOKENS = 256, 8192
EVERYTHING_PAGES = 400_000
"""A pool in which no world is short of memory."""


@dataclass(frozen=True)
class World:
    """Requests that are all there at once, so that a busy engine's rounds can be compared."""

    name: str
    page_tokens: int
    file: str = ""
    """Of a trace; none: the world of `docs/goodput.md`."""
    requests: int = 500
    """The first so many of the file."""

    def trace(self, folder: Path, order: int = 0) -> Trace:
        """Its requests as they came; another order for another number than 0."""
        if self.file:
            whole = load_trace(folder / self.file).first(self.requests)
            trace = Scenario.of({"time_scale": 1e6}).load.of(whole)
            return trace.shuffled(order) if order else trace
        count = self.requests
        return Trace(
            self.name,
            np.zeros(count),
            np.full(count, 1024, dtype=np.int64),
            np.full(count, 512, dtype=np.int64),
            np.zeros(0, dtype=np.int32),  # no two prompts begin alike
            np.zeros(count + 1, dtype=np.int64),
        )

    def scenario(self, pages: int, **values: Any) -> Scenario:
        return Scenario.of(
            {
                "num_device_pages": pages + 1,
                "num_host_pages": 0,
                "prefix_granularity": self.page_tokens,
                "max_scheduled_tokens": ROUND_TOKENS,
                "max_batch_size": ROWS,
                **values,
            }
        )

    def need_pages(self, trace: Trace) -> int:
        """The most pages that its requests hold at once, nobody sharing any, in an ample pool."""
        scenario = self.scenario(EVERYTHING_PAGES, max_new_tokens=0, disable_prefix_cache=True)
        ledger = Player(trace, scenario, sample_s=0.0).run()
        return int(ledger.gauges.table()["active_pages"].max())

    def least_pages(self, trace: Trace) -> int:
        """Without which its largest request is refused."""
        tokens = int((trace.prompt_tokens + trace.output_tokens).max())
        return -(-tokens // self.page_tokens) + 2


WORLDS = {
    world.name: world
    for world in (
        World("world", 64),
        World("mooncake conversations", 512, "mooncake_conversation_trace.jsonl.gz", 1000),
        World("mooncake synthetic", 512, "mooncake_synthetic_trace.jsonl.gz", 1000),
        World("azure conversations", 64, "azure2023_conv.csv.gz", 3000),
        World("azure code", 64, "azure2023_code.csv.gz", 1500),
    )
}


@dataclass(frozen=True)
class Side:
    """A scheduler as it is played."""

    name: str
    settings: dict[str, Any]
    host_pools: int = 0
    """Pages of the Host pool, in Device pools."""
    rival: Callable[[Scenario], Rival] | None = None
    """Another scheduler than ours."""
    module: str = ""
    """Where it comes from."""

    def is_here(self) -> bool:
        return not self.module or importlib.util.find_spec(self.module) is not None

    def play(
        self, world: World, trace: Trace, pages: int, on_progress: OnProgress | None = None
    ) -> Report:
        """May raise `Standstill`."""
        values = {**self.settings, "num_host_pages": self.host_pools * pages}
        scenario = world.scenario(pages, **values)
        return Report.of(self._play(trace, scenario, on_progress), scenario)

    def _play(self, trace: Trace, scenario: Scenario, on_progress: OnProgress | None) -> Ledger:
        if self.rival is None:
            return Player(trace, scenario, on_progress=on_progress).run()
        return RivalPlayer(trace, scenario, self.rival(scenario)).run()


GOODPUT = {"pressure_policy": "goodput", "max_new_tokens": 0}
DOCUMENT = {"pressure_policy": "document", "max_new_tokens": -1}

SIDES = {
    side.name: side
    for side in (
        Side("goodput", GOODPUT),
        Side("goodput, declared", {**GOODPUT, "max_new_tokens": -1}),
        Side("goodput, host", GOODPUT, host_pools=4),
        Side("goodput, declared, host", {**GOODPUT, "max_new_tokens": -1}, host_pools=4),
        Side("document, declared", DOCUMENT),
        Side("document", {**DOCUMENT, "max_new_tokens": 0}),
        Side("reference, declared", DOCUMENT, rival=Reference, module="tokenspeed_scheduler"),
        Side("vllm", GOODPUT, rival=Vllm, module="vllm"),
        Side("goodput, unmixed", {**GOODPUT, "enable_mixed_prefill_decode": False}),
        Side(
            "goodput, unmixed, host",
            {**GOODPUT, "enable_mixed_prefill_decode": False},
            host_pools=4,
        ),
    )
}
