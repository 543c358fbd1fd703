"""How much of an engine a scheduler keeps when memory is short: rounds until all requests are done.

Worlds and slices of traces, all requests there at once, in virtual time, over pools of 20 % to
120 % of what their requests come to hold in an ample one. Which request happens to start last moves
a trace's rounds by several per cent: `--orders` takes the mean over several orders. Every play is
kept in a file: the same command goes on where it was left, with what another interpreter has
installed as well. `docs/goodput.md` has the results.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from goodput_worlds import SIDES, WORLDS, World
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Cell = tuple[str, int, str]
"""World, percent of need, side."""
Key = tuple[str, int, str, int]
"""A cell, and the order of its requests: 0 is the file's, the others are shuffled."""
Play = dict[str, Any]
"""What came of it; `note` where it did not end."""

DEFAULT_SIDES = "goodput,goodput declared,goodput host,document declared,reference declared,vllm"
HEADINGS = (
    *(
        "world",
        "pool",
        "scheduler",
        "rounds",
        "±",
        "batch",
        "retracted",
        "most of one",
        "recomputed",
    ),
    *("GB copied", "first token, s", "99th", "per token, ms", "99th / median", "passed over, s"),
)
PATIENCE_S = 900.0
ITS_END = "its process ended"
"""What a play says that is to be tried again."""

SIDES_BY_NAME = {name.replace(",", ""): side for name, side in SIDES.items()}
"""As the command line has them: 'goodput host' is 'goodput, host'."""

T = TypeVar("T")


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 200)
    try:
        sides = [_named("side", name, SIDES_BY_NAME) for name in options.sides.split(",")]
        worlds = [_named("world", name, WORLDS) for name in options.worlds.split(",")]
        percents = [_percent(text) for text in options.pools.split(",")]
    except ValueError as error:
        parser.error(str(error))
    if options.orders < 1:
        parser.error(f"--orders: {options.orders} is no count from 1 on")
    if options.report and not options.state.exists():
        parser.error(f"--report: there is no {options.state}; --state names what was played")
    if options.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot needs matplotlib: pip install matplotlib")
    missing = [w.file for w in worlds if w.file and not (options.traces / w.file).exists()]
    if missing and not options.report:
        parser.error(f"{options.traces} has no {missing[0]}: --traces names the traces' folder")
    cells = [(world, percent, side) for world in worlds for percent in percents for side in sides]
    keys = [
        (world.name, percent, side.name, order)
        for world, percent, side in cells
        # All requests of the world without a file are alike.
        for order in range(options.orders if world.file else 1)
    ]
    played = dict(_kept(options.state))
    if not options.report:
        for key, play in _plays([key for key in keys if key not in played], options.traces):
            played[key] = play
            with options.state.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, play]) + "\n")
    plays: dict[Cell, list[Play]] = {}
    for key in keys:
        if key in played:
            plays.setdefault(key[:3], []).append(played[key])
    found = {cell: _mean(in_orders) for cell, in_orders in plays.items()}
    console.print(_table(found))
    if options.plot:
        _plot(found, options.plot)


def _percent(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"--pools: {text!r} is no whole number of per cent from 1 on")
    return int(text)


def _named(what: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ValueError(f"there is no {what} '{name}'; there are {', '.join(known)}")
    return known[name]


def _kept(path: Path) -> Iterator[tuple[Key, Play]]:
    """What earlier runs played to its end; a run that was cut off may have left half a line."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            (world, percent, side, order), play = json.loads(line)
        except ValueError:
            continue
        if play.get("note") != ITS_END:
            yield (world, percent, side, order), play


def _plays(keys: list[Key], traces: Path) -> Iterator[tuple[Key, Play]]:
    """Plays each in a process of its own, that may end or hang."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    context = multiprocessing.get_context("spawn")
    needs: dict[str, int] = {}
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(keys))
        for key in keys:
            progress.update(bar, description=f"{key[0]}, {key[1]} %, {key[2]}, {key[3]}")
            if SIDES[key[2]].is_here():
                pipe, theirs = context.Pipe()
                child = context.Process(
                    target=_play, args=(theirs, key, traces, needs.get(key[0])), daemon=True
                )
                child.start()
                theirs.close()
                try:
                    play = pipe.recv() if pipe.poll(PATIENCE_S) else {"note": "takes too long"}
                except EOFError:
                    play = {"note": ITS_END}
                child.kill()
                child.join()
                needs[key[0]] = play.get("need_pages", needs.get(key[0]))
                yield key, play
            progress.advance(bar)


