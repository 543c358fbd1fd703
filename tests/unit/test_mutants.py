"""The deliberate mistakes of ``tests/mutants`` still apply to the core as it is."""

from __future__ import annotations

import pytest

from tests.mutants.table import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_it_applies(mutant: Mutant) -> None:
    source = (ROOT / mutant.path()).read_text(encoding="utf-8")
    assert mutant.apply(source) != source


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.only], ids=lambda mutant: mutant.rule)
def test_its_test_is_there(mutant: Mutant) -> None:
    tests = ROOT / "crates/tokenspeed-scheduler/tests" / mutant.test
    names = [path.stem for path in tests.glob("*.rs")]
    sources = [path.read_text(encoding="utf-8") for path in tests.glob("*.rs")]
    assert mutant.only in names or any(f"fn {mutant.only}()" in source for source in sources)
