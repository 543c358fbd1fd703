"""The command line: ``python -m tests.mutants``; ``make mutants``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .table import MUTANTS, ROOT, Mutant

#: Random worlds a role that a mistake is given to show itself.
WORLDS_A_ROLE = 3000


def main(arguments: list[str] | None = None) -> int:
    """Makes every mistake in turn; the exit code is 1 if one is not caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Makes each deliberate mistake in a copy of the core and runs the test that"
        " must catch it.",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rules that contain TEXT")
    parser.add_argument(
        "--copy", type=Path, default=ROOT / "target" / "mutants", help="where (target/mutants)"
    )
    options = parser.parse_args(arguments)
    console = Console()
    table = Table("rule", "caught by", "seconds", title="deliberate mistakes")
    survivors = 0
    _copy_sources(options.copy)
    for mutant in (m for m in MUTANTS if options.only in m.rule):
        started_s = time.monotonic()
        caught = _try(mutant, options.copy)
        survivors += caught is None
        seconds = f"{time.monotonic() - started_s:.0f}"
        table.add_row(mutant.rule, caught or "[bold]nothing[/bold]", seconds)
        console.print(f"{seconds:>4} s  {mutant.rule}: {caught or 'NOT CAUGHT'}", soft_wrap=True)
    console.print(table)
    return int(survivors > 0)


def _copy_sources(copy: Path) -> None:
    """What cargo needs to build the core's tests, and nothing that it has built."""
    for name in ("crates", "Cargo.toml", "Cargo.lock"):
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _try(mutant: Mutant, copy: Path) -> str | None:
    """What the test that failed said; None if none did. Raises if the mistake does not build."""
    path = copy / mutant.path()
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(source), encoding="utf-8")
    try:
        build = _cargo(mutant, copy, "--no-run")
        if build.returncode != 0:
            raise RuntimeError(f"{mutant.rule}: does not build\n{build.stderr}")
        run = _cargo(mutant, copy)
    finally:
        path.write_text(source, encoding="utf-8")
    if run.returncode == 0:
        return None
    output = (run.stdout + run.stderr).splitlines()
    said = [line for line in output if line.startswith("world ")] or [mutant.only]
    return f"{mutant.test}: {said[0]}"


def _cargo(mutant: Mutant, copy: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "test", "--quiet", "--package", "tokenspeed-scheduler"]
    command += ["--test", mutant.test, *more, "--", *([mutant.only] if mutant.only else [])]
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(copy / "target"),
        # The compiler is most of the time that it takes.
        "CARGO_PROFILE_TEST_OPT_LEVEL": "0",
        "CARGO_PROFILE_TEST_DEBUG": "0",
        "CARGO_INCREMENTAL": "1",
        "RUST_BACKTRACE": "0",
        "WORLDS": str(WORLDS_A_ROLE),
    }
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