def _play(pipe: Any, key: Key, traces: Path, need_pages: int | None) -> None:
    os.environ.setdefault("SPDLOG_LEVEL", "off")
    name, percent, side, order = key
    world: World = WORLDS[name]
    trace = world.trace(traces, order)
    need = need_pages or world.need_pages(world.trace(traces))
    pages = max(need * percent // 100, world.least_pages(trace))
    play: Play = {"need_pages": need, "pages": pages}
    try:
        report = SIDES[side].play(world, trace, pages)
    except Exception as error:
        play["note"] = f"{type(error).__name__}: {error}"[:80]
    else:
        first, each = report.latency.time_to_first_token_s, report.latency.time_per_output_token_s
        cache, outcome = report.cache, report.outcome
        play |= {
            "rounds": report.planning.forwards,
            "batch": report.planning.requests_per_forward,
            "unserved": outcome.refused_requests + outcome.aborted_requests,
            "retractions": cache.retractions,
            "retractions_max": cache.retractions_max,
            "recomputed": cache.recomputed_rate,
            "copied_bytes": cache.write_back_bytes + cache.load_back_bytes,
            "first_token_s": [first.p50, first.p99],
            "per_token_s": [each.p50, each.p99],
            "passed_over_s": report.latency.passed_over_s.max,
            "duration_s": outcome.duration_s,
        }
    pipe.send(play)


def _mean(plays: list[Play]) -> Play:
    """Of the plays of a cell in several orders; what the first says that did not end."""
    for play in plays:
        if "note" in play:
            return play
    mean = {name: np.mean([play[name] for play in plays], axis=0).tolist() for name in plays[0]}
    mean["retractions_max"] = max(play["retractions_max"] for play in plays)
    if len(plays) > 1:
        deviation = float(np.std([play["rounds"] for play in plays], ddof=1))
        mean |= {"rounds_deviation": deviation, "orders": len(plays)}
    return mean


def _table(found: dict[Cell, Play]) -> Table:
    table = Table(*HEADINGS)
    for heading, column in zip(HEADINGS, table.columns):
        column.no_wrap = True
        column.justify = "left" if heading in ("world", "scheduler") else "right"
    last = None
    for (world, percent, side), play in found.items():
        if last not in (None, (world, percent)):
            table.add_section()
        head = ["", ""] if last == (world, percent) else [world, f"{percent} %"]
        last = (world, percent)
        table.add_row(*head, side, *_cells(play))
    return table


def _cells(play: Play) -> list[str]:
    if "note" in play:
        return [play["note"][:24]]
    first, each = play["first_token_s"], play["per_token_s"]
    return [
        f"{play['rounds']:,.0f}",
        f"{play['rounds_deviation']:.0f} of {play['orders']}" if "orders" in play else "",
        f"{play['batch']:.1f}",
        f"{play['retractions']:,.0f}",
        f"{play['retractions_max']}",
        f"{play['recomputed']:.1%}",
        f"{play['copied_bytes'] / 1e9:.1f}",
        f"{first[0]:.1f}",
        f"{first[1]:.1f}",
        f"{1e3 * each[0]:.1f}",
        f"{each[1] / each[0]:.2f}",
        f"{play['passed_over_s']:.1f}",
    ]


def _plot(found: dict[Cell, Play], path: Path) -> None:
    """Rounds over the pool, a panel a world, a line a side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(world for world, _, _ in found))
    tones = {side: f"C{at}" for at, side in enumerate(dict.fromkeys(side for *_, side in found))}
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(3.2 * len(names), 3.4), squeeze=False, layout="constrained"
    )
    for panel, name in zip(panels[0], names):
        for side, tone in tones.items():
            points = [
                (percent, play["rounds"])
                for (world, percent, who), play in found.items()
                if (world, who) == (name, side) and "rounds" in play
            ]
            xs, ys = zip(*sorted(points)) if points else ((), ())
            panel.plot(xs, ys, "o-", color=tone, ms=3, lw=1.2, label=side)
        panel.set(title=name, xlabel="pool, % of need", yscale="log")
        panel.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("rounds until all are done")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sides = ", ".join(SIDES_BY_NAME)
    parser.add_argument(
        "--pools", default="20,40,60,80,100,120", help="percents of need, with commas between"
    )
    parser.add_argument("--worlds", default=",".join(WORLDS), help="of: " + ", ".join(WORLDS))
    parser.add_argument("--sides", default=DEFAULT_SIDES, help=f"of: {sides}".replace("%", "%%"))
    parser.add_argument(
        "--orders",
        type=int,
        default=1,
        metavar="N",
        help="play each trace in its own order and in N - 1 others (1): every figure is a mean "
        "then, that of the rounds with its standard deviation",
    )
    parser.add_argument(
        "--traces",
        type=Path,
        default=Path(__file__).parents[2] / "shared" / "data" / "traces",
        metavar="FOLDER",
        help="where the traces lie (shared/data/traces beside the repository)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=Path("goodput.jsonl"),
        help="what was played (goodput.jsonl); remove it for another core",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="SVG or PNG; needs matplotlib")
    parser.add_argument("--report", action="store_true", help="play nothing, print the table")
    return parser


if __name__ == "__main__":
    main()
