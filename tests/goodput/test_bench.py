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
        ["world", 100, "goodput", 0],
        ["world", 100, "document, declared", 0],
    ]
    assert all(play["rounds"] == 1055 and play["unserved"] == 0 for _, play in plays)
    assert both.count("1,055") == 2
    assert bench(state, "--sides", "goodput,document declared", "--report") == both


def test_rounds_over_several_orders_are_a_mean_with_its_deviation(tmp_path):
    state = tmp_path / "goodput.jsonl"
    figures = {"batch": 1, "unserved": 0, "retractions": 3, "recomputed": 0, "copied_bytes": 0}
    figures |= {"first_token_s": [1, 2], "per_token_s": [1, 2], "passed_over_s": 0, "duration_s": 9}
    plays = [
        [
            ["azure code", 100, "goodput", order],
            {**figures, "rounds": rounds, "retractions_max": order},
        ]
        for order, rounds in enumerate([1000, 1010, 1020])
    ]
    state.write_text("".join(json.dumps(play) + "\n" for play in plays))
    said = bench(state, "--sides", "goodput", "--report", "--worlds", "azure code", "--orders", "3")
    row = next(line for line in said.splitlines() if "azure code" in line)
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells[3:5] == ["1,010", "10 of 3"] and cells[6:8] == ["3", "2"]
