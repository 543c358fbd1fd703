"""The command line: ``python -m tests.conformance``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .generate import FAMILIES, world_from_seed
from .play import play
from .player import MakeSide
from .report import Tally, print_failure, story
from .shrink import shrink
from .side import Side, what_is_missing
from .workers import Pool
from .world import ROLES, World

OURS = "tokenspeed.scheduler"
THEIRS = "tokenspeed_scheduler"
POLICIES = ("document", "goodput")
"""Pressure policies of our side; the reference has the first alone."""

EXAMPLES = """\
A world is one seed: configuration, requests, timing of results and acknowledgements.
Both schedulers play it in lockstep and must make the same plans; then ours plays it to its end.

examples:
  python -m tests.conformance --seeds 0:2000 --jobs 2       play 2000 worlds in 2 processes
  python -m tests.conformance --seeds 0:200 --shrink        make each failing world small
  python -m tests.conformance --seed 17                     one world, with the story if it fails
  python -m tests.conformance --seed 17 --show              one world, round by round
  python -m tests.conformance --seeds 0:500 --theirs none   our side alone: does every world end?
  python -m tests.conformance --role D --family replay      another role, other groups

The exit code is 1 if a difference is unexplained or a world does not end on our side.
"""


def main(arguments: list[str] | None = None) -> int:
    """Plays what the command line asks for; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    os.environ.setdefault("SPDLOG_LEVEL", "off")
    console = Console()
    ours = partial(Side, options.ours, policy=options.policy.capitalize())
    alone = options.theirs == "none" or options.policy != POLICIES[0]
    if not alone and (missing := what_is_missing(options.theirs)):
        parser.error(missing)
    theirs = None if alone else partial(Side, options.theirs)
    first, last = options.seeds if options.seed is None else (options.seed, options.seed + 1)
    worlds = [world_from_seed(s, options.role, options.family) for s in range(first, last)]
    if options.show:
        return _show(console, worlds, ours, theirs)
    tally = Tally(options.role, options.family)
    started_s = time.monotonic()
    with Pool(ours, theirs, options.jobs) as pool:
        with _progress(console) as progress:
            bar = progress.add_task("worlds", total=len(worlds), failed=0)
            for outcome in pool.play(worlds):
                tally.add(outcome)
                progress.update(bar, advance=1, failed=len(tally.failed))
        seconds = time.monotonic() - started_s
        for outcome in sorted(tally.failed, key=lambda o: o.world.timing)[: options.limit]:
            if options.shrink:
                outcome = shrink(outcome, pool)
            print_failure(console, outcome)
    if tally.failed:
        seeds = " ".join(str(o.world.timing) for o in tally.failed)
        console.print(f"failing seeds: {seeds}")
    console.print(tally.tables(seconds))
    return 1 if tally.failed else 0


def _show(console: Console, worlds: list[World], ours: MakeSide, theirs: MakeSide | None) -> int:
    """Plays in this process and prints every round."""
    passed = True
    for world in worlds:
        _print(console, world.literal())
        outcome = play(
            world,
            ours,
            theirs,
            watch=lambda r: _print(console, "\n".join(r.lines())),
        )
        _print(console, story(outcome))
        passed &= outcome.passed
    return 0 if passed else 1


def _print(console: Console, text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
        console=console,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Plays random worlds against the reference scheduler, round by round.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seeds", type=_seeds, default=(0, 200), metavar="A:B", help="seeds A to B-1 (0:200)"
    )
    which.add_argument("--seed", type=int, help="one seed")
    parser.add_argument(
        "--role", type=str.capitalize, choices=ROLES, default="Fused", help="role (Fused)"
    )
    parser.add_argument(
        "--family", choices=FAMILIES, default=FAMILIES[0], help="what the worlds are about (plain)"
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=POLICIES[0],
        help=f"pressure_policy; ours plays alone but under the first ({POLICIES[0]})",
    )
    parser.add_argument("--jobs", type=int, default=1, help="child processes (1)")
    parser.add_argument("--shrink", action="store_true", help="make each failing world small")
    parser.add_argument("--show", action="store_true", help="print each round, in this process")
    parser.add_argument("--limit", type=int, default=3, help="failing worlds to print (3)")
    parser.add_argument("--ours", default=OURS, metavar="MODULE", help=f"our side ({OURS})")
    parser.add_argument(
        "--theirs", default=THEIRS, metavar="MODULE", help=f"the reference ({THEIRS}), or none"
    )
    return parser


def _seeds(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last)


if __name__ == "__main__":
    sys.exit(main())
