"""What a reader of `help()` and of a debugger sees."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
import tokenspeed.scheduler as ts
from tokenspeed.scheduler import _core

from .engine import config, step, submit

CLASSES = [getattr(_core, name) for name in _core.__all__] + [
    value
    for module in (ts.enums, ts.errors)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
]

MEMBERS = [
    (owner, name)
    for owner in CLASSES
    for name, value in vars(owner).items()
    if owner.__module__ not in (ts.enums.__name__, ts.errors.__name__)
    and not name.startswith("_")
    and not isinstance(value, type)
]


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_every_class_says_what_it_is_for(owner: type) -> None:
    assert owner.__doc__ and owner.__doc__.strip().endswith(".")


@pytest.mark.parametrize(
    ("owner", "name"), MEMBERS, ids=lambda part: getattr(part, "__name__", part)
)
def test_every_member_says_what_it_is(owner: type, name: str) -> None:
    doc = inspect.getattr_static(owner, name).__doc__
    assert doc and doc.strip().endswith(".")


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_every_class_is_at_home_where_engines_import_it_from(owner: type) -> None:
    home: Any = ts
    for name in owner.__module__.split(".")[2:]:
        home = getattr(home, name)
        assert isinstance(home, ModuleType)
    assert getattr(home, owner.__name__) is owner


def test_repr_of_what_one_builds_builds_it_again() -> None:
    names = {name: getattr(ts, name) for name in ts.__all__}
    settings = config(
        num_host_pages=9,
        role=ts.SchedulerConfig.Role.P,
        enable_mixed_prefill_decode=True,
        cache_groups=[
            ts.CacheGroupConfig(
                "it's",
                2,
                33,
                retention=ts.CacheRetention.SlidingWindow,
                sliding_window_tokens=6,
                cache_blocks_per_lcm_block=2,
                shard_count=2,
                replayable=True,
                transfer_policy=ts.CacheTransferPolicy.FullSuffix,
            ),
            ts.CacheGroupConfig("state", 4, 17, family=ts.CacheGroupFamily.State),
        ],
    )
    for value in (
        settings,
        ts.RequestSpec("a", [1, 2], 3),
        ts.ForwardEvent.ExtendResult("a", [1], [2, 3]),
        ts.ForwardEvent.Finish("a"),
        ts.ForwardEvent.UpdateReserveNumTokens("a", 4),
        ts.Cache.WriteBackDoneEvent(1),
        ts.Cache.LoadBackDoneEvent(1, False),
        ts.PD.BootstrappedEvent("a\nb"),
        ts.PD.RemotePrefillDoneEvent("a", 5),
    ):
        assert repr(eval(repr(value), names)) == repr(value)
    assert "role=SchedulerConfig.Role.P" in repr(settings)


def test_repr_of_long_lists_is_short() -> None:
    text = repr(ts.RequestSpec("a", list(range(100_000))))
    assert text.startswith("RequestSpec(request_id='a', tokens=[0, 1, 2,")
    assert "100000 in all" in text
    assert len(text) < 200


def test_repr_of_what_a_scheduler_makes_says_what_there_is() -> None:
    scheduler = ts.Scheduler(config(num_host_pages=17))
    submit(scheduler, "a", 9)
    plan = step(scheduler)
    assert "1 prefills, 0 decodes, 3 pages to zero" in repr(plan)
    assert "request_ids=['a'], num_extends=1" in repr(plan.batch)
    assert "0 waiting, 1 prefilling, 0 decoding; 13 of 16 LCM blocks available" in repr(scheduler)
    (store,) = step(scheduler).cache
    assert repr(store) == "<Cache.WriteBackOp: op_ids=[0], of [2] blocks>"
    scheduler.next_execution_plan()
    assert repr(scheduler.owed_results()) == (
        "[OwedResult(request_id='a', results=1, since_round=3)]"
    )
