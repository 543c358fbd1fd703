"""The command line: `tokenspeed`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import Field
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tokenspeed.engine.commands import InputError, demo, generate
from tokenspeed.rerun import describe_plan, describe_step, play
from tokenspeed.scheduler import RecordingError, SchedulerError
from tokenspeed.simulate.html import render_html, render_sweep_html
from tokenspeed.simulate.perfetto import Window, write_perfetto
from tokenspeed.simulate.player import ConfigurationRefused, OnProgress, Player, Standstill
from tokenspeed.simulate.report import Report
from tokenspeed.simulate.scenario import Scenario, settings
from tokenspeed.simulate.sweep import Sweep
from tokenspeed.simulate.table import render, render_sweep
from tokenspeed.simulate.trace import Trace, TraceError, default_trace_path, load_trace

SECTIONS = {
    "engine": "Scheduler (the names of its configuration)",
    "cost": "Cost of a forward (an 8B model in 8 bits on one H200-class GPU)",
    "link": "Host link",
    "load": "Load",
}
"""Headings of a scenario's parts in the help."""


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; exits with 2 on wrong usage or unreadable input, with 1 if the work failed.

    An error is one line on standard error: what is wrong, and what to do next.
    """
    try:
        commands.main(arguments, prog_name="tokenspeed", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        _fail("tokenspeed", "interrupted", 130)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "tokenspeed"
        message = error.format_message().removesuffix(".")
        _fail(where, f"{message}; see {where} --help", 2)
    except click.ClickException as error:
        _fail("tokenspeed", error.format_message(), error.exit_code)
    except OSError as error:
        _fail("tokenspeed", f"{error.filename or 'output'}: {error.strerror or error}", 1)


def _fail(where: str, message: str, exit_code: int) -> None:
    click.echo(f"{where}: error: {' '.join(message.split())}", err=True)
    sys.exit(exit_code)


class SectionedOption(click.Option):
    """An option that the help lists under a heading of its own."""

    def __init__(self, *args: Any, section: str = "Output", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help groups its options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                rows.setdefault(getattr(option, "section", "Output"), []).append(record)
        for section, records in rows.items():
            with formatter.section(section):
                formatter.write_dl(records)


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(None, "--version", "-V", package_name="tokenspeed-core")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """A scheduler for LLM inference that knows its KV cache.

    \b
    Try it on a production trace, with no GPU:
      tokenspeed replay
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command one option for every setting of a scenario."""
    for part, item in reversed(list(settings())):
        command = _setting_option(item, SECTIONS[part])(command)
    return command


def _setting_option(item: Field[Any], section: str) -> Callable[[Any], Any]:
    flag = "--" + item.name.replace("_", "-")
    kind: Any = type(item.default)
    if kind is bool and item.default:
        flag += "/--no-" + item.name.replace("_", "-")
    return click.option(
        flag,
        item.name,
        cls=SectionedOption,
        section=section,
        is_flag=kind is bool,
        type=None if kind is bool else kind,
        default=item.default,
        show_default=kind is not bool or item.default,
        metavar=None if kind is bool else "N" if kind is int else "X",
        help=item.metadata["help"],
    )


commands.add_command(generate)
commands.add_command(demo)

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@commands.command(cls=SectionedCommand, short_help="Play a trace of requests in virtual time.")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@setting_options
@click.option(
    "--sweep",
    metavar="NAME=V,V...",
    cls=SectionedOption,
    section="Sweep",
    help="Replay once for each value of a setting and show the trade-off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, not as a table.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a page with tables and plots.")
@click.option(
    "--perfetto", type=_FILE, metavar="FILE", help="Write a trace for https://ui.perfetto.dev."
)
@click.option(
    "--perfetto-from",
    "from_s",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="Leave out what starts before this virtual time.",
)
@click.option(
    "--perfetto-to",
    "to_s",
    type=float,
    default=float("inf"),
    metavar="SECONDS",
    help="Leave out what starts at this virtual time or after.",
)
@click.option(
    "--perfetto-max-events",
    "max_events",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Keep the first N events at most.",
)
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
def replay(
    trace: Path | None,
    sweep: str | None,
    as_json: bool,
    html: Path | None,
    perfetto: Path | None,
    from_s: float,
    to_s: float,
    max_events: int,
    quiet: bool,
    **values: Any,
) -> None:
    """Play a trace of requests through the scheduler, in virtual time, and report what clients
    would see: latencies, throughput, cache hits, retractions.

    TRACE is a file in the Mooncake (JSON lines) or Azure (CSV) format, plain or gzip. By default it
    is the Mooncake conversation trace that ships with tokenspeed: 12,031 requests in 59 minutes.

    A forward takes what the cost model says, a copy what the host link's bandwidth says. The
    scheduler is the real one, and the time that it takes to build a plan is measured.

    \b
    Examples:
      tokenspeed replay                                  the shipped trace, with all defaults
      tokenspeed replay --limit 1000 --html page.html    a page with plots
      tokenspeed replay trace.csv.gz --time-scale 2      a trace of yours, at twice the load
      tokenspeed replay --sweep num_device_pages=1000,2000,4000,8000
                                                         how large should the pool be?
      tokenspeed replay --limit 500 --perfetto run.json  every forward on a time line
    """
    try:
        scenario = Scenario.of(values)
        swept = Sweep.parse(sweep, scenario) if sweep else None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if swept and perfetto:
        raise click.UsageError("--perfetto shows one replay and cannot go with --sweep")
    if not from_s < to_s:
        raise click.UsageError(
            f"nothing starts in {from_s:g} s to {to_s:g} s (--perfetto-from, -to)"
        )
    for path in (html, perfetto):
        if path and not path.parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.parent}")
    loaded = _load(trace or default_trace_path())
    out = Console()
    try:
        if swept:
            reports = _run_sweep(loaded, swept, quiet)
            document: Any = [report.to_json() for report in reports]
            table = render_sweep(swept.name, reports)
            page = render_sweep_html(swept.name, reports) if html else ""
        else:
            with _progress(quiet) as bar:
                ledger = Player(loaded, scenario, on_progress=bar("replay")).run()
            report = Report.of(ledger, scenario)
            document, table = report.to_json(), render(report)
            page = render_html(report) if html else ""
    except Standstill as error:
        raise click.ClickException(str(error)) from None
    except ConfigurationRefused as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        out.print(table)
    if html:
        html.write_text(page, encoding="utf-8")
        click.echo(f"page: {html}", err=True)
    if perfetto:
        written = write_perfetto(ledger, perfetto, Window(from_s, to_s, max_events))
        note = f"time line: {perfetto}, {written.events:,} events; open it at ui.perfetto.dev"
        if written.to_s < to_s and written.to_s != float("inf"):
            note += (
                f" (it ends at {written.to_s:.1f} s, its {max_events:,} events being full: choose "
                "another window with --perfetto-from, or raise --perfetto-max-events)"
            )
        click.echo(note, err=True)


@commands.command(short_help="Make the calls of a recording again.")
@click.argument("recording", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--until", type=click.IntRange(min=1), metavar="ROUND", help="Stop after this round.")
@click.option("--show", is_flag=True, help="Print the last plan made.")
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
def rerun(recording: Path, until: int | None, show: bool, quiet: bool) -> None:
    """Make the calls of a recording (Scheduler.record) again, and compare every answer and the
    digest of every plan. The first that differs is shown, with the plan of now.

    Exits with 0 if all are the same, with 1 if one differs, with 2 if the file cannot be read.

    \b
    Examples:
      tokenspeed rerun run.jsonl.gz                      do the plans come out the same?
      tokenspeed rerun run.jsonl.gz --until 120 --show   what was the plan of round 120?
    """
    try:
        with _progress(quiet, lambda done, total, _: f"{done:,} of {total:,} bytes") as bar:
            played = play(recording, until, bar("rerun"))
    except RecordingError as error:
        raise InputError(str(error)) from None
    except SchedulerError as error:
        raise InputError(f"recording '{recording}', line 1: {error}") from None
    counts = f"{recording}: {played.calls:,} calls, {played.rounds:,} rounds"
    if played.cut_line is not None:
        click.echo(f"{recording}: ends within line {played.cut_line:,}; played up to it", err=True)
    if until is not None and played.same and played.rounds < until:
        click.echo(f"{recording}: ends before round {until:,} (--until)", err=True)
    if played.same:
        click.echo(f"{counts}, all as recorded by {played.version}")
    elif played.broke_off is not None:
        click.echo(f"{counts}, recorded by {played.version}; the last one broke off:")
        click.echo(f"  {played.broke_off}")
    else:
        click.echo(f"{counts}, recorded by {played.version}; the last one differs:")
    if played.last is not None and not (played.last.same and played.last.recorded):
        click.echo(describe_step(played.last))
    if played.plan is not None and (show or not played.same):
        click.echo(f"The plan of round {played.rounds:,}:")
        click.echo(describe_plan(played.plan))
    if not played.same:
        sys.exit(1)


@commands.command(short_help="Show an engine's cache events as they come.")
@click.argument("endpoint")
@click.option("--replay", metavar="ENDPOINT", help="Where to ask for what was missed.")
@click.option(
    "--topic",
    default="",
    metavar="TEXT",
    help="Only topics that begin so; what a replay brings has none.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N batches.")
def events(endpoint: str, replay: str | None, topic: str, count: int | None) -> None:
    """Show what enters and leaves the prefix cache of the engine that publishes at ENDPOINT.

    With --replay it begins with the oldest batch that the engine keeps, and asks again for what it
    misses.

    \b
    Example:
      tokenspeed events tcp://localhost:5557 --replay tcp://localhost:5558
    """
    try:
        from tokenspeed.events.show import NotEvents, show
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from None
    try:
        show(endpoint, replay, topic, count, click.echo, partial(click.echo, err=True))
    except NotEvents as error:
        raise InputError(str(error)) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _load(path: Path) -> Trace:
    try:
        return load_trace(path)
    except TraceError as error:
        raise InputError(str(error)) from None


def _run_sweep(trace: Trace, sweep: Sweep, quiet: bool) -> list[Report]:
    with _progress(quiet) as bar:
        total = len(sweep.scenarios)
        return sweep.run(trace, lambda n: bar(f"{sweep.name}, {n + 1} of {total}"))


OnProgressText = Callable[[int, int, float], str]
"""What stands behind a bar: from what is done, all there is, and the virtual time in seconds."""


def _replayed(done: int, total: int, now_s: float) -> str:
    return f"{done:,} of {total:,} requests, {now_s:,.0f} s played"


@contextmanager
def _progress(
    quiet: bool, describe: OnProgressText = _replayed
) -> Iterator[Callable[[str], OnProgress | None]]:
    """A progress bar on standard error, if that is a terminal; gives a function that names the
    next run and returns its callback."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda name: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as progress:

        def start(name: str) -> OnProgress:
            task = progress.add_task(name, total=None, state="")

            def update(done: int, total: int, now_s: float) -> None:
                state = describe(done, total, now_s)
                progress.update(task, completed=done, total=total, state=state)

            return update

        yield start


if __name__ == "__main__":
    main()
