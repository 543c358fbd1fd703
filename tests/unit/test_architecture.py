"""Who may know whom, and what must not be there (`ARCHITECTURE.md`)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python" / "tokenspeed"
CORE = ROOT / "crates" / "tokenspeed-scheduler" / "src"
RECORDING = ROOT / "crates" / "tokenspeed-recording" / "src"
KERNELS = ROOT / "kernels"
BINDINGS = ROOT / "crates" / "tokenspeed-python" / "src"

LINES_MAX = 400

PYTHON_MAY_IMPORT = {
    "scheduler": set[str](),
    "events": {"scheduler"},
    "simulate": {"scheduler"},
    "runtime": {"scheduler"},
    "models": {"runtime"},
    "engine": {"models", "runtime", "scheduler"},
    "rerun": {"scheduler"},
    "cli": {"engine", "events", "models", "rerun", "runtime", "scheduler", "simulate"},
}

CORE_MAY_USE = {
    "error": set[str](),
    "event": set[str](),
    "growth": set[str](),
    "identity": {"growth"},
    "config": {"error"},
    "capacity": {"config", "error"},
    "cache": {"config", "error", "growth", "identity"},
    "request": {"cache", "error", "growth", "identity"},
    "plan": {"cache", "capacity", "config", "error", "identity", "request"},
    "scheduler": {
        "cache", "capacity", "check", "config", "error", "event", "growth", "identity", "plan",
        "request",
    },
    "check": {"request", "scheduler"},
}  # fmt: skip


def code(path: Path) -> str:
    """A Rust file without its comments."""
    return re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))


def rust_files(root: Path) -> list[Path]:
    files = sorted(root.rglob("*.rs"))
    assert files, root
    return files


def top(path: Path, root: Path) -> str:
    """The package or module right below `root` that a file belongs to."""
    return path.relative_to(root).parts[0].removesuffix(path.suffix)


def imports(path: Path) -> Iterator[str]:
    """The packages of tokenspeed that a Python file imports, by their first name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides whom it knows"
            module = node.module or ""
            names = [module]
            if module == "tokenspeed":
                names = [f"tokenspeed.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("tokenspeed."):
                yield name.split(".")[1]


def test_python_imports_go_downwards() -> None:
    seen = set()
    for path in sorted(PYTHON.rglob("*.py")):
        if path.parent == PYTHON and path.stem == "__init__":
            continue
        package = top(path, PYTHON)
        for other in imports(path):
            seen.add((package, other))
            assert other == package or other in PYTHON_MAY_IMPORT[package], (
                f"{path.relative_to(ROOT)} imports tokenspeed.{other}"
            )
    assert ("simulate", "scheduler") in seen


def test_without_torch_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; from tokenspeed import LLM"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'tokenspeed-core[models]'" in ran.stderr.splitlines()[-1]


def test_torch_is_imported_only_where_a_model_is_asked_for() -> None:
    heavy = "import sys, tokenspeed.cli, tokenspeed.engine; sys.exit('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", heavy], check=False)
    assert ran.returncode == 0


def uses(path: Path) -> Iterator[str]:
    """The modules of its crate that a Rust file names."""
    for found in re.finditer(r"\bcrate::(?:\{([^}]*)\}|(\w+))", code(path)):
        for name in (found[1] or found[2]).split(","):
            if name.strip():
                yield name.strip().split("::")[0]


def test_core_modules_go_downwards() -> None:
    seen = set()
    for path in rust_files(CORE):
        module = top(path, CORE)
        if module == "lib":
            continue
        for other in uses(path):
            seen.add((module, other))
            assert other == module or other in CORE_MAY_USE[module], (
                f"{path.relative_to(ROOT)} uses crate::{other}"
            )
    assert ("plan", "cache") in seen


FORBIDDEN = [
    (["."], r"\bunsafe\b(?!_code)", "the core is safe code"),
    (["."], r"\b(Instant|SystemTime|std::time|std::thread|std::fs|std::net)\b", "no clock, no I/O"),
    (["."], r"\b(pyo3|numpy)\b", "the core knows no Python"),
    (["."], r"\b(println|eprintln|dbg|todo|unimplemented)!", "nothing printed, nothing left to do"),
    (["cache/pool.rs", "cache/table.rs"], r"(?i)token", "slots and blocks, no tokens"),
    (
        ["plan"],
        r"\b(parent_of|blocks_per_parent|cache_blocks_per_lcm_block|pack\w*)\b",
        "how blocks lie in parents is the cache's",
    ),
    (["cache", "request"], r"\bRole\b", "a role is known to plan's grammars"),
]


@pytest.mark.parametrize(("places", "pattern", "reason"), FORBIDDEN, ids=lambda part: str(part))
def test_what_is_absent(places: list[str], pattern: str, reason: str) -> None:
    for place in places:
        path = CORE / place
        assert path.exists(), f"{place} is gone: this rule watches nothing"
        for file in [path] if path.is_file() else rust_files(path):
            found = re.search(pattern, code(file))
            assert found is None, f"{file.relative_to(ROOT)} has `{found and found[0]}`: {reason}"


