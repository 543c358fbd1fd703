"""Sweeps: one replay a value, all else equal."""

import pytest
from tokenspeed.simulate.scenario import Scenario
from tokenspeed.simulate.sweep import Sweep
from tokenspeed.simulate.table import SWEEP_HEADINGS, sweep_row


def test_parse_reads_names_as_the_command_line_spells_them():
    base = Scenario.of({"num_host_pages": 0})
    sweep = Sweep.parse("num-device-pages=1_000, 2000", base)
    assert sweep.name == "num_device_pages"
    assert [s.engine.num_device_pages for s in sweep.scenarios] == [1000, 2000]
    assert all(s.engine.num_host_pages == 0 for s in sweep.scenarios)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_device_pages", "not of the form NAME=VALUE"),
        ("num_device_pages=", "not of the form NAME=VALUE"),
        ("num_device_pages=10,", "num_device_pages='': it needs a whole number"),
        ("pages=10", "there is no setting 'pages'"),
    ],
)
def test_bad_sweep_is_named(text, says):
    with pytest.raises(ValueError, match=says):
        Sweep.parse(text, Scenario())


def test_larger_pool_hits_more(trace_of):
    # Ten prompts of 4 pages, asked for in turn, three times over.
    trace = trace_of(
        *((100 * i, 2100, 1, [10 * (i % 10) + page for page in range(4)]) for i in range(30))
    )
    base = Scenario.of({"num_host_pages": 0})
    sweep = Sweep.parse("num_device_pages=11,100", base)
    small, large = sweep.run(trace, lambda number: None)
    assert small.cache.device_hit_tokens == 0
    assert large.cache.device_hit_tokens == 20 * 2048
    assert large.latency.time_to_first_token_s.p50 < small.latency.time_to_first_token_s.p50
    row = sweep_row("num_device_pages", large)
    assert len(row) == 1 + len(SWEEP_HEADINGS)
    assert row[0] == "100"
