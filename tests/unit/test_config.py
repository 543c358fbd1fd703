"""The configuration, built at once or field by field."""

from __future__ import annotations

from typing import Any

import pytest
from tokenspeed.scheduler import (
    CacheGroupConfig,
    CacheGroupFamily,
    CacheRetention,
    CacheTransferPolicy,
    CapacityModel,
    ConfigError,
    Scheduler,
    SchedulerConfig,
    UnsupportedError,
)

from .engine import config


def test_keywords_and_assignment_do_the_same() -> None:
    at_once = SchedulerConfig(
        prefix_granularity=4,
        num_device_pages=9,
        max_scheduled_tokens=16,
        max_batch_size=2,
        overlap_schedule_depth=1,
        role=SchedulerConfig.Role.D,
        enable_mixed_prefill_decode=True,
        cache_groups=[CacheGroupConfig(group_id="f", block_granularity=4, total_pages=9)],
    )
    group = CacheGroupConfig()
    group.group_id, group.block_granularity, group.total_pages = "f", 4, 9
    piecemeal = SchedulerConfig()
    piecemeal.prefix_granularity = 4
    piecemeal.num_device_pages = 9
    piecemeal.max_scheduled_tokens = 16
    piecemeal.max_batch_size = 2
    piecemeal.overlap_schedule_depth = 1
    piecemeal.role = SchedulerConfig.Role.D
    piecemeal.enable_mixed_prefill_decode = True
    piecemeal.cache_groups = [group]
    assert repr(piecemeal) == repr(at_once)
    assert "enable_mixed_prefill_decode=True" in repr(at_once)


def test_groups_are_the_configurations_own() -> None:
    settings = SchedulerConfig()
    settings.cache_groups.append(CacheGroupConfig("f"))
    settings.cache_groups[0].block_granularity = 4
    assert [(g.group_id, g.block_granularity) for g in settings.cache_groups] == [("f", 4)]


def test_a_scheduler_keeps_the_configuration_that_it_was_built_with() -> None:
    settings = config()
    scheduler = Scheduler(settings)
    settings.cache_groups[0].total_pages = 3
    settings.num_device_pages = 3
    assert scheduler.cache_group_total_pages("full") == 17
    assert scheduler.available_lcm_blocks() == 16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prefix_granularity", 0),
        ("prefix_granularity", -4),
        ("prefix_granularity", 6),
        ("num_device_pages", 1),
        ("num_device_pages", 2**40),
        ("num_host_pages", -1),
        ("max_scheduled_tokens", 0),
        ("max_batch_size", 0),
        ("decode_input_tokens", 0),
        ("overlap_schedule_depth", 2),
        ("cache_groups", []),
        ("prefix_replay_tokens", -1),
        ("enable_l3_storage", True),
    ],
)
def test_a_refusal_names_field_value_and_rule(field: str, value: Any) -> None:
    settings = config()
    setattr(settings, field, value)
    with pytest.raises(ConfigError, match=r"it must \w+") as refusal:
        Scheduler(settings)
    assert refusal.value.code == "invalid_config"
    assert str(value) in str(refusal.value) or field == "prefix_granularity"
    assert field in str(refusal.value)


def test_a_group_looks_at_itself() -> None:
    with pytest.raises(ConfigError, match=r"cache_groups\['f'\]\.sliding_window_tokens"):
        CacheGroupConfig("f", 4, 9, CacheRetention.SlidingWindow).validate()
    CacheGroupConfig("f", 4, 9, CacheRetention.SlidingWindow, 5).validate()


@pytest.mark.parametrize(
    "settings",
    [
        {
            "role": role,
            "cache_groups": [
                CacheGroupConfig("f", 4, 17, transfer_policy=CacheTransferPolicy.FullSuffix)
            ],
        }
        for role in (SchedulerConfig.Role.P, SchedulerConfig.Role.D)
    ]
    + [
        {"enable_l3_storage": True, "num_host_pages": 9},
    ],
    ids=str,
)
def test_every_role_and_storage_are_planned_for(settings: dict[str, Any]) -> None:
    scheduler = Scheduler(config(**settings))
    assert scheduler.next_execution_plan().forward[0].request_ids == []


def test_storage_keys_need_storage() -> None:
    with pytest.raises(UnsupportedError, match="enable_l3_storage"):
        Scheduler(config()).register_storage_keys([], [], [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", "Fused"),
        ("role", CacheRetention.FullHistory),
        ("cache_groups", [1]),
        ("cache_groups", CacheGroupConfig()),
        ("max_batch_size", 1.5),
        ("max_batch_size", "8"),
    ],
)
def test_a_wrong_type_is_refused_on_assignment(field: str, value: Any) -> None:
    settings = config()
    before = repr(settings)
    with pytest.raises(TypeError):
        setattr(settings, field, value)
    assert repr(settings) == before


def test_the_role_says_what_it_expected() -> None:
    with pytest.raises(TypeError, match=r"expected a member of Role \(P, D, Fused\), got 'Fused'"):
        config().role = "Fused"  # type: ignore[assignment]


def test_capacity_needs_no_pool() -> None:
    groups = [
        CacheGroupConfig("full", 4, 0),
        CacheGroupConfig("state", 4, 0, family=CacheGroupFamily.State),
    ]
    model = CapacityModel(config(num_device_pages=0, cache_groups=groups))
    assert model.num_groups == 2
    pages = model.single_request_group_pages(33)
    assert len(pages) == 2 and pages[0] == 9
    assert model.lcm_blocks_needed_for(pages) == sum(pages)
    assert model.max_single_request_tokens(sum(pages)) >= 33
    assert len(model.concurrent_group_pages(100, 50)) == 2
    with pytest.raises(ConfigError, match="token_limit") as refusal:
        model.single_request_group_pages(-1)
    assert refusal.value.code == "invalid_argument"
    with pytest.raises(ConfigError, match="group_pages"):
        model.lcm_blocks_needed_for([1])
