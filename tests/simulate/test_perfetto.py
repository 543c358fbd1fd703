"""The time line: trace events that Perfetto accepts, and no more of them than asked for."""

import json
from itertools import pairwise

import pytest
from tokenspeed.simulate.ledger import Ledger
from tokenspeed.simulate.perfetto import Window, write_perfetto


@pytest.fixture
def ledger(trace_of):
    """A hundred forwards of 1 ms, a gauge each 10 ms, some copies and a retraction."""
    ledger = Ledger(trace_of((0, 10, 1, [])))
    for i in range(100):
        ledger.rounds.append((i / 1000, (i + 1) / 1000, i % 3, (i + 1) % 3, 10 * (i % 3), 7))
    for i in range(10):
        ledger.gauges.append((i / 100, 3, 6, 2, i, 5))
    ledger.write_backs.append((0.002, 0.004, 8))
    ledger.load_backs.append((0.005, 0.006, 9))
    ledger.retracted.append((0.05, 17))
    return ledger


def written(ledger, path, window=None):
    result = write_perfetto(ledger, path, window)
    return result, json.loads(path.read_text())["traceEvents"]


def test_events_have_what_their_phase_needs(ledger, tmp_path):
    result, events = written(ledger, tmp_path / "t.json")
    needs = {
        "M": {"name", "pid", "args"},
        "X": {"name", "pid", "tid", "ts", "dur", "args"},
        "C": {"name", "pid", "ts", "args"},
        "i": {"name", "pid", "tid", "ts", "s", "args"},
    }
    for event in events:
        assert needs[event["ph"]] <= set(event)
    kinds = [event["ph"] for event in events]
    assert (kinds.count("X"), kinds.count("C"), kinds.count("i")) == (102, 20, 1)
    assert result.events == 123
    assert result.to_s == float("inf")


def test_forwards_follow_one_another_on_their_track(ledger, tmp_path):
    _, events = written(ledger, tmp_path / "t.json")
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    forwards = [e for e in events if e["ph"] == "X" and names[e["tid"]] == "forwards"]
    assert len(forwards) == 100
    for one, next_one in pairwise(forwards):
        assert one["ts"] + one["dur"] <= next_one["ts"] + 1e-6
    assert [e["name"] for e in forwards[:3]] == ["decode", "mixed", "prefill"]
    assert forwards[1]["args"] == {
        "prefills": 1,
        "decodes": 2,
        "prefill_tokens": 10,
        "context_tokens": 7,
    }
    assert forwards[1]["ts"] == 1000.0
    copies = {names[e["tid"]]: e["args"] for e in events if e["name"] == "copy"}
    assert copies == {"copies to the host": {"pages": 8}, "copies to the device": {"pages": 9}}


def test_counters_add_up_to_the_pool(ledger, tmp_path):
    _, events = written(ledger, tmp_path / "t.json")
    pages = [e["args"] for e in events if e["name"] == "device pages"]
    assert pages == [{"held": 3, "cached": 4, "empty": 2}] * 10
    (retraction,) = [e for e in events if e["ph"] == "i"]
    assert retraction["args"] == {"request": 17}


def test_window_keeps_what_starts_within_it(ledger, tmp_path):
    _, events = written(ledger, tmp_path / "t.json", Window(0.01, 0.02))
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert min(times) == 10_000.0
    assert max(times) == 19_000.0
    assert len(times) == 10 + 2


@pytest.mark.parametrize("most", [1, 10, 50, 122])
def test_no_more_events_than_asked_for(ledger, tmp_path, most):
    result, events = written(ledger, tmp_path / "t.json", Window(max_events=most))
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert len(times) == result.events <= most
    assert all(ts < result.to_s * 1e6 for ts in times)
    assert result.to_s < 0.1
