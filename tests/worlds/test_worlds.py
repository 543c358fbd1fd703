"""The command that plays worlds by the hundred thousand, on a few; and scenario 31 on all roles."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main as conformance
from tests.conformance.plan import Plan
from tests.conformance.play import FINISHES, play

from .__main__ import main
from .endings import Ending, ending_of
from .mirrored import Chained, Mirrored
from .numbering import STRANDS, strand_of, world
from .state import State

ROOT = Path(__file__).parents[2]
OURS = "tokenspeed.scheduler"

RANK = """
from tests.conformance.play import play
from tests.worlds.mirrored import Chained
from tests.worlds.numbering import world
for number in range(90):
    sides = []
    def make(world):
        sides.append(Chained("tokenspeed.scheduler", world))
        return sides[0]
    outcome = play(world(number), make, None)
    print(number, outcome.ours, f"{sides[0].digest:016x}")
"""


def test_scenario_31_four_processes_agree_over_all_roles() -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "31", "random")
    ]
    first, *others = [rank.communicate()[0].splitlines() for rank in ranks]
    assert len(first) == 90 and all(FINISHES in line for line in first)
    assert len({line.split()[-1] for line in first}) == 90
    for other in others:
        assert other == first


def test_a_run_goes_on_where_it_was_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "worlds.jsonl"
    ours = ["--theirs", "none", "--state", str(path)]
    assert main([*ours, "--seeds", "0:9"]) == 0
    with path.open("a", encoding="utf-8") as file:
        file.write('{"number": 9, "si')  # Cut off while it wrote.
    assert "9 plays" in capsys.readouterr().out
    assert main([*ours, "--seeds", "0:12"]) == 0
    assert "3 plays" in capsys.readouterr().out
    state = State(path)
    assert state.missing(range(12), OURS) == []
    assert {entry.ending for entry in state.of(range(12), OURS)} == {Ending.FINISHED}


@pytest.mark.parametrize("command", [main, conformance])
def test_who_is_not_installed_is_said_at_once(
    command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(["--theirs", "nowhere", "--seeds", "0:1"])
    assert "nowhere is not installed" in capsys.readouterr().err


def test_every_nine_worlds_are_of_every_role_and_family() -> None:
    assert {strand_of(number) for number in range(9, 18)} == set(STRANDS)
    worlds = [world(number) for number in range(90)]
    assert {w.role for w in worlds} == {role for role, _ in STRANDS}
    assert sum(w.storage for w in worlds) == 30


class OtherRank(Mirrored):
    """Its second rank hears nothing of aborts."""

    def __init__(self, module: str, world: Any) -> None:
        super().__init__(module, world)
        advance = self._mirror.advance
        self._mirror.advance = lambda events: advance(  # type: ignore[method-assign]
            [event for event in events if type(event).__name__ != "Aborted"]
        )


class Silent(Chained):
    """Plans, and tells nobody."""

    def plan(self, round_: int) -> Plan:
        super().plan(round_)
        return Plan()


@pytest.mark.parametrize(
    ("side", "ending"), [(OtherRank, Ending.DIGESTS_DIFFER), (Silent, Ending.STILL)]
)
def test_what_goes_wrong_is_seen(side: type[Chained], ending: Ending) -> None:
    endings = {ending_of(play(world(n), lambda w: side(OURS, w), None)) for n in range(0, 90, 9)}
    assert ending in endings
