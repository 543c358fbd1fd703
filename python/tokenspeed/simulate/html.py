"""The report as one web page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from tokenspeed.simulate import units
from tokenspeed.simulate.chart import Chart, Line
from tokenspeed.simulate.report import Distribution, Report, reasons
from tokenspeed.simulate.table import SWEEP_HEADINGS, latency_rows, sections, sweep_row

_OVER = "averaged over the last twentieth of the replay"

_FOOTNOTE = (
    "All times are virtual, as the cost model and the host link of the settings give them, except "
    "the plan build and the replay itself, which were measured on the machine that played the "
    "trace. Time per output token is (last token - first token) / (tokens - 1). A percentile "
    "between two values is interpolated linearly. Hit rates count a prompt's tokens at its first "
    "admission."
)


def render_html(report: Report) -> str:
    """The whole page."""
    trace = report.trace
    lead = (
        f"{units.count(trace.requests)} requests over {units.seconds(trace.span_s)}, with "
        f"{units.count(trace.prompt_tokens)} prompt tokens and "
        f"{units.count(trace.output_tokens)} to generate, played in virtual time through the "
        f"scheduler with a pool of {units.count(report.pool.usable_pages)} pages of "
        f"{units.count(report.settings['prefix_granularity'])} tokens."
    )
    body = [
        f"<h1>Replay of {escape(trace.name)}</h1>",
        f'<p class="lead">{lead}</p>',
        _cards(report),
        "<h2>Numbers</h2>",
        _latency_table(report),
        _section_tables(report),
        "<h2>Latency</h2>",
        _figures(latency_charts(report)),
        "<h2>Over time</h2>",
        _figures(time_charts(report)),
        _ended(report),
        settings_table(report.settings),
        f"<footer>{_FOOTNOTE}</footer>",
    ]
    return page(f"Replay of {trace.name}", "".join(body))


def page(title: str, body: str) -> str:
    """A page with the styles and the script that charts need."""
    assets = files("tokenspeed.simulate") / "assets"
    css, script = ((assets / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{css}</style></head>"
        f"<body><main>{body}</main><script>{script}</script></body></html>\n"
    )


def _cards(report: Report) -> str:
    latency, cache, outcome = report.latency, report.cache, report.outcome
    first, each = latency.time_to_first_token_s, latency.time_per_output_token_s
    failed = (
        f"{units.count(outcome.refused_requests)} refused, "
        f"{units.count(outcome.aborted_requests)} ended by the scheduler"
    )
    cards = [
        ("Time to first token", first.p50, f"median; 99th {units.seconds(first.p99)}"),
        ("Time per output token", each.p50, f"median; 99th {units.seconds(each.p99)}"),
        (
            "Output tokens",
            f"{units.count(round(outcome.output_tokens_per_s))} /s",
            f"{outcome.requests_per_s:.2f} requests/s",
        ),
        (
            "Hit rate",
            units.share(cache.device_hit_rate + cache.host_hit_rate),
            f"{units.share(cache.device_hit_rate)} device, {units.share(cache.host_hit_rate)} host",
        ),
        (
            "Retractions",
            units.count(cache.retractions),
            f"{units.count(cache.recomputed_tokens)} tokens recomputed",
        ),
        ("Requests finished", units.count(outcome.finished_requests), failed),
    ]
    return _wrap(
        "cards",
        (
            f'<div class="card"><span>{escape(name)}</span>'
            f"<b>{escape(value if isinstance(value, str) else units.seconds(value))}</b>"
            f"<small>{escape(note)}</small></div>"
            for name, value, note in cards
        ),
    )


def _latency_table(report: Report) -> str:
    def cells(values: Distribution, unit_s: float) -> str:
        numbers = (values.mean, values.p50, values.p90, values.p99, values.max)
        return "".join(f"<td>{units.seconds(n if n is None else n * unit_s)}</td>" for n in numbers)

    rows = "".join(
        f"<tr><td>{escape(name)}</td>{cells(values, unit_s)}</tr>"
        for name, values, unit_s in latency_rows(report)
    )
    heads = "".join(f"<th>{h}</th>" for h in ("", "mean", "median", "90th", "99th", "most"))
    return f'<div class="panel"><table><tr>{heads}</tr>{rows}</table></div>'


def _section_tables(report: Report) -> str:
    panels = []
    for heading, rows in sections(report):
        cells = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows
        )
        panels.append(f'<div class="panel"><h3>{heading}</h3><table>{cells}</table></div>')
    return _wrap("grid4", panels, style="margin-top:14px")


def latency_charts(report: Report) -> list[Chart]:
    """Cumulative distributions, over the requests."""
    latency = report.latency

    def curve(name: str, values: Distribution, tone: int = 0) -> Line:
        shares = [p / 100 for p in range(len(values.percentiles))]
        return Line(name, [max(v, 1e-9) for v in values.percentiles], shares, tone)

    def chart(title: str, note: str, *lines: Line) -> Chart:
        return Chart(
            title,
            note,
            "time (logarithmic)",
            lines,
            in_words=units.share,
            x_in_words=units.seconds,
            log_x=True,
            y_max=1.0,
        )

    return [
        chart(
            "Time to first token and end to end",
            "Share of requests answered within a time.",
            curve("first token", latency.time_to_first_token_s),
            curve("end to end", latency.end_to_end_s, tone=1),
        ),
        chart(
            "Time per output token",
            "Share of requests whose tokens follow one another within a time, on average.",
            curve("per output token", latency.time_per_output_token_s),
        ),
    ]


def time_charts(report: Report) -> list[Chart]:
    """What happened when."""
    series = report.series
    long = series.at_s[-1] > 300
    xs = [at / 60 for at in series.at_s] if long else series.at_s
    unit = "min" if long else "s"

    def since(at: float | None) -> str:
        return f"{units.count(at)} {unit}"

    def chart(
        title: str, note: str, lines: dict[str, Any], tones: tuple[int, ...] = (0, 1), **rest: Any
    ) -> Chart:
        drawn = [Line(name, xs, ys, tone) for (name, ys), tone in zip(lines.items(), tones)]
        return Chart(title, note, "since the first arrival", drawn, x_in_words=since, **rest)

    return [
        chart(
            "Device pool",
            "Pages held by requests, by the prefix cache alone, and by nobody.",
            {
                "requests": series.active_pages,
                "cache": series.cached_pages,
                "empty": series.empty_pages,
            },
            tones=(0, 2, 4),
            stacked=True,
            y_max=float(report.pool.usable_pages),
        ),
        chart(
            "Requests in the engine",
            "Requests admitted, and requests that wait for admission.",
            {"running": series.running_requests, "waiting": series.waiting_requests},
        ),
        chart(
            "Prefix cache hits",
            f"Share of prompt tokens found in each tier, {_OVER}.",
            {"device": series.device_hit_rate, "host": series.host_hit_rate},
            in_words=units.share,
        ),
        chart(
            "Decode batch",
            f"Requests that decode in a forward, {_OVER}.",
            {"decodes in a forward": series.decodes_per_forward},
        ),
        chart(
            "Prefill",
            f"Prompt tokens computed in a second, {_OVER}.",
            {"tokens in a second": series.prefill_tokens_per_s},
        ),
        chart(
            "Copies between device and host",
            f"Gigabytes (10^9) in a second, {_OVER}.",
            {
                "to the host": [rate / 1e9 for rate in series.write_back_bytes_per_s],
                "to the device": [rate / 1e9 for rate in series.load_back_bytes_per_s],
            },
        ),
    ]


def render_sweep_html(name: str, reports: list[Report]) -> str:
    """The page of a sweep over the setting `name`: one point a report."""
    trace = reports[0].trace
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in (sweep_row(name, report) for report in reports)
    )
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in (name, *SWEEP_HEADINGS))
    others = {key: value for key, value in reports[0].settings.items() if key != name}
    lead = (
        f"{escape(trace.name)}, {units.count(trace.requests)} requests, replayed in virtual time "
        f"once for each of {len(reports)} values; all else equal."
    )
    body = [
        f"<h1>What {escape(name)} changes</h1>",
        f'<p class="lead">{lead}</p>',
        _figures(sweep_charts(name, reports)),
        f'<h2>Numbers</h2><div class="panel"><table><tr>{heads}</tr>{rows}</table></div>',
        settings_table(others),
    ]
    return page(f"Sweep of {name}", "".join(body))


def sweep_charts(name: str, reports: list[Report]) -> list[Chart]:
    """The trade-off: what the cache saves, what clients wait, what is lost to retractions."""
    reports = sorted(reports, key=lambda report: report.settings[name])
    xs = [float(report.settings[name]) for report in reports]
    log_x = xs[0] > 0 and xs[-1] / xs[0] >= 8

    def chart(title: str, note: str, lines: dict[str, list[Any]], **rest: Any) -> Chart:
        drawn = [Line(label, xs, ys, tone) for tone, (label, ys) in enumerate(lines.items())]
        return Chart(title, note, name, drawn, dots=True, log_x=log_x, **rest)

    def wait(title: str, note: str, found: list[Distribution]) -> Chart:
        lines = {
            "median": [values.p50 for values in found],
            "90th": [values.p90 for values in found],
            "99th": [values.p99 for values in found],
        }
        known = [y for ys in lines.values() for y in ys if y]
        log_y = bool(known) and max(known) > 20 * min(known)
        return chart(title, note, lines, in_words=units.seconds, log_y=log_y)

    return [
        chart(
            "Prefix cache hits",
            "Share of the prompts' tokens found in each tier; the tiers add up.",
            {
                "device": [report.cache.device_hit_rate for report in reports],
                "host": [report.cache.host_hit_rate for report in reports],
            },
            stacked=True,
            in_words=units.share,
        ),
        wait(
            "Time to first token",
            "From arrival to the first token.",
            [report.latency.time_to_first_token_s for report in reports],
        ),
        wait(
            "Time per output token",
            "From one token of a request to the next.",
            [report.latency.time_per_output_token_s for report in reports],
        ),
        chart(
            "Throughput",
            "Tokens generated in a second.",
            {"output tokens in a second": [r.outcome.output_tokens_per_s for r in reports]},
        ),
        chart(
            "Requests that failed or were retracted",
            "Counts over the whole replay.",
            {
                "retractions": [report.cache.retractions for report in reports],
                "refused": [report.outcome.refused_requests for report in reports],
                "ended by the scheduler": [r.outcome.aborted_requests for r in reports],
            },
        ),
        chart(
            "Tokens prefilled",
            "What hits save, and what retractions cost on top.",
            {
                "prefilled": [report.cache.prefilled_tokens for report in reports],
                "of these recomputed": [report.cache.recomputed_tokens for report in reports],
            },
        ),
    ]


def _figures(charts: Iterable[Chart]) -> str:
    return _wrap("grid2", (chart.figure() for chart in charts))


def _ended(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{heading}</td><td>{number:,}</td><td>{escape(reason)}</td></tr>"
        for heading, ended in (
            ("Refused when submitted", report.refused),
            ("Ended by the scheduler", report.aborted),
        )
        for reason, number in reasons(ended)
    )
    if not rows:
        return ""
    return (
        '<h2>Requests that were not served</h2><div class="panel"><table class="text">'
        f"<tr><th>how</th><th>requests</th><th>why (an example)</th></tr>{rows}</table></div>"
    )


def settings_table(settings: dict[str, Any]) -> str:
    """Every setting by its name, folded away."""
    names = list(settings.items())
    third = -(-len(names) // 3)
    panels = []
    for start in range(0, len(names), third):
        rows = "".join(
            f"<tr><td><code>{name}</code></td><td><code>{escape(_plain(value))}</code></td></tr>"
            for name, value in names[start : start + third]
        )
        panels.append(f'<div class="panel"><table>{rows}</table></div>')
    return f"<details><summary>Settings</summary>{_wrap('grid4', panels)}</details>"


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _wrap(name: str, parts: Iterable[str], style: str = "") -> str:
    styled = f' style="{style}"' if style else ""
    return f'<div class="{name}"{styled}>{"".join(parts)}</div>'
