"""How an engine is cut: what settings may be."""

from __future__ import annotations

import pytest
from tokenspeed.engine.settings import EngineSettings, parse_bytes


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("num_device_pages", 1),
        ("num_device_pages", "5"),
        ("num_host_pages", -1),
        ("num_host_pages", None),
        ("page_tokens", 0),
        ("max_batch_size", True),
        ("max_request_tokens", 0),
        ("max_scheduled_tokens", 0.5),
        ("overlap_schedule_depth", -1),
        ("speculative_tokens", -1),
        ("mixed", 1),
        ("prefix_cache", "no"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} = {wrong!r}: {name} is "):
        EngineSettings.of({name: wrong})


def test_a_pool_is_given_in_pages_or_in_bytes() -> None:
    with pytest.raises(ValueError, match="num_device_pages and memory: give one of them"):
        EngineSettings(num_device_pages=9, memory="1GiB")


def test_sizes_of_memory() -> None:
    assert [parse_bytes(text) for text in (4096, "4096", "2KiB", "1.5 MB", "3G")] == [
        4096, 4096, 2048, 1_500_000, 3_000_000_000,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="memory"):
        parse_bytes("2 pages")
