"""The report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenspeed.simulate import units
from tokenspeed.simulate.report import Distribution, Report, reasons

Row = tuple[str, str]


def latency_rows(report: Report) -> list[tuple[str, Distribution, float]]:
    """What is measured, its values, and the seconds in one of their units."""
    latency = report.latency
    return [
        ("Time to first token", latency.time_to_first_token_s, 1.0),
        ("Time per output token", latency.time_per_output_token_s, 1.0),
        ("End to end", latency.end_to_end_s, 1.0),
        ("Passed over by later arrivals", latency.passed_over_s, 1.0),
        ("Plan build (real time)", report.planning.plan_build_us, 1e-6),
    ]


def sections(report: Report) -> list[tuple[str, list[Row]]]:
    """The report's numbers in words, by heading; latencies apart."""
    outcome, cache, pool = report.outcome, report.cache, report.pool
    planning = report.planning
    size = (
        f"{units.count(pool.usable_pages)} pages, "
        f"{units.num_bytes(pool.usable_pages * pool.page_bytes)}"
    )
    retractions = units.count(cache.retractions)
    if cache.retractions:
        retractions += f" in {units.count(cache.retracted_requests)} requests"
    recomputed = (
        f"{units.count(cache.recomputed_tokens)} tokens, {units.share(cache.recomputed_rate)}"
    )
    return [
        (
            "Requests",
            [
                ("Finished", units.count(outcome.finished_requests)),
                ("Refused when submitted", units.count(outcome.refused_requests)),
                ("Ended by the scheduler", units.count(outcome.aborted_requests)),
                ("Most retractions of one", units.count(cache.retractions_max)),
                ("Duration (virtual)", units.seconds(outcome.duration_s)),
                ("Device busy", units.share(outcome.busy_fraction)),
            ],
        ),
        (
            "Throughput",
            [
                ("Requests", f"{outcome.requests_per_s:,.2f} /s"),
                ("Output tokens", f"{units.count(round(outcome.output_tokens_per_s))} /s"),
                ("Prompt tokens", f"{units.count(round(outcome.prompt_tokens_per_s))} /s"),
                ("Forwards", units.count(planning.forwards)),
                ("Requests in each, mean", f"{planning.requests_per_forward:,.1f}"),
                ("Replayed in (real time)", units.seconds(planning.replay_s)),
            ],
        ),
        (
            "Prefix cache",
            [
                ("Hits on the device", units.share(cache.device_hit_rate)),
                ("Hits on the host", units.share(cache.host_hit_rate)),
                ("Copied to the host", units.num_bytes(cache.write_back_bytes)),
                ("Copied to the device", units.num_bytes(cache.load_back_bytes)),
                ("Tokens prefilled", units.count(cache.prefilled_tokens)),
            ],
        ),
        (
            "Device pool",
            [
                ("Size", size),
                ("Held, mean", f"{units.count(round(pool.active_pages_mean))} pages"),
                ("Held, most", f"{units.count(pool.active_pages_max)} pages"),
                ("Retractions", retractions),
                ("Recomputed", recomputed),
            ],
        ),
    ]


def render(report: Report) -> RenderableType:
    """Everything the terminal shows of a report."""
    trace = report.trace
    title = Text.assemble(
        (trace.name, "bold"),
        f"  {units.count(trace.requests)} requests over {units.seconds(trace.span_s)}, "
        f"{units.count(trace.prompt_tokens)} prompt tokens, "
        f"{units.count(trace.output_tokens)} to generate",
    )
    parts: list[RenderableType] = [Text(), title, Text(), _latency(report)]
    named = sections(report)
    for left, right in zip(named[::2], named[1::2]):
        parts += [Text(), _side_by_side(left, right)]
    for heading, ended in (("Refused", report.refused), ("Ended", report.aborted)):
        for reason, number in reasons(ended)[:5]:
            parts.append(Text(f"{heading}: {number:,}, for example {reason}", style="yellow"))
    return Group(*parts)


SWEEP_HEADINGS = (
    "device hits",
    "host hits",
    "first token median",
    "first token 99th",
    "per token median",
    "output per s",
    "retracted",
    "not served",
)
"""What a sweep tells of each point, behind the value of the setting."""


def sweep_row(name: str, report: Report) -> list[str]:
    """A point of a sweep over the setting `name`, under `SWEEP_HEADINGS`."""
    first = report.latency.time_to_first_token_s
    outcome, cache = report.outcome, report.cache
    value = report.settings[name]
    return [
        f"{value:,}" if type(value) is int else str(value),
        units.share(cache.device_hit_rate),
        units.share(cache.host_hit_rate),
        units.seconds(first.p50),
        units.seconds(first.p99),
        units.seconds(report.latency.time_per_output_token_s.p50),
        units.count(round(outcome.output_tokens_per_s)),
        units.count(cache.retractions),
        units.count(outcome.refused_requests + outcome.aborted_requests),
    ]


_BAR_CELLS = 24


def render_sweep(name: str, reports: list[Report]) -> RenderableType:
    """A sweep as a table, and its trade-off as bars: hits of both tiers, and the wait."""
    title = Text.assemble((name, "bold"), f" over {reports[0].trace.name}")
    table = _table(gap=1)
    table.add_column("value", style="cyan", justify="right", no_wrap=True)
    for heading in SWEEP_HEADINGS:
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    plot = _table()
    plot.add_column("value", style="cyan", justify="right", no_wrap=True)
    plot.add_column("hits: device, host", min_width=_BAR_CELLS)
    plot.add_column("first token, 99th", min_width=_BAR_CELLS)
    longest = max((report.latency.time_to_first_token_s.p99 or 0.0) for report in reports)
    most = max(report.cache.device_hit_rate + report.cache.host_hit_rate for report in reports)
    for report in reports:
        row = sweep_row(name, report)
        table.add_row(*row)
        cache, wait = report.cache, report.latency.time_to_first_token_s.p99 or 0.0
        hits = Text.assemble(
            (_bar(cache.device_hit_rate, most), "blue"), (_bar(cache.host_hit_rate, most), "yellow")
        )
        plot.add_row(row[0], hits, Text(_bar(wait, longest), style="magenta"))
    return Group(Text(), title, Text(), table, Text(), plot)


def _bar(value: float, most: float) -> str:
    return "█" * round(_BAR_CELLS * value / most) if most else ""


def _latency(report: Report) -> Table:
    table = _table()
    table.add_column("Latency", style="cyan")
    for heading in ("median", "90th", "99th", "most"):
        table.add_column(heading, justify="right")
    for name, values, unit_s in latency_rows(report):
        numbers: Iterable[float | None] = (values.p50, values.p90, values.p99, values.max)
        table.add_row(name, *(units.seconds(n if n is None else n * unit_s) for n in numbers))
    return table


def _side_by_side(left: tuple[str, list[Row]], right: tuple[str, list[Row]]) -> Table:
    table = _table()
    for heading, _ in (left, right):
        table.add_column(heading, style="cyan")
        table.add_column("", justify="right")
    for (name, value), (other, other_value) in zip(left[1], right[1]):
        table.add_row(name, value, other, other_value)
    return table


def _table(gap: int = 2) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
