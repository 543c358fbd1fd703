"""`benches/gpu.py` runs, and writes what it should; its numbers need a GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.runtime.emulated_cupy import emulation
from tests.runtime.emulator import COMPILER

SCRIPT = Path(__file__).parents[2] / "benches" / "gpu.py"

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler, c++")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The script as a module, on the emulated device."""
    with emulation(tmp_path_factory.mktemp("emulation")):
        spec = importlib.util.spec_from_file_location("gpu_bench", SCRIPT)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["gpu_bench"] = module
        spec.loader.exec_module(module)
        yield module
        del sys.modules["gpu_bench"]


def test_it_measures_all_parts(gpu: Any, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{gpu.BEGIN}\nold\n{gpu.END}\nafter\n")
    gpu.README = readme
    arguments = ["--tiny", "--write", "--json", str(tmp_path / "out.json")]
    outcome = CliRunner().invoke(gpu.main, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    whole = json.loads((tmp_path / "out.json").read_text())
    assert whole["card"] == "no GPU"
    goals = {row["goal"] for row in whole["rows"]}
    assert goals == {"", "90 %", "80 %", "100 %", "< 200 µs"}
    for row in whole["rows"]:
        assert (row["met"] is None) == (row["goal"] == "")
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert all(row["what"] in text for row in whole["rows"])
    assert f"| {whole['rows'][0]['what']} |" in text


def test_a_verdict_is_in_the_table(gpu: Any) -> None:
    row = gpu.Row("x", 80.0, "GB/s", 100.0, "90 %", False)
    assert gpu.cells(row)[1:6] == ["80 GB/s", "100 GB/s", "80.0%", "90 %", "NO"]
