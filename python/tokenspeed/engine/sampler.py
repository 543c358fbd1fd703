"""The choice of tokens from logits, row by row, without a look at the other rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tokenspeed.engine.sampling import SamplingParams
from tokenspeed.runtime.runner import ForwardInput


@dataclass(frozen=True)
class Draw:
    """What a request's tokens are drawn with: `Request.sampling` of this engine."""

    params: SamplingParams
    seed: int


class TokenSampler:
    """The runtime's `Sampler` for `Draw`s. Nothing in it waits for the device."""

    def sample(self, batch: ForwardInput, logits: torch.Tensor, positions: Any) -> torch.Tensor:
        """int32 [L]. Greedy rows take the lowest of the likeliest tokens."""
        tokens = logits.argmax(dim=-1)
        draws = [draw for draw in _draws_by_row(batch) if isinstance(draw, Draw)]
        assert len(draws) == len(tokens), "a request of another engine"
        rows = [row for row, draw in enumerate(draws) if draw.params.temperature > 0]
        if rows:
            at = _on(logits, np.array(rows, dtype=np.int64))
            places = torch.as_tensor(positions, device=logits.device).long()[at]
            chosen = choose(logits[at], places, [draws[row] for row in rows])
            tokens = tokens.index_copy(0, at, chosen)
        return tokens.int()


def _draws_by_row(batch: ForwardInput) -> list[object]:
    """What each row of logits is drawn with (`ForwardInput.logit_requests`, on the host)."""
    extends, decodes = batch.sampling[: batch.num_extends], batch.sampling[batch.num_extends :]
    completing = [draw for draw, completes in zip(extends, batch.completes) if completes]
    return [*completing, *(draw for draw in decodes for _ in range(batch.width))]


def choose(logits: torch.Tensor, positions: torch.Tensor, draws: list[Draw]) -> torch.Tensor:
    """A token for each row of `logits` `[rows, vocabulary]`, to stand at `positions`: int64."""
    vocabulary = logits.shape[-1]

    def column(values: list[float]) -> torch.Tensor:
        return _on(logits, np.array(values, dtype=np.float64))[:, None]

    temperature = column([draw.params.temperature for draw in draws])
    top_k = column([float(draw.params.top_k or vocabulary) for draw in draws])
    top_p = column([draw.params.top_p for draw in draws])
    seeds = _on(logits, np.array([draw.seed for draw in draws], dtype=np.int64))

    # Stable, so that ties fall alike in any batch; in float64, for sums over a whole vocabulary.
    ranked, order = torch.sort(logits.double() / temperature, dim=-1, descending=True, stable=True)
    place = torch.arange(vocabulary, device=logits.device)
    mass = ranked.masked_fill(place >= top_k, -torch.inf).softmax(dim=-1)
    mass = mass.masked_fill(mass.cumsum(dim=-1) - mass >= top_p, 0.0)
    reached = mass.cumsum(dim=-1)
    wanted = uniform(seeds, positions)[:, None] * reached[:, -1:]
    at = torch.searchsorted(reached, wanted, right=True)
    # Rounding may leave `wanted` at the very end of what is reached.
    last = (mass > 0).sum(dim=-1, keepdim=True) - 1
    return order.gather(-1, torch.minimum(at, last)).squeeze(-1)


def uniform(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """A number in [0, 1) for each seed and position (int64), and for nothing else: float64.

    The finaliser of SplitMix64, twice: so the numbers are the same on every device.
    """
    mixed = _mix(_mix(seeds) ^ positions)
    return (mixed >> 11 & (1 << 53) - 1).double() * 2.0**-53


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """To the right, with zeros from the left, as torch's signed integers do not."""
    return x >> bits & (1 << 64 - bits) - 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _on(like: torch.Tensor, array: np.ndarray[Any, Any]) -> torch.Tensor:
    """`array` on the device of `like`; through pinned memory, so that nobody waits for the copy."""
    host = torch.from_numpy(array)
    if like.device.type == "cpu":
        return host
    return host.pin_memory().to(like.device, non_blocking=True)
