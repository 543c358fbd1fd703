"""Small traces whose every time is worked out by hand, and what holds for any replay."""

from types import SimpleNamespace

import numpy as np
import pytest
from tokenspeed.simulate import player
from tokenspeed.simulate.player import ConfigurationRefused, Player, Standstill
from tokenspeed.simulate.report import Report
from tokenspeed.simulate.scenario import Scenario

# A round takes 1 ms, a prefill token 10 us, a decode 100 us, a context token 1 us.
ROUND, PREFILL, DECODE, CONTEXT = 1000e-6, 10e-6, 100e-6, 1e-6
HAND = {
    "round_us": 1000.0,
    "prefill_token_us": 10.0,
    "decode_request_us": 100.0,
    "context_token_ns": 1000.0,
    "prefix_granularity": 512,
    "num_device_pages": 100,
    "num_host_pages": 0,
    "max_scheduled_tokens": 2048,
    "max_batch_size": 16,
}


def play(trace, **settings):
    """The report and the ledger of a replay, by hand-made costs unless told otherwise."""
    scenario = Scenario.of({**HAND, **settings})
    ledger = Player(trace, scenario).run()
    return Report.of(ledger, scenario), ledger


def test_one_request_in_two_chunks(trace_of):
    report, ledger = play(trace_of((0, 1000, 3, [])), max_scheduled_tokens=512)
    first_chunk = ROUND + 512 * PREFILL
    second_chunk = ROUND + 488 * PREFILL + 512 * CONTEXT
    # The first token comes with the prompt; the two others take a decode each.
    decodes = 2 * (ROUND + DECODE) + (1001 + 1002) * CONTEXT
    first_token = first_chunk + second_chunk
    latency = report.latency
    assert latency.time_to_first_token_s.p50 == pytest.approx(first_token)
    assert latency.time_per_output_token_s.p50 == pytest.approx(decodes / 2)
    assert latency.end_to_end_s.p50 == pytest.approx(first_token + decodes)
    assert ledger.rounds.table()["prefill_tokens"].tolist() == [512, 488, 0, 0]
    assert report.outcome.duration_s == pytest.approx(first_token + decodes)
    assert report.outcome.output_tokens_per_s == pytest.approx(3 / (first_token + decodes))
    assert report.outcome.busy_fraction == pytest.approx(1.0)


def test_second_request_waits_for_the_round_and_finds_the_prefix(trace_of):
    trace = trace_of((0, 600, 2, [1, 2]), (8, 700, 1, [1, 3]))
    report, ledger = play(trace)
    prefill = ROUND + 600 * PREFILL  # ends at 7 ms
    decode = ROUND + DECODE + 601 * CONTEXT  # ends at 8.701 ms; the second request came at 8 ms
    second = ROUND + (700 - 512) * PREFILL + 512 * CONTEXT
    assert ledger.first_token_s == pytest.approx([prefill, prefill + decode + second])
    assert ledger.finished_s == pytest.approx([prefill + decode, prefill + decode + second])
    assert report.latency.time_to_first_token_s.max == pytest.approx(prefill)
    assert report.latency.time_per_output_token_s.count == 1
    assert report.cache.device_hit_tokens == 512
    assert report.cache.device_hit_rate == pytest.approx(512 / 1300)
    assert report.cache.prefilled_tokens == 600 + 700 - 512


def test_idle_time_passes_between_arrivals(trace_of):
    report, ledger = play(trace_of((0, 100, 1, []), (5000, 100, 1, [])))
    took = ROUND + 100 * PREFILL
    assert ledger.first_token_s == pytest.approx([took, 5.0 + took])
    assert report.outcome.duration_s == pytest.approx(5.0 + took)
    assert report.outcome.busy_fraction == pytest.approx(2 * took / (5.0 + took))


def test_decodes_join_a_prefill_in_mixed_rounds_only(trace_of):
    trace = trace_of((0, 100, 4, []), (3, 200, 1, []))
    prefill = ROUND + 100 * PREFILL  # ends at 2 ms
    decode = ROUND + DECODE + 101 * CONTEXT  # ends at 3.201 ms
    mixed = ROUND + DECODE + 200 * PREFILL + 102 * CONTEXT
    alone = ROUND + 200 * PREFILL
    _, ledger = play(trace, enable_mixed_prefill_decode=True)
    assert ledger.first_token_s[1] == pytest.approx(prefill + decode + mixed)
    assert ledger.rounds.table()["decodes"].tolist() == [0, 1, 1, 1]
    _, ledger = play(trace, enable_mixed_prefill_decode=False)
    assert ledger.first_token_s[1] == pytest.approx(prefill + decode + alone)
    assert ledger.rounds.table()["decodes"].tolist() == [0, 1, 0, 1, 1]


