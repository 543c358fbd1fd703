"""How an engine is cut: what settings may be."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tokenspeed.engine.settings import EngineSettings, parse_bytes
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.scheduler import ConfigError, Scheduler

_FROM_0, _FROM_1, _FROM_2 = (f"a whole number, {least} to 2147483647" for least in range(3))
_MEMORY = (
    "a whole number of bytes from 1 on, or a text like '512MiB' or '2GB', in K, M, G, Ki, Mi or Gi"
)


@pytest.mark.parametrize(
    ("name", "wrong", "rule"),
    [
        ("num_device_pages", 1, _FROM_2),
        ("num_device_pages", "5", _FROM_2),
        ("num_device_pages", 2**31, _FROM_2),
        ("num_host_pages", -1, "0, or a whole number, 2 to 2147483647"),
        ("num_host_pages", 1, "0, or a whole number, 2 to 2147483647"),
        ("num_host_pages", None, "0, or a whole number, 2 to 2147483647"),
        ("page_tokens", 0, _FROM_1),
        ("max_batch_size", True, _FROM_1),
        ("max_request_tokens", 0, _FROM_1),
        ("max_scheduled_tokens", 0.5, _FROM_1),
        ("overlap_schedule_depth", -1, "0 or 1"),
        ("overlap_schedule_depth", 2, "0 or 1"),
        ("speculative_tokens", -1, _FROM_0),
        ("speculative_tokens", 10**12, _FROM_0),
        ("mixed", 1, "True or False"),
        ("prefix_cache", "no", "True or False"),
        ("memory", -1, _MEMORY),
        ("memory", 0, _MEMORY),
        ("memory", "0.5", _MEMORY),
        ("memory", 1.5e9, _MEMORY),
        ("memory", True, _MEMORY),
        ("memory", "x", _MEMORY),
        ("memory", "1TiB", _MEMORY),
        ("memory", "2 pages", _MEMORY),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(name: str, wrong: object, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name} = {wrong!r}: {name} is {rule}')}$"):
        EngineSettings.of({name: wrong})


@pytest.mark.parametrize("name", ["dtype", "device"])
def test_an_argument_of_llm_is_no_setting(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"^setting '{name}': it is no setting; give {name} to LLM"
    ):
        EngineSettings.of({name: "cpu"})


def test_a_pool_is_given_in_pages_or_in_bytes() -> None:
    with pytest.raises(ValueError, match="num_device_pages and memory: give one of them"):
        EngineSettings(num_device_pages=9, memory="1GiB")


def test_a_decode_fits_into_a_forward() -> None:
    EngineSettings(speculative_tokens=511)
    with pytest.raises(
        ValueError,
        match=r"^speculative_tokens = 512: 1 \+ speculative_tokens must not exceed "
        r"max_scheduled_tokens \(512\)$",
    ):
        EngineSettings(speculative_tokens=512)


def test_scalars_of_numpy_stand_for_what_they_hold() -> None:
    settings = EngineSettings(
        mixed=np.bool_(False),  # type: ignore[arg-type]
        prefix_cache=np.bool_(False),  # type: ignore[arg-type]
        num_device_pages=np.int64(9),  # type: ignore[arg-type]
    )
    config = settings.scheduler_config(recipe(), 64)
    assert config.num_device_pages == 9
    assert not config.enable_mixed_prefill_decode
    assert config.disable_prefix_cache


def recipe() -> Recipe:
    """Pages of 1,280 bytes with five blocks of attention each, or two of a state."""
    kv = {"kv": Field((1,), "float32")}
    state = {"state": Field((160,), "float32")}
    return Recipe([LayerCache("full", kv), LayerCache("state", state)], page_tokens=64)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"memory": "1KiB"}, "memory = '1KiB': it makes a pool of 0 pages"),
        ({"memory": "9999999999G"}, "memory = '9999999999G': it makes a pool of 78"),
        ({"num_device_pages": 8388610}, "num_device_pages = 8388610: it makes a pool of 8388610 "),
        ({"max_batch_size": 2**31 - 1}, "max_batch_size = 2147483647: it makes a pool of "),
    ],
)
def test_a_pool_that_cannot_be_is_said_in_the_words_of_the_settings(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=f"^{said}.* this model's has 2 to 8388609$"):
        EngineSettings(**settings).scheduler_config(recipe(), 2048)


def test_a_page_more_than_the_largest_pool_is_too_much_for_the_scheduler() -> None:
    EngineSettings(num_device_pages=8388609).scheduler_config(recipe(), 2048)
    too_large = recipe().scheduler_config(
        num_device_pages=8388610, max_batch_size=8, max_scheduled_tokens=512
    )
    with pytest.raises(ConfigError, match=f"at most {2**26} blocks .* here {2**26 + 8}"):
        Scheduler(too_large)


def test_sizes_of_memory() -> None:
    sizes = (4096, np.int64(4096), "4096", "2KiB", "1.5 MB", "3G", "9007199254740993")
    assert [parse_bytes(size) for size in sizes] == [  # type: ignore[arg-type]
        4096, 4096, 4096, 2048, 1_500_000, 3_000_000_000, 9_007_199_254_740_993,
    ]  # fmt: skip
