"""One round of a world, for reports, for ``--show`` and for the predicates of deviations."""

from __future__ import annotations

from dataclasses import dataclass, field

from .events import Event
from .plan import Plan


@dataclass
class Round:
    """What happened in one round; both plans as long as both sides play."""

    number: int
    arrivals: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    gauges: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        lines = [f"round {self.number}"]
        lines += [f"  submit {', '.join(self.arrivals)}"] if self.arrivals else []
        lines += [f"  event {event}" for event in self.events]
        plans = list(self.plans.items())
        if len(plans) == 2 and plans[0][1] == plans[1][1]:
            plans = [("plan", plans[0][1])]
        for title, plan in plans:
            lines += [f"  {title}: {line}" for line in plan.lines()]
        # What a request holds can be read off its tables; zeroes say nothing.
        short = {n: v for n, v in self.gauges.items() if v and not n.startswith("request_")}
        if short:
            lines.append("  " + ", ".join(f"{name} {value}" for name, value in short.items()))
        return lines
