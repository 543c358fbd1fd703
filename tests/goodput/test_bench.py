"""The bench of goodput: what it plays is kept, and told."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "benches" / "goodput.py"


def bench(state: Path, *options: str) -> str:
    command = [sys.executable, str(BENCH), "--state", str(state), "--worlds", "world"]
    done = subprocess.run(
        [*command, "--pools", "100", *options], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_goes_on_where_it_was_left(tmp_path):
    state = tmp_path / "goodput.jsonl"
    bench(state, "--sides", "goodput")
    both = bench(state, "--sides", "goodput,document declared")
    plays = [json.loads(line) for line in state.read_text().splitlines()]
    assert [key for key, _ in plays] == [
        ["world", 100, "goodput"],
        ["world", 100, "document, declared"],
    ]
    assert all(play["rounds"] == 1055 and play["unserved"] == 0 for _, play in plays)
    assert both.count("1,055") == 2
    assert bench(state, "--sides", "goodput,document declared", "--report") == both