@pytest.mark.parametrize("crate", [CORE, RECORDING], ids=lambda crate: crate.parent.name)
def test_the_core_and_its_recordings_forbid_unsafe_code(crate: Path) -> None:
    assert "#![forbid(unsafe_code)]" in (crate / "lib.rs").read_text(encoding="utf-8")


def test_a_recording_knows_the_front_door_alone() -> None:
    seen = set()
    for path in rust_files(RECORDING):
        text = code(path)
        assert not re.search(r"\b(Instant|SystemTime|std::thread|pyo3|numpy|e?println!)", text), (
            path
        )
        for found in re.finditer(r"\btokenspeed_scheduler::(?:\{([^}]*)\}|(\w+))", text):
            seen |= {name.strip() for name in (found[1] or found[2]).split(",") if name.strip()}
    assert "ExecutionPlan" in seen
    assert all(name[0].isupper() for name in seen), seen


HASHED = re.compile(r"\b(\w+)\s*(?::[^;={,\n]*?|=\s*)\b(?:Fx)?Hash(?:Map|Set|Table)\b")


def test_nothing_depends_on_the_order_of_a_hash_map() -> None:
    watched = 0
    for path in rust_files(CORE):
        if path.stem == "check":  # looks at everything and decides nothing
            continue
        text = code(path)
        for name in {found[1] for found in HASHED.finditer(text)}:
            watched += 1
            walks = (
                rf"\b{name}\s*\.\s*(iter|iter_mut|into_iter|keys|values|values_mut|drain)\b",
                rf"\bin\s+&?(mut\s+)?(\w+\.)*{name}\s*\{{",
            )
            for walk in walks:
                found = re.search(walk, text)
                assert found is None, f"{path.relative_to(ROOT)}: `{found and found[0]}`"
    assert watched >= 5


def test_the_bindings_keep_unsafe_code_to_views_and_fields_and_explain_it() -> None:
    for path in rust_files(BINDINGS):
        lines = path.read_text(encoding="utf-8").splitlines()
        unsafe_place = r"^[^/]*\bunsafe (\{|impl)"
        places = [at for at, line in enumerate(lines) if re.search(unsafe_place, line)]
        if path.stem not in ("views", "field"):
            assert not places and "unsafe" not in code(path), path.name
            continue
        assert places
        for at in places:
            before = at - 1
            while lines[before].strip().startswith("//") and "SAFETY:" not in lines[before]:
                before -= 1
            assert "// SAFETY:" in lines[before], f"{path.name}:{at + 1}"


def modules_of(path: Path) -> set[str]:
    """The modules, outside the standard library or in it, that a Python file imports by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_cuda_is_behind_one_device() -> None:
    libraries = {"cuda", "cupy"}
    know = {path.name for path in PYTHON.rglob("*.py") if modules_of(path) & libraries}
    assert know == {"cuda.py", "launcher.py", "kernels.py"}


def test_kernels_need_no_toolkit() -> None:
    included = set()
    for path in sorted(KERNELS.iterdir()):
        included |= set(re.findall(r"#\s*include\s*(\S+)", path.read_text(encoding="utf-8")))
    assert included == {'"span.cuh"'}


def test_no_file_is_longer_than_a_sitting() -> None:
    rust = [path for crate in (CORE, RECORDING, BINDINGS) for path in rust_files(crate)]
    files = [*rust, *PYTHON.rglob("*.py"), *KERNELS.iterdir()]
    long = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in files}
    assert {name: lines for name, lines in long.items() if lines > LINES_MAX} == {}


DEVICE_SIDE = {"executor", "transfer", "rows", "packed", "cpu", "simulated", "cuda", "staging"}
"""Modules of the runtime that put work on a device."""


def test_the_control_side_reaches_a_device_by_its_handle_alone() -> None:
    """`build.py` puts both together; `loop.py` names a type of each to hand it on."""
    control = {"loop", "batch", "rounds", "request", "remote"}
    seen = set()
    for name in sorted(control):
        tree = ast.parse((PYTHON / "runtime" / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = node.module.removeprefix("tokenspeed.runtime.")
                seen |= {(name, alias.name) for alias in node.names if module in DEVICE_SIDE}
    assert seen == {("loop", "RoundExecutor")}


def test_no_class_of_the_bindings_is_ever_borrowed() -> None:
    classes = [
        (path.name, attributes)
        for path in sorted(BINDINGS.rglob("*.rs"))
        for attributes in re.findall(r"#\[pyclass([^\]]*)\]", path.read_text())
    ]
    assert len(classes) > 10
    assert [name for name, attributes in classes if "frozen" not in attributes] == []
