"""The benchmarks run: tiny shapes, and no word about how long they take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COMPARE = Path(__file__).parents[2] / "benches" / "compare.py"
PEERS = ["arrays", "compatible"]


def test_every_contest_is_played(tmp_path: Path) -> None:
    found, picture = tmp_path / "found.json", tmp_path / "picture.svg"
    command = [sys.executable, str(COMPARE), "--tiny", "--turns", "2"]
    command += [part for peer in PEERS for part in ("--peer", peer)]
    command += ["--json", str(found), "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    cells = json.loads(found.read_text())["cells"]
    contests = {"decode", "context", "waiting", "cached", "prefix", "pressure"}
    assert {cell["contest"] for cell in cells} == contests
    assert {cell["peer"] for cell in cells} == set(PEERS)
    lacking = [cell for cell in cells if cell["turns"] != 2 or cell["note"]]
    assert lacking == []

    ratios = json.loads(found.read_text())["ratios"]
    assert {ratio["contest"] for ratio in ratios} == {"context", "waiting", "cached"}
    assert all(len(ratio["ratio"]) == 3 for ratio in ratios)
    assert picture.read_text().startswith("<svg")


def test_help_names_every_contest() -> None:
    command = [sys.executable, str(COMPARE), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    contests = ["decode", "context", "waiting", "cached", "prefix", "pressure"]
    for word in [*contests, "arrays", "compatible", "reference", "vllm"]:
        assert f"\n    {word} " in text, word
