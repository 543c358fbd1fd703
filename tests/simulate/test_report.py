"""The report: percentile definitions, and what it makes of a ledger written by hand."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from tokenspeed.simulate.ledger import Ended, Ledger
from tokenspeed.simulate.report import SERIES_POINTS, Distribution, Report, reasons
from tokenspeed.simulate.scenario import Scenario, settings
from tokenspeed.simulate.table import render, sections


def test_percentiles_are_interpolated_linearly():
    values = Distribution.of(np.array([40.0, 10.0, 20.0, 30.0]))
    assert values.count == 4
    assert values.mean == 25.0
    assert values.p50 == 25.0  # position 1.5 of 10, 20, 30, 40
    assert values.p90 == pytest.approx(37.0)  # position 2.7
    assert values.p99 == pytest.approx(39.7)  # position 2.97
    assert values.max == 40.0
    assert len(values.percentiles) == 101
    assert values.percentiles[0] == 10.0


def test_distribution_leaves_out_what_never_happened():
    assert Distribution.of(np.array([np.nan, 5.0])).p99 == 5.0
    empty = Distribution.of(np.array([np.nan]))
    assert (empty.count, empty.mean, empty.p50, empty.max) == (0, None, None, None)
    assert empty.percentiles == []


@pytest.fixture
def ledger(trace_of):
    """Three requests at 0, 1 and 2 s: two finish by 10 s, the third is refused."""
    trace = trace_of((0, 1000, 5, []), (1000, 3000, 1, []), (2000, 50, 9, []))
    ledger = Ledger(trace)
    ledger.admitted_s[:2] = [0.0, 2.0]
    ledger.first_token_s[:2] = [2.0, 4.0]
    ledger.finished_s[:2] = [10.0, 4.0]
    ledger.remaining_tokens[:2] = 0
    ledger.device_hit_tokens[1] = 512
    ledger.host_hit_tokens[1] = 1024
    ledger.retractions[0] = 2
    ledger.refused.append(Ended(2, 2.0, "request '2' is too large"))
    ledger.rounds.append((0.0, 2.0, 1, 0, 1000, 0))
    ledger.rounds.append((2.0, 4.0, 1, 1, 1464, 2537))
    ledger.rounds.append((6.0, 10.0, 0, 1, 0, 1002))
    ledger.gauges.append((0.0, 3, 7, 5, 1, 1))
    ledger.gauges.append((5.0, 6, 4, 1, 0, 2))
    ledger.write_backs.append((2.0, 3.0, 4))
    ledger.plan_ns.extend([1000, 3000])
    ledger.prefilled_tokens = 2464
    ledger.end_s = 10.0
    return ledger


@pytest.fixture
def report(ledger):
    return Report.of(ledger, Scenario.of({"num_device_pages": 11, "kv_bytes_per_token": 10}))


def test_latency(report):
    latency = report.latency
    assert latency.time_to_first_token_s.p50 == 2.5  # of 2 and 3
    assert latency.end_to_end_s.p50 == 6.5  # of 10 and 3
    assert latency.time_per_output_token_s.count == 1  # an only token follows none
    assert latency.time_per_output_token_s.p50 == 2.0  # 8 s for 4 tokens


def test_outcome(report):
    outcome = report.outcome
    assert (outcome.finished_requests, outcome.refused_requests) == (2, 1)
    assert outcome.duration_s == 10.0
    assert outcome.requests_per_s == pytest.approx(0.2)
    assert outcome.output_tokens_per_s == pytest.approx(0.6)
    assert outcome.prompt_tokens_per_s == pytest.approx(400.0)
    assert outcome.busy_fraction == pytest.approx(0.8)


def test_cache_and_pool(report):
    assert report.cache.admitted_prompt_tokens == 4000
    assert report.cache.device_hit_rate == pytest.approx(0.128)
    assert report.cache.host_hit_rate == pytest.approx(0.256)
    assert (report.cache.retractions, report.cache.retracted_requests) == (2, 1)
    assert report.pool.usable_pages == 10
    assert report.pool.page_bytes == 5120
    assert report.pool.active_pages_mean == 4.5
    assert report.pool.active_pages_max == 6
    assert report.planning.plan_build_us.p50 == pytest.approx(2.0)


def test_series(report):
    series = report.series
    assert len(series.at_s) == SERIES_POINTS
    assert series.at_s[-1] == 10.0
    half = SERIES_POINTS // 2
    # A gauge holds its value from one sample to the next.
    assert series.active_pages[0] == series.active_pages[half - 2] == 3
    assert series.at_s[half - 1] == 5.0
    assert series.active_pages[half - 1] == series.active_pages[-1] == 6
    assert series.cached_pages[0] == 2
    assert series.empty_pages[-1] == 1
    # A twentieth of the replay is half a second: 250 of the 1,000 tokens that took 2 s.
    point = series.at_s.index(1.0)
    assert series.prefill_tokens_per_s[point] == pytest.approx(500.0)
    assert series.decodes_per_forward[point] == 0.0
    assert series.decodes_per_forward[-1] == pytest.approx(1.0)
    assert series.prefill_tokens_per_s[-1] == pytest.approx(0.0, abs=1e-6)
    copied = series.at_s.index(2.75)
    assert series.write_back_bytes_per_s[copied] == pytest.approx(4 * 5120)
    admitted = series.at_s.index(2.25)
    assert series.device_hit_rate[admitted] == pytest.approx(512 / 3000)
    assert series.device_hit_rate[point] is None


def test_json_is_plain_and_complete(report):
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document["schema"] == "tokenspeed.replay/1"
    assert set(document) == {
        "schema",
        "trace",
        "settings",
        "outcome",
        "latency",
        "cache",
        "pool",
        "planning",
        "refused",
        "aborted",
        "series",
    }
    assert document["settings"]["num_device_pages"] == 11
    assert set(document["settings"]) == {item.name for _, item in settings()}
    assert document["refused"] == [
        {"request": 2, "at_s": 2.0, "reason": "request '2' is too large"}
    ]
    first = document["latency"]["time_to_first_token_s"]
    assert {"count", "mean", "p50", "p90", "p99", "max", "percentiles"} == set(first)
    lengths = {len(values) for values in document["series"].values()}
    assert lengths == {SERIES_POINTS}


def test_nothing_served_is_reported_too(trace_of):
    ledger = Ledger(trace_of((0, 50, 9, [])))
    ledger.refused.append(Ended(0, 0.0, "too large"))
    ledger.gauges.append((0.0, 0, 10, 10, 0, 0))
    report = Report.of(ledger, Scenario())
    json.dumps(report.to_json(), allow_nan=False)
    assert report.outcome.output_tokens_per_s == 0.0
    assert report.latency.end_to_end_s.p50 is None
    assert sections(report)


def test_reasons_are_grouped_by_kind():
    texts = ["'1' needs 30 pages of 20", "budget is negative", "'5' needs 31 pages of 20"]
    ended = [{"request": n, "at_s": 0.0, "reason": text} for n, text in enumerate(texts)]
    assert reasons(ended) == [("'1' needs 30 pages of 20", 2), ("budget is negative", 1)]


def test_table_tells_every_number_with_its_unit(report):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(report))
    text = console.export_text()
    for words in (
        "Time to first token",
        "2.50 s",
        "10 pages, 50 KiB",
        "12.8 %",
        "2 in 1 requests",
        "Refused: 1, for example request '2' is too large",
    ):
        assert words in text
