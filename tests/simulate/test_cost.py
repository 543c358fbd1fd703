"""The cost model and the host link: plain arithmetic."""

import math

import pytest
from tokenspeed.simulate.cost import CostModel
from tokenspeed.simulate.link import Link


def test_forward_is_the_sum_of_its_terms():
    cost = CostModel(
        round_us=1000.0, prefill_token_us=10.0, decode_request_us=100.0, context_token_ns=2000.0
    )
    assert cost.forward_s(0, 0, 0) == pytest.approx(1000e-6)
    assert cost.forward_s(512, 0, 0) == pytest.approx((1000 + 5120) * 1e-6)
    assert cost.forward_s(0, 3, 0) == pytest.approx((1000 + 300) * 1e-6)
    assert cost.forward_s(0, 0, 50) == pytest.approx((1000 + 100) * 1e-6)
    assert cost.forward_s(512, 3, 50) == pytest.approx((1000 + 5120 + 300 + 100) * 1e-6)


def test_default_costs_are_those_documented():
    # 8 ms, 15 us a prefill token, 20 us a decode and 16 ns a context token.
    assert CostModel().forward_s(8000, 100, 1_000_000) == pytest.approx(
        0.008 + 0.12 + 0.002 + 0.016
    )


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("round_us", 0.0, "more than 0"),
        ("prefill_token_us", -1.0, "at least 0"),
        ("context_token_ns", math.inf, "a finite number"),
    ],
)
def test_bad_coefficient_is_named(name, value, rule):
    with pytest.raises(ValueError, match=rf"{name} is {value}; it needs {rule}"):
        CostModel(**{name: value})


def test_copies_queue_on_the_link():
    link = Link(bytes_per_s=1000.0)
    assert link.next_done_s() == math.inf
    assert link.copy(1, 500, now_s=2.0) == 2.5
    assert link.copy(2, 1000, now_s=2.1) == 3.5
    assert link.copy(3, 100, now_s=9.0) == 9.1
    assert link.next_done_s() == 2.5
    assert link.take_done(2.4) == []
    assert link.take_done(3.5) == [1, 2]
    assert link.take_done(3.5) == []
    assert link.take_done(9.1) == [3]
    assert link.next_done_s() == math.inf
