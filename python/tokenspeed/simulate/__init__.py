"""Replays request traces through the scheduler in virtual time.

trace = load_trace(default_trace_path())
scenario = Scenario.of({"num_device_pages": 10_000, "limit": 1000})
report = Report.of(Player(trace, scenario).run(), scenario)
print(report.latency.time_to_first_token_s.p50)
"""

from tokenspeed.simulate.cost import CostModel
from tokenspeed.simulate.player import ConfigurationRefused, Player, Standstill
from tokenspeed.simulate.report import Distribution, Report
from tokenspeed.simulate.scenario import Engine, HostLink, Load, Scenario
from tokenspeed.simulate.sweep import Sweep
from tokenspeed.simulate.trace import Trace, TraceError, default_trace_path, load_trace

__all__ = [
    "ConfigurationRefused",
    "CostModel",
    "Distribution",
    "Engine",
    "HostLink",
    "Load",
    "Player",
    "Report",
    "Scenario",
    "Standstill",
    "Sweep",
    "Trace",
    "TraceError",
    "default_trace_path",
    "load_trace",
]
