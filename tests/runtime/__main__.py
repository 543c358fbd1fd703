"""Plays worlds by seed on the simulated device: `python -m tests.runtime --seeds 0:10000 --jobs 2`.

`--kind any` draws all that a world may have, `pressed` such as retract and reload much, and `split`
those of `any` on a prefill and a decode engine. A seed that goes wrong is printed with its world;
`--seed N` plays one and raises where it fails.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .split import play_split
from .world import draw, play

_CHUNK = 20


def play_seeds(seeds: range, kind: str) -> tuple[Counter[str], list[str]]:
    """What these worlds did in sum, and what went wrong."""
    totals: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        try:
            totals.update(_play(seed, kind))
        except Exception as error:
            wrong.append(f"{kind} seed {seed}: {type(error).__name__}: {error}")
    return totals, wrong


def _play(seed: int, kind: str) -> dict[str, int]:
    if kind == "split":
        split = play_split(draw(seed))
        return {
            "tokens": sum(map(len, split.outputs.values())),
            "rounds": split.steps,
            "retractions": split.retractions,
            "prompts handed over": split.landed,
            "failed": sum(reason == "error" for reason in split.reasons.values()),
        }
    game = play(draw(seed, pressed=kind == "pressed"))
    return {
        "tokens": sum(map(len, game.outputs.values())),
        "rounds": game.steps,
        "retractions": game.retractions,
        "blocks stored": game.stores,
        "ordered stores": game.ordered_stores,
        "blocks loaded": game.loads,
        "tokens hit": game.hit_tokens,
        "failed": sum(reason == "error" for reason in game.reasons.values()),
        "aborted": sum(reason == "abort" for reason in game.reasons.values()),
    }


@click.command(help=__doc__)
@click.option("--seeds", default="0:1000", show_default=True, help="First and end, as in Python.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option(
    "--kind", type=click.Choice(["any", "pressed", "split"]), default="any", show_default=True
)
@click.option("--seed", type=int, default=None, help="Only this one, with its traceback.")
def main(seeds: str, jobs: int, kind: str, seed: int | None) -> None:
    console = Console(stderr=not sys.stdout.isatty())
    if seed is not None:
        console.print(str(draw(seed, pressed=kind == "pressed")))
        console.print(_play(seed, kind))
        return
    first, end = (int(part) for part in seeds.split(":"))
    began = time.perf_counter()
    totals: Counter[str] = Counter()
    wrong: list[str] = []
    done = 0
    columns = (TextColumn("worlds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProcessPoolExecutor(jobs) as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task("worlds", total=end - first)
        chunks = [range(at, min(at + _CHUNK, end)) for at in range(first, end, _CHUNK)]
        pending = {pool.submit(play_seeds, chunk, kind): chunk for chunk in chunks}
        for future in as_completed(pending):
            sums, failures = future.result()
            totals.update(sums)
            for line in failures:
                progress.console.print(line, style="red")
            wrong += failures
            progress.advance(task, len(pending[future]))
            done += len(pending[future])
            if not console.is_terminal and done % 500 == 0:
                print(f"{done} worlds, {len(wrong)} wrong", flush=True)
    print(f"{end - first} worlds in {time.perf_counter() - began:.0f} s, {len(wrong)} wrong")
    print(", ".join(f"{count:,} {name}" for name, count in totals.items()))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
