"""A sweep: the same replay once for each of several values of one setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenspeed.simulate.player import OnProgress, Player
from tokenspeed.simulate.report import Report
from tokenspeed.simulate.scenario import Scenario
from tokenspeed.simulate.trace import Trace


@dataclass(frozen=True)
class Sweep:
    """The setting that varies, and a scenario for each of its values, in the order given."""

    name: str
    scenarios: tuple[Scenario, ...]

    @classmethod
    def parse(cls, text: str, base: Scenario) -> Sweep:
        """Reads 'num_device_pages=1000,2000,4000'; `ValueError` says what is wrong with it."""
        name, equals, values = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or not values.strip():
            raise ValueError(f"{text!r} is not of the form NAME=VALUE,VALUE...")
        scenarios = tuple(base.varied(name, value.strip()) for value in values.split(","))
        return cls(name, scenarios)

    def run(self, trace: Trace, on_progress: Callable[[int], OnProgress | None]) -> list[Report]:
        """Plays every scenario; `on_progress(n)` gives the callback for the n-th."""
        return [
            Report.of(Player(trace, scenario, on_progress=on_progress(n)).run(), scenario)
            for n, scenario in enumerate(self.scenarios)
        ]
