"""Settings: names, bounds, and what they make of a trace and a configuration."""

import pytest
from tokenspeed.simulate.scenario import Load, Scenario, settings


def test_every_setting_has_a_unique_name_and_a_help_text():
    items = [item for _, item in settings()]
    assert len({item.name for item in items}) == len(items)
    assert all(item.metadata["help"].endswith(".") for item in items)


def test_settings_reach_the_scheduler_under_their_own_names():
    scenario = Scenario.of(
        {
            "num_device_pages": 100,
            "num_host_pages": 200,
            "prefix_granularity": 64,
            "max_scheduled_tokens": 256,
            "max_batch_size": 8,
            "enable_mixed_prefill_decode": False,
            "overlap_schedule_depth": 1,
        }
    )
    config = scenario.engine.scheduler_config()
    assert config.num_device_pages == 100
    assert config.num_host_pages == 200
    assert config.prefix_granularity == 64
    assert config.max_scheduled_tokens == 256
    assert config.max_batch_size == 8
    assert config.overlap_schedule_depth == 1
    assert not config.enable_mixed_prefill_decode
    assert not config.disable_l2_cache
    (group,) = config.cache_groups
    assert group.block_granularity == 64
    assert group.total_pages == 100


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num_device_pages": 1}, "num_device_pages is 1; it needs at least 2"),
        ({"overlap_schedule_depth": 2}, "overlap_schedule_depth is 2; it needs 0 or 1"),
        ({"time_scale": 0.0}, "time_scale is 0.0; it needs more than 0"),
        ({"max_new_tokens": -2}, "max_new_tokens is -2; it needs at least -1"),
        ({"host_link_gb_per_s": float("nan")}, "host_link_gb_per_s is nan; it needs a finite"),
    ],
)
def test_setting_out_of_bounds_is_named(values, says):
    with pytest.raises(ValueError, match=says):
        Scenario.of(values)


def test_load_cuts_scales_and_caps(trace_of):
    trace = trace_of((0, 10, 5, []), (1000, 20, 50, []), (3000, 30, 500, []))
    played = Load(limit=2, time_scale=2.0, max_new_tokens=20).of(trace)
    assert played.arrival_s.tolist() == [0.0, 0.5]
    assert played.output_tokens.tolist() == [5, 20]
    assert len(Load().of(trace)) == 3


@pytest.mark.parametrize(("max_new_tokens", "declared"), [(-1, 7), (0, 0), (20, 20)])
def test_declared_budget(max_new_tokens, declared):
    assert Load(max_new_tokens=max_new_tokens).declared_tokens(7) == declared


def test_varied_changes_one_setting_only():
    base = Scenario.of({"num_host_pages": 0, "round_us": 500.0})
    varied = base.varied("num_device_pages", "1_234")
    assert varied.engine.num_device_pages == 1234
    assert varied.engine.num_host_pages == 0
    assert varied.cost == base.cost
    assert base.varied("disable_prefix_cache", "true").engine.disable_prefix_cache
    assert base.varied("time_scale", "2.5").load.time_scale == 2.5


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nonsense", "1", "there is no setting 'nonsense'; there are num_device_pages"),
        ("num_device_pages", "many", "num_device_pages='many': it needs a whole number"),
        ("num_device_pages", "0", "num_device_pages is 0; it needs at least 2"),
        ("disable_l2_cache", "perhaps", "disable_l2_cache='perhaps': it needs true or false"),
        ("round_us", "fast", "round_us='fast': it needs a number"),
    ],
)
def test_varied_names_what_is_wrong(name, text, says):
    with pytest.raises(ValueError, match=says):
        Scenario().varied(name, text)