def test_forward_planned_ahead_of_the_last_token_counts_for_nothing(trace_of):
    # Undeclared, so that the scheduler cannot know that the third token is the last.
    trace = trace_of((0, 100, 3, []))
    report, ledger = play(trace, overlap_schedule_depth=1, max_new_tokens=0)
    prefill = ROUND + 100 * PREFILL
    decodes = [ROUND + DECODE + context * CONTEXT for context in (101, 102, 103)]
    assert ledger.rounds.table()["decodes"].tolist() == [0, 1, 1, 1]
    assert ledger.finished_s[0] == pytest.approx(prefill + sum(decodes[:2]))
    assert ledger.remaining_tokens[0] == 0
    assert report.outcome.duration_s == pytest.approx(prefill + sum(decodes))
    assert report.outcome.output_tokens_per_s == pytest.approx(3 / report.outcome.duration_s)


def test_time_scale_and_cap(trace_of):
    trace = trace_of((0, 100, 1, []), (5000, 100, 9, []))
    report, ledger = play(trace, time_scale=10.0, max_new_tokens=2)
    assert report.trace.span_s == pytest.approx(0.5)
    assert report.trace.output_tokens == 3
    assert ledger.finished_s[1] == pytest.approx(
        0.5 + ROUND + 100 * PREFILL + ROUND + DECODE + 101 * CONTEXT
    )


def test_host_copies_take_their_time_and_are_counted(trace_of):
    # Pages of 512 kB on a link of 0.512 GB/s: 1 ms each. The device holds one prompt at a time.
    trace = trace_of((0, 2049, 1, [1, 2, 3, 4]), (200, 2049, 1, [5, 6, 7, 8]),
                     (400, 2049, 1, [1, 2, 3, 4]))  # fmt: skip
    report, ledger = play(
        trace,
        num_device_pages=6,
        num_host_pages=50,
        max_scheduled_tokens=4096,
        kv_bytes_per_token=1000,
        host_link_gb_per_s=0.512,
    )
    assert report.cache.host_hit_tokens == 2048
    assert report.cache.load_back_bytes == 4 * 512_000
    # One token is left to prefill: the forward waits for the pages that it reads.
    assert ledger.first_token_s[2] - 0.4 == pytest.approx(4e-3)
    write_backs = ledger.write_backs.table()
    assert report.cache.write_back_bytes == write_backs["pages"].sum() * 512_000
    assert write_backs["end_s"] - write_backs["start_s"] == pytest.approx(
        write_backs["pages"] * 1e-3
    )


def test_what_never_fits_is_refused_with_its_reason(trace_of):
    trace = trace_of((0, 100, 1, []), (0, 512 * 200, 1, []), (1, 100, 1, []))
    report, ledger = play(trace)
    assert report.outcome.finished_requests == 2
    assert report.outcome.refused_requests == 1
    assert [item["request"] for item in report.refused] == [1]
    assert report.refused[0]["reason"]
    assert np.isnan(ledger.finished_s[1])
    assert report.latency.end_to_end_s.count == 2


@pytest.mark.parametrize("max_scheduled_tokens", [2048, 48])
def test_retracted_requests_finish_and_recompute_what_they_lost(trace_of, max_scheduled_tokens):
    # Eight requests grow to 300 tokens each in a pool of 1,200 tokens, and declare no budget.
    trace = trace_of(*((0, 100, 200, []) for _ in range(8)))
    report, ledger = play(
        trace,
        prefix_granularity=16,
        num_device_pages=76,
        max_new_tokens=0,
        max_scheduled_tokens=max_scheduled_tokens,
    )
    cache = report.cache
    assert report.outcome.finished_requests == 8
    assert cache.retractions > 0
    assert cache.retractions == len(ledger.retracted)
    assert cache.retractions == ledger.retractions.sum()
    assert not ledger.remaining_tokens.any()
    assert cache.recomputed_tokens > 0
    # Every token is computed by a prefill or a decode, and again only if it is recomputed.
    decoded = ledger.rounds.table()["decodes"].sum()
    assert cache.prefilled_tokens + decoded - cache.recomputed_tokens == 8 * (100 + 200 - 1)


def test_a_token_counts_as_recomputed_each_time(trace_of):
    playing = Player(trace_of((0, 100, 1, [])), Scenario.of(HAND))
    ledger = playing._ledger

    def prefill(begin: int, end: int) -> int:
        before = ledger.recomputed_tokens
        numbers = {
            "input_lengths_array": end - begin,
            "prefill_lengths_array": 100,
            "extend_prefix_lens_array": begin,
            "extend_replay_lens_array": 0,
            "device_hit_tokens_array": 0,
            "host_hit_tokens_array": 0,
        }
        batch = SimpleNamespace(**{name: np.array([value]) for name, value in numbers.items()})
        playing._prefill(batch, np.array([0]))
        return ledger.recomputed_tokens - before

    assert prefill(0, 60) == 0
    ledger.retractions[0] += 1
    assert prefill(0, 40) == 40
    ledger.retractions[0] += 1
    assert prefill(16, 50) == 34  # 16 were found in the cache
    assert prefill(50, 100) == 10  # up to 60 it had been once


