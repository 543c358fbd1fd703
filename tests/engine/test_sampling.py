"""Parameters are checked; tokens are drawn from the distribution that they describe."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenspeed import SamplingParams
from tokenspeed.engine.sampler import Draw, choose, uniform


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 0),
        ("temperature", -1.0),
        ("temperature", 1e-9),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", [""]),
        ("stop", [5]),
        ("stop", b"xy"),
        ("stop", 5),
        ("stop_token_ids", ["a"]),
        ("stop_token_ids", [-1]),
        ("max_new_tokens", 2.5),
        ("max_new_tokens", 10**30),
        ("temperature", 10**400),
        ("temperature", "0.7"),
        ("top_k", 10**400),
        ("top_p", None),
        ("seed", 1.5),
    ],
)
def test_a_bad_parameter_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})


def shares(params: SamplingParams, logits: list[float], count: int = 20_000) -> list[float]:
    """How often each token is drawn over so many positions."""
    rows = torch.tensor(logits, dtype=torch.float32).expand(count, -1)
    tokens = choose(rows, torch.arange(count), [Draw(params, 42)] * count)
    return (torch.bincount(tokens, minlength=len(logits)) / count).tolist()


LOGITS = [1.0, 3.0, 2.0, 0.0, 2.5]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_shapes_the_distribution(temperature: float) -> None:
    want = (torch.tensor(LOGITS) / temperature).softmax(-1).tolist()
    got = shares(SamplingParams(temperature=temperature), LOGITS)
    assert got == pytest.approx(want, abs=0.015)


def test_top_k_keeps_the_likeliest() -> None:
    got = shares(SamplingParams(temperature=1.0, top_k=2), LOGITS)
    want = torch.tensor([3.0, 2.5]).softmax(-1)
    assert got[1] == pytest.approx(float(want[0]), abs=0.015)
    assert [token for token, share in enumerate(got) if share] == [1, 4]


def test_top_p_keeps_what_reaches_the_probability() -> None:
    masses = torch.tensor(LOGITS).softmax(-1).tolist()  # in order: tokens 1, 4, 2, 0, 3
    just_below, just_above = masses[1] + masses[4] - 1e-4, masses[1] + masses[4] + 1e-4
    for top_p, kept in ((1e-9, [1]), (just_below, [1, 4]), (just_above, [1, 2, 4]), (1.0, 5)):
        got = shares(SamplingParams(temperature=1.0, top_p=top_p), LOGITS)
        drawn = [token for token, share in enumerate(got) if share]
        assert drawn == kept or len(drawn) == kept


def test_the_random_numbers_are_even_and_belong_to_seed_and_place() -> None:
    places = torch.arange(20_000)
    seeds = torch.full_like(places, 7)
    numbers = uniform(seeds, places)
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1
    assert torch.histc(numbers, 20, 0, 1).sub(1000).abs().max() < 150
    assert len(set(numbers.tolist())) == len(places)
    ahead = torch.corrcoef(torch.stack([numbers[:-1], numbers[1:]]))[0, 1]
    assert abs(float(ahead)) < 0.03
    other = uniform(seeds + 1, places)
    assert abs(float(torch.corrcoef(torch.stack([numbers, other]))[0, 1])) < 0.03
    at = torch.tensor([19_999, 3])
    assert uniform(seeds[:2], at).tolist() == numbers[at].tolist()


def test_a_row_is_drawn_alike_in_any_batch() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    draws = [Draw(SamplingParams(temperature=0.5 + at, top_p=0.9), at) for at in range(6)]
    places = torch.arange(6) * 3
    together = choose(logits, places, draws).tolist()
    for at in range(6):
        assert choose(logits[at : at + 1], places[at : at + 1], draws[at : at + 1]).tolist() == [
            together[at]
        ]
