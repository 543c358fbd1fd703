"""Recording a scheduler's calls, and making them again."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenspeed.scheduler as ts
from tokenspeed import cli
from tokenspeed.rerun import play, spans
from tokenspeed.scheduler import ForwardEvent, Rerun, Scheduler

from .client import Client, tiny
from .engine import config, finish, step, submit, tell

ROOT = Path(__file__).parents[2]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `tokenspeed rerun` with these words; gives (exit code, standard output and error)."""

    def run(*words: Any) -> tuple[int, str, str]:
        code = 0
        try:
            cli.main(["rerun", *map(str, words)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def record(path: Path, seed: int = 1, events: int = 1000) -> list[int]:
    """Plays a random world and records it; gives the digests of its plans."""
    scheduler = Scheduler(tiny())
    scheduler.record(path)
    digests = [plan.digest() for plan in Client(scheduler, seed).rounds(events)]
    scheduler.stop_recording()
    return digests


def small(path: Path) -> Scheduler:
    """A recording of six calls and three rounds that goes on."""
    scheduler = Scheduler(config())
    scheduler.record(path)
    submit(scheduler, "a", 9, 4)
    step(scheduler)
    step(scheduler)
    return scheduler


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_random_world_comes_out_the_same(tmp_path: Path, run: Run, name: str) -> None:
    path = tmp_path / name
    digests = record(path)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    code, out, err = run(path)
    assert (code, err) == (0, "")
    assert f"{len(digests):,} rounds, all as recorded by 0." in out
    rerun, again = Rerun(path), []
    while (played := rerun.step()) is not None:
        if played.plan is not None:
            again.append(played.plan.digest())
            assert played.round == len(again)
    assert again == digests
    assert rerun.cut_line is None and rerun.progress[0] == rerun.progress[1] == path.stat().st_size


def test_a_recording_has_every_kind_of_call_and_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    scheduler = small(path)
    with pytest.raises(ts.RequestError):
        submit(scheduler, "a", 9)
    for event in (
        ts.PD.BootstrappedEvent("a"),
        ts.PD.FailedEvent("a"),
        ts.PD.SucceededEvent("a"),
        ts.PD.RemotePrefillDoneEvent("a", 7),
        ForwardEvent.UpdateReserveNumTokens("a", 99),
    ):
        with pytest.raises(ts.EventError):
            tell(scheduler, event)
    batch = scheduler.next_execution_plan().batch
    assert batch is not None
    with pytest.raises(ts.EventError):
        scheduler.advance_results(batch.handles, [1, 2], [0, 2])
    scheduler.finish(batch.handles)
    with pytest.raises(ts.UnsupportedError):
        scheduler.register_storage_keys([0], ["00" * 32], [0])
    with pytest.raises(ts.UnsupportedError):
        scheduler.unregister_storage_keys([], [], [])
    assert scheduler.clear_l1_cache() and scheduler.clear_cache()
    scheduler.stop_recording()
    scheduler.next_execution_plan()

    rerun = Rerun(path)
    steps = list(iter(rerun.step, None))
    assert all(played.same and played.recorded == played.now for played in steps)
    assert [played.number for played in steps] == list(range(1, len(steps) + 1))
    assert [(played.call, played.now.partition(" ")[0]) for played in steps] == [
        ("submit_requests", "done"),
        *[("next_execution_plan", "plan"), ("advance", "done"), ("advance_results", "done")] * 2,
        ("submit_requests", "refused:"),
        *[("advance", "refused:")] * 5,
        ("next_execution_plan", "plan"),
        ("advance_results", "refused:"),
        ("finish", "done"),
        *[("register_storage_keys", "refused:"), ("unregister_storage_keys", "refused:")],
        *[("clear_l1_cache", "cleared"), ("clear_cache", "cleared")],
    ]
    assert [played.now for played in steps[7:9]] == [
        "refused: duplicate_request_id",
        "refused: unexpected_event",
    ]
    assert "BootstrappedEvent" not in path.read_text() and '"bootstrapped"' in path.read_text()
    assert rerun.scheduler.request_token_size("a") == -1
    header = json.loads(lines(path)[0])
    assert header["tokenspeed_recording"] == 1
    assert header["config"]["cache_groups"][0]["group_id"] == "full"


def test_a_plan_that_differs_is_found_in_its_round(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.jsonl"
    digests = record(path)
    text = lines(path)
    at = text.index(f'{{"plan":"{digests[19]:016x}"}}\n')
    text[at] = f'{{"plan":"{digests[19] ^ 1:016x}"}}\n'
    path.write_text("".join(text), encoding="utf-8")
    code, out, _ = run(path)
    assert code == 1
    assert "20 rounds, recorded by 0." in out and "the last one differs:" in out
    assert f"round 20, call {at // 2:,} (line {at:,}): next_execution_plan" in out
    assert f"recorded  plan {digests[19] ^ 1:016x}\n" in out
    assert f"now       plan {digests[19]:016x}\n" in out
    assert "The plan of round 20:\n" in out
    assert run(path, "--until", 19)[0] == 0


def test_an_answer_that_differs_is_found(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.jsonl"
    small(path).stop_recording()
    text = lines(path)
    assert text[6] == '"done"\n'
    path.write_text("".join([*text[:6], '{"refused":"bad_result"}\n', *text[7:]]))
    code, out, _ = run(path)
    assert code == 1
    assert "round 1, call 3 (line 6): advance" in out
    assert "recorded  refused: bad_result\n  now       done" in out


def test_a_plan_is_shown(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.jsonl"
    small(path).stop_recording()
    code, out, _ = run(path, "--until", 1, "--show")
    assert code == 0
    assert out.splitlines()[1:] == [
        "The plan of round 1:",
        "a: row 1, prefill 0 to 9 of 9; full 1-4",
        "zero in full: 1-4",
    ]
    assert "a: row 1, decode 1, prompt 9; full 1-4" in run(path, "--show")[1]
    assert run(path, "--until", 1)[2] == ""
    assert "ends before round 99 (--until)" in run(path, "--until", 99)[2]


def test_runs_of_blocks_are_drawn_together() -> None:
    assert spans([]) == spans([-1]) == ""
    assert spans([0, 0, 3, 4, 5, 9, -1, -1]) == "0 0 3-5 9"


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_process_that_dies_leaves_all_before_its_last_plan(
    tmp_path: Path, run: Run, name: str
) -> None:
    path = tmp_path / name
    dying = f"""
import os
from tests.unit.client import Client, tiny
from tokenspeed.scheduler import Scheduler
scheduler = Scheduler(tiny())
scheduler.record({str(path)!r})
for at, plan in enumerate(Client(scheduler, 1).rounds(1000)):
    if at == 99:
        os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", dying], cwd=ROOT).returncode == 9
    code, out, err = run(path)
    assert code == 0
    assert "100 rounds, all as recorded" in out
    assert "round 100, " in out and "recorded  nothing: the file ends here" in out
    assert ("played up to it" in err) == name.endswith(".gz")


def test_a_cut_file_is_played_as_far_as_it_goes(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.jsonl"
    small(path).stop_recording()
    text = lines(path)
    whole = "".join(text)
    ends = [len("".join(text[:n])) for n in range(1, len(text) + 1)]
    for length in range(ends[0], len(whole)):
        path.write_text(whole[:length], encoding="utf-8")
        code, out, err = run(path)
        complete = sum(end <= length for end in ends)
        assert code == 0
        assert f": {complete // 2} calls," in out
        assert err == (
            "" if length in ends else f"{path}: ends within line {complete + 1}; played up to it\n"
        )


def test_a_bad_file_is_named_with_its_line(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.jsonl"
    small(path).stop_recording()
    header, *rest = lines(path)
    compressed = bytearray(gzip.compress("".join([header, *rest]).encode()))
    compressed[40] ^= 255
    broken: list[tuple[str | bytes, str]] = [
        ("".join([header, rest[0], rest[1], "no call\n", *rest[3:]]), ", line 4: "),
        ("".join([header, '{"sing":"a song"}\n']), ", line 2: unknown variant `sing`"),
        ("".join([header, rest[0], '{"plan":7}\n']), ", line 3: invalid type"),
        ("", ", line 1: no header"),
        ("12 tokens\n", ", line 1: "),
        ('{"timestamp":0}\n', ", line 1: missing field `tokenspeed_recording`"),
        ('{"tokenspeed_recording":2}\n', ", line 1: format 2; this version reads 1"),
        (header.replace('"num_host_pages"', '"pages"'), ", line 1: unknown field `pages`"),
        (
            header.replace('"max_batch_size":8', '"max_batch_size":-1'),
            ", line 1: invalid configuration: `max_batch_size` is -1",
        ),
        (bytes(compressed), ", line "),
    ]
    for content, what in broken:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        code, out, err = run(path)
        assert (code, out) == (2, ""), content
        assert what in err and err.count("\n") == 1
    assert run(tmp_path / "none.jsonl")[0] == 2
    assert run(tmp_path)[0] == 2


def test_a_recording_is_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    scheduler = small(path)
    text = path.read_bytes()
    for other in (path, tmp_path / "other.jsonl"):
        with pytest.raises(ts.RecordingError, match="before the recording: 7;") as refusal:
            scheduler.record(other)
        assert refusal.value.code == "recording_too_late"
    assert path.read_bytes() == text
    fresh = Scheduler(config())
    for place in (path, tmp_path, tmp_path / "none" / "run.jsonl"):
        with pytest.raises(ts.RecordingError, match="recording '") as refusal:
            fresh.record(place)
        assert refusal.value.code == "recording_failed"
    assert path.read_bytes() == text
    fresh.stop_recording()
    fresh.record(str(tmp_path / "fresh.jsonl"))
    with pytest.raises(ts.RecordingError, match="is being recorded already"):
        fresh.record(tmp_path / "second.jsonl")
    assert not (tmp_path / "second.jsonl").exists()


@pytest.mark.parametrize("reaction", ["always", "error"])
def test_a_full_disk_ends_the_recording_and_no_call(tmp_path: Path, reaction: str) -> None:
    """A limit on the size of files, in a process of its own, stands for the disk."""
    pytest.importorskip("resource", reason="no such limit on this platform")
    full = f"""
import resource, signal, warnings
import tokenspeed.scheduler as ts
from tests.unit.client import Client, tiny
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
recorded = ts.Scheduler(tiny())
recorded.record({str(tmp_path / "run.jsonl")!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter({reaction!r})
    digests = [plan.digest() for plan in Client(recorded, 1).rounds(1000)]
expected = [ts.RecordingWarning] if {reaction!r} == "always" else []
assert [warning.category for warning in caught] == expected
assert digests == [plan.digest() for plan in Client(ts.Scheduler(tiny()), 1).rounds(1000)]
try:
    recorded.stop_recording()
except ts.RecordingError as error:
    assert error.code == "recording_failed", error
else:
    raise AssertionError("the failure was forgotten")
recorded.stop_recording()
"""
    ran = subprocess.run([sys.executable, "-c", full], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    shown = "File too large (os error 27); the recording has ended, the scheduler goes on"
    assert (shown in ran.stderr) == (reaction == "error")
    assert (tmp_path / "run.jsonl").stat().st_size <= 20_000
    assert play(tmp_path / "run.jsonl").same


def test_a_call_that_breaks_off_is_in_the_file(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.jsonl"
    scheduler = small(path)
    if not hasattr(scheduler, "_break_off"):
        pytest.skip("a release build cannot be made to break off")
    with pytest.raises(ts.InternalError):
        scheduler._break_off()
    assert lines(path)[-1] == '"next_execution_plan"\n'
    code, out, _ = run(path)
    assert code == 0
    assert "round 3, call 8 (line 16): next_execution_plan" in out
    assert "recorded  nothing: the file ends here" in out


def test_recording_changes_nothing(tmp_path: Path) -> None:
    plain = [plan.digest() for plan in Client(Scheduler(tiny()), 5).rounds(500)]
    assert record(tmp_path / "run.jsonl", seed=5, events=500) == plain


def test_a_finished_recording_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    scheduler = small(path)
    scheduler.stop_recording()
    text = path.read_bytes()
    finish(scheduler, "a")
    scheduler.stop_recording()
    del scheduler
    assert path.read_bytes() == text
