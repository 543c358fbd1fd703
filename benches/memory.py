"""Resident memory of schedulers, side by side; `python benches/memory.py --help` says how.

What the core alone asks of its allocator says `cargo bench --bench memory`.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from peer import Peer, Pool, Request
from peers import PEERS
from rich.console import Console
from rich.table import Table
from situations import play, prompt, submit

CONTEXT_TOKENS = 1024
FILLER_BLOCKS = 64
ROUNDS = 16
"""That the requests decode."""


def resident() -> int:
    """Bytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cache(peer: Peer, blocks: int, page: int) -> None:
    """Fills so many blocks and lets them go: they stay cached."""
    tokens = FILLER_BLOCKS * page - 1
    for seed in range(blocks // FILLER_BLOCKS):
        submit(peer, [Request(f"f{seed}", prompt(seed, tokens))])
        peer.finish(play(peer)[1])


def decode(peer: Peer, requests: int, page: int) -> None:
    """Brings so many requests to decode."""
    for at in range(requests):
        tokens = prompt(10**7 + at, CONTEXT_TOKENS + at % page)
        submit(peer, [Request(f"r{at}", tokens)])
        if at % 16 == 15:
            play(peer)
    for _ in range(ROUNDS):
        sampled = play(peer)[1]
    assert len(sampled) == requests


def measure(peer: str, requests: int, blocks: int, page: int) -> tuple[int, int]:
    """Bytes of a pool full of cached blocks, and of requests that decode beside them."""
    own = requests * -(-(CONTEXT_TOKENS + page + requests // 16 + ROUNDS + 1) // page)
    rows = max(requests, 1)
    round_tokens = max(32 * (CONTEXT_TOKENS + page) + rows, FILLER_BLOCKS * page)
    PEERS[peer].missing()  # what is imported is not the scheduler's memory
    before = resident()
    made = PEERS[peer](Pool(page, blocks + own, rows, round_tokens))
    cache(made, blocks, page)
    cached = resident()
    decode(made, requests, page)
    return cached - before, resident() - cached


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--requests", default=4096, show_default=True, help="That decode, of 1k each.")
@click.option("--blocks", default=1_000_000, show_default=True, help="That are cached.")
@click.option("--page", default=16, show_default=True, help="Tokens of a block.")
@click.option("--peer", "wanted", multiple=True, type=click.Choice(list(PEERS)), help="Repeatable.")
@click.option("--python", "pythons", multiple=True, metavar="PEER=PATH", help="As for compare.py.")
@click.option("--here", hidden=True, help="Measures one peer in this process.")
def main(
    requests: int,
    blocks: int,
    page: int,
    wanted: Sequence[str],
    pythons: Sequence[str],
    here: str | None,
) -> None:
    """Resident memory of a scheduler with a million cached blocks, and with 4,096 requests beside.

    Each scheduler fills a pool in a process of its own. The first number has all that it keeps for
    the blocks, the pool's own tables too; the second what live requests add, their tokens too.
    """
    if here is not None:
        print(*measure(here, requests, blocks, page))
        return
    told = dict(python.split("=", 1) for python in pythons)
    table = Table(title=f"Resident memory, page {page}", title_justify="left")
    for column in ("", f"{blocks:,} cached blocks", "a block", f"{requests:,} requests", "each"):
        table.add_column(column, justify="right" if column else "left")
    for peer in wanted or PEERS:
        command = [told.get(peer, sys.executable), __file__, "--here", peer]
        command += ["--requests", str(requests), "--blocks", str(blocks), "--page", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            table.add_row(peer, (done.stderr.strip().splitlines() or ["?"])[-1])
            continue
        cached, live = map(int, done.stdout.split()[-2:])
        each = f"{live / max(requests, 1):,.0f} B"
        table.add_row(
            peer,
            f"{cached / 1e6:,.0f} MB",
            f"{cached / blocks:,.0f} B",
            f"{live / 1e6:,.0f} MB",
            each,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