def test_forward_waits_for_the_snapshot_whose_pages_it_reuses(trace_of):
    # As above, with a host pool behind a link that takes 1 ms a page.
    trace = trace_of(*((0, 100, 200, []) for _ in range(8)))
    report, ledger = play(
        trace,
        prefix_granularity=16,
        num_device_pages=76,
        num_host_pages=500,
        max_new_tokens=0,
        kv_bytes_per_token=1000,
        host_link_gb_per_s=0.016,
    )
    assert report.outcome.finished_requests == 8
    assert report.cache.load_back_bytes > 0
    starts = ledger.rounds.table()["start_s"]
    copies = ledger.write_backs.table()
    waited = 0
    for at_s in ledger.retracted.table()["at_s"]:
        snapshot = np.flatnonzero(copies["start_s"] == at_s)
        if len(snapshot):
            waited += 1
            assert starts[starts >= at_s][0] >= copies["end_s"][snapshot[0]]
    assert waited


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("host_pages", [0, 300])
def test_conservation(trace_of, depth, mixed, host_pages):
    generator = np.random.default_rng(7)
    rows = []
    for arrival in np.sort(generator.integers(0, 2000, size=80)).tolist():
        prompt = int(generator.integers(1, 6000))
        ids = generator.integers(0, 6) * 100 + np.arange(prompt // 512)
        rows.append((arrival, prompt, int(generator.integers(1, 60)), ids.tolist()))
    report, ledger = play(
        trace_of(*rows),
        num_device_pages=61,
        num_host_pages=host_pages,
        overlap_schedule_depth=depth,
        enable_mixed_prefill_decode=mixed,
        host_link_gb_per_s=1.0,
    )
    trace, cache = ledger.trace, report.cache
    assert report.outcome.finished_requests == 80
    assert (trace.arrival_s <= ledger.admitted_s).all()
    assert (ledger.admitted_s < ledger.first_token_s).all()
    assert (ledger.first_token_s <= ledger.finished_s).all()
    rounds = ledger.rounds.table()
    assert (rounds["start_s"][1:] >= rounds["end_s"][:-1]).all()
    for copies in (ledger.write_backs.table(), ledger.load_backs.table()):
        assert (copies["start_s"][1:] >= copies["end_s"][:-1]).all()
    hits = cache.device_hit_tokens + cache.host_hit_tokens
    assert hits > 0
    assert (cache.host_hit_tokens > 0) == (host_pages > 0)
    readmitted = 2 * cache.retractions  # a readmission prefills its last token for the first time
    computed = cache.prefilled_tokens - cache.recomputed_tokens + hits
    assert 0 <= computed - trace.prompt_tokens.sum() <= readmitted
    assert len(ledger.plan_ns) >= len(ledger.rounds)
    gauges = ledger.gauges.table()
    assert gauges["active_pages"][-1] == 0
    assert gauges["waiting"][-1] == gauges["running"][-1] == 0
    assert gauges["available_pages"][-1] == 60


def test_replay_is_deterministic(trace_of):
    trace = trace_of(*((5 * i, 700 + i, 9, [1, i + 2]) for i in range(20)))
    (one, first), (two, second) = (play(trace, num_device_pages=20) for _ in range(2))
    assert one.latency == two.latency
    assert one.cache == two.cache
    assert np.array_equal(first.rounds.table()["end_s"], second.rounds.table()["end_s"])


def test_configuration_that_the_scheduler_refuses(trace_of):
    with pytest.raises(ConfigurationRefused, match="at most 2147483647"):
        play(trace_of((0, 100, 1, [])), num_device_pages=3_000_000_000)


def test_progress_is_told(trace_of):
    told = []
    trace = trace_of((0, 100, 600, []), (0, 100, 1, []))
    Player(trace, Scenario.of(HAND), on_progress=lambda *now: told.append(now)).run()
    assert told[0][:2] == (1, 2)
    assert told[-1][:2] == (2, 2)
    assert [now_s for *_, now_s in told] == sorted(now_s for *_, now_s in told)


class Sleeping:
    """A scheduler that takes every call and never plans anything."""

    def __init__(self, config):
        self._awake = player.Scheduler.awake(config)

    def __getattr__(self, name):
        return getattr(self._awake, name)

    def submit_requests(self, specs):
        pass

    awake = None


def test_standstill_says_who_is_left(trace_of, monkeypatch):
    monkeypatch.setattr(Sleeping, "awake", staticmethod(player.Scheduler))
    monkeypatch.setattr(player, "Scheduler", Sleeping)
    trace = trace_of((0, 100, 1, []), (5, 100, 1, []))
    with pytest.raises(Standstill, match=r"at 0\.000 s: it plans nothing.* 1 requests are unfin"):
        Player(trace, Scenario.of(HAND)).run()


def test_rounds_without_a_token_are_a_standstill(trace_of):
    playing = Player(trace_of((0, 5000, 1, [])), Scenario.of({**HAND, "max_scheduled_tokens": 512}))
    playing._patience_plans = 5  # of the 10 chunks that the prompt takes
    with pytest.raises(Standstill, match=r"no token comes of them\. 1 requests are unfinished"):
        playing.run()
