"""Counts instructions of the core, which a busy machine does not move, and compares them with those
that are recorded; `python benches/instructions.py --help` says how."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

RECORDED = Path(__file__).with_name("instructions.json")

SHAPES = {
    "256 decoding, 1k": 64,
    "256 decoding, 1k, compatible": 64,
    "prefix hits": 1,
    "admission under pressure": 64,
    "short of memory, 2,000 waiting": 1,
}
"""Steps of each shape of `crates/tokenspeed-scheduler/benches/instructions.rs` that are counted."""


def built() -> str:
    """The benchmark's executable, built as `cargo bench` builds it."""
    command = ["cargo", "bench", "--package", "tokenspeed-scheduler", "--bench", "instructions"]
    done = subprocess.run(
        [*command, "--no-run", "--message-format=json"], check=True, stdout=subprocess.PIPE
    )
    messages = (json.loads(line) for line in done.stdout.splitlines())
    (executable,) = [m["executable"] for m in messages if m.get("executable")]
    return str(executable)


def counted(executable: str, shape: str, steps: int) -> int:
    """Instructions of the scheduler's own calls: the set-up's and so many steps'."""
    command = [
        "valgrind",
        "--tool=callgrind",
        "--toggle-collect=*setup::engine::timed*",
        "--callgrind-out-file=/dev/null",
        executable,
        shape,
        str(steps),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--executable", help="One that is built already, in place of the one cargo builds.")
@click.option("--record", is_flag=True, help="Write the counts down, as those to compare with.")
def main(executable: str | None, record: bool) -> None:
    """Instructions of a step in a few situations, by valgrind's callgrind.

    Only the scheduler's calls are counted, and the set-up's are subtracted. Valgrind shows no SHA
    instructions to the program, so hashing counts several times what it takes: a difference says
    more than a total does.
    """
    executable = executable or built()
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    table = Table(title="Instructions a step", title_justify="left")
    for column in ("", "now", "recorded", "now / recorded"):
        table.add_column(column, justify="right" if column else "left")
    now = {}
    for shape, steps in SHAPES.items():
        set_up, all_ = (counted(executable, shape, n) for n in (0, steps))
        # Where a situation is set up within its step there is nothing to subtract.
        now[shape] = (all_ - set_up) // steps
        before = recorded.get(shape)
        against = [f"{before:,}", f"{now[shape] / before:.3f}"] if before else ["-", "-"]
        table.add_row(shape, f"{now[shape]:,}", *against)
    Console().print(table)
    if record:
        RECORDED.write_text(json.dumps(now, indent=2) + "\n")


if __name__ == "__main__":
    main()
