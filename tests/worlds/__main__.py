"""The command line: ``python -m tests.worlds``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.conformance.__main__ import POLICIES
from tests.conformance.player import MakeSide
from tests.conformance.side import Side, what_is_missing
from tests.conformance.workers import Pool

from .endings import Ending, ending_of
from .mirrored import Mirrored
from .numbering import STRANDS, world
from .report import failures, table
from .state import Played, State

OURS = "tokenspeed.scheduler"
THEIRS = "tokenspeed_scheduler"
#: Worlds that one side plays before the other takes its turn.
TURN = 450

EXAMPLES = f"""\
World n is one of the {len(STRANDS)} pairs of role and family, in turn. Each side plays it alone.
Ours is two mirrored schedulers; build them with `make build`, so that every invariant is checked
after every call. What was played is kept in the state file: the same command goes on where it was
left.

examples:
  python -m tests.worlds --seeds 0:100000 --jobs 2      both sides
  python -m tests.worlds --seeds 0:5000 --theirs none   ours alone
  python -m tests.worlds --policy goodput               ours alone, under the other policy
  python -m tests.worlds --seeds 0:100000 --report      the tables of what was played so far

The exit code is 1 if a world does not end on our side.
"""


def main(arguments: list[str] | None = None) -> int:
    """Plays what the command line asks for; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    os.environ.setdefault("SPDLOG_LEVEL", "off")
    console = Console()
    wide = Console(width=max(console.width, 120))
    numbers = range(*options.seeds)
    compared = options.policy == POLICIES[0]
    ours = options.ours if compared else f"{options.ours}, {options.policy}"
    sides: dict[str, MakeSide] = {
        ours: partial(Mirrored, options.ours, policy=options.policy.capitalize())
    }
    if options.theirs != "none" and compared:
        if missing := what_is_missing(options.theirs):
            parser.error(missing)
        sides[options.theirs] = partial(Side, options.theirs)
    state = State(options.state)
    started_s = time.monotonic()
    count = 0
    if not options.report:
        count = _play(console, numbers, sides, state, options.jobs)
    seconds = time.monotonic() - started_s
    for side in sides:
        wide.print(table(side, state.of(numbers, side)))
    played = state.of(numbers, ours)
    for line in failures(played, options.policy, options.limit):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(f"{count} plays in {seconds:.0f} s; kept in {state.path}", soft_wrap=True)
    return int(any(entry.ending != Ending.FINISHED for entry in played))


def _play(
    console: Console, numbers: range, sides: dict[str, MakeSide], state: State, jobs: int
) -> int:
    """Lets the sides take turns over the worlds that they have not played; returns how many plays
    that came to."""
    total = sum(len(state.missing(numbers, side)) for side in sides)
    pools = {side: Pool(make, None, jobs) for side, make in sides.items()}
    try:
        with _progress(console) as progress:
            bar = progress.add_task("worlds", total=total, failed=0)
            failed = 0
            for first in range(numbers.start, numbers.stop, TURN):
                turn = range(first, min(first + TURN, numbers.stop))
                for side, pool in pools.items():
                    number_of = {world(n): n for n in state.missing(turn, side)}
                    for outcome in pool.play(number_of):
                        ending = ending_of(outcome)
                        what = "" if ending == Ending.FINISHED else outcome.ours
                        state.add(Played(number_of[outcome.world], side, ending, what))
                        failed += side == next(iter(sides)) and ending != Ending.FINISHED
                        progress.update(bar, advance=1, failed=failed)
    finally:
        for pool in pools.values():
            pool.__exit__()
    return total


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} of ours failed"),
        TimeRemainingColumn(),
        console=console,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.worlds",
        description="Plays random worlds over all roles and families, each side alone, to an end.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=(0, 1000), metavar="A:B", help="worlds A to B-1 (0:1000)"
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=POLICIES[0],
        help=f"pressure_policy; ours plays alone but under the first ({POLICIES[0]})",
    )
    parser.add_argument("--jobs", type=int, default=1, help="child processes (1)")
    parser.add_argument(
        "--state", type=Path, default=Path("worlds.jsonl"), help="state file (worlds.jsonl)"
    )
    parser.add_argument("--report", action="store_true", help="play nothing, print the tables")
    parser.add_argument("--limit", type=int, default=10, help="failed worlds to print (10)")
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
