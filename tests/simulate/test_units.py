"""Quantities in words."""

import pytest
from tokenspeed.simulate import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (12.34e-6, "12.3 µs"),
        (4.561e-3, "4.56 ms"),
        (0.2, "200 ms"),
        (7.89, "7.89 s"),
        (119.6, "120 s"),
        (738.0, "12.3 min"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (12031, "12,031"),
        (37.25, "37.2"),
        (144_793_823, "145 million"),
        (2.5e9, "2.50 billion"),
    ],
)
def test_count(value, text):
    assert units.count(value) == text


def test_bytes_and_shares():
    assert units.num_bytes(512) == "512 B"
    assert units.num_bytes(32 * 2**20) == "32 MiB"
    assert units.num_bytes(1.25 * 2**40) == "1.25 TiB"
    assert units.share(0.3664) == "36.6 %"
    assert units.share(1.0) == "100 %"
    assert units.share(None) == "–"
