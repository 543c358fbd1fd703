"""Small traces, written as a user would write them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenspeed.simulate.trace import Trace, load_trace

Row = tuple[int, int, int, list[int]]
"""(timestamp in ms, prompt tokens, output tokens, hash ids)."""


@pytest.fixture
def mooncake_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as a Mooncake trace and returns its path."""

    def write(*rows: Row) -> Path:
        path = tmp_path / "trace.jsonl"
        names = ("timestamp", "input_length", "output_length", "hash_ids")
        path.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def trace_of(mooncake_file: Callable[..., Path]) -> Callable[..., Trace]:
    """The trace that such rows make."""
    return lambda *rows: load_trace(mooncake_file(*rows))
