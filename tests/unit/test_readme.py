"""What the documents show is what happens: the example runs, options and files exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tokenspeed.cli import commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CORE = ROOT / "crates/tokenspeed-scheduler/src"
SOURCES = (ROOT, CORE, ROOT / "crates/tokenspeed-scheduler/tests")
"""Where the documents' names of files begin."""


def blocks(language: str) -> list[str]:
    """The README's code blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_example_prints_what_the_readme_shows() -> None:
    (example,) = blocks("python")
    shown = blocks("text")[0]
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == shown


def test_every_option_shown_exists() -> None:
    shown = "\n".join(blocks("sh") + blocks("text"))
    lines = re.findall(r"^(?:\$ )?tokenspeed replay\b[^#\n]*", shown, re.MULTILINE)
    options = {option for line in lines for option in re.findall(r"--[a-z-]+", line)}
    assert {"--sweep", "--html", "--perfetto"} <= options
    parameters = commands.commands["replay"].params
    known = {option for parameter in parameters for option in parameter.opts}
    assert options <= known


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md"])
def test_every_file_named_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(([\w./-]+)\)", text))
    named |= set(re.findall(r"`([\w.-]+/[\w./-]*(?:/|\.(?:rs|py|md)))`", text))
    assert named
    missing = {name for name in named if not any((root / name).exists() for root in SOURCES)}
    assert missing <= {"site-packages/tokenspeed/"}, document


def test_every_rule_named_stands_where_the_document_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rules = re.findall(r"^- \*\*`([\w/]+\.rs)`, `(\w+)`\.\*\*", text, re.MULTILINE)
    assert len(rules) >= 4
    for file, name in rules:
        assert f"fn {name}(" in (CORE / file).read_text(encoding="utf-8"), f"{file}: {name}"
