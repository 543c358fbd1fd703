"""The choice of tokens from logits, row by row, without a look at the other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tokenspeed.engine.sampling import SamplingParams


@dataclass(frozen=True)
class Draw:
    """What one row of logits is sampled with: the request's parameters, its seed, and the place in
    its sequence of the token to come."""

    params: SamplingParams
    seed: int
    position: int

    def uniform(self) -> float:
        """The token's own random number in [0, 1): a function of the seed and the place alone."""
        bits = np.random.Philox(key=self.seed, counter=self.position)
        return float(np.random.Generator(bits).random())


def choose(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """One token for each row of `logits` `[rows, vocabulary]`, on its device: int64 `[rows]`.

    Nothing waits for the device. Greedy rows take the first of the likeliest tokens.
    """
    tokens = logits.argmax(dim=-1)
    sampled = [row for row, draw in enumerate(draws) if draw.params.temperature > 0]
    if not sampled:
        return tokens
    rows = _on(logits, np.asarray(sampled, dtype=np.int64))
    chosen = _sample(logits.index_select(0, rows), [draws[row] for row in sampled])
    return tokens.index_copy(0, rows, chosen)


def _sample(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    vocabulary = logits.shape[-1]

    def column(values: list[float]) -> torch.Tensor:
        return _on(logits, np.asarray(values, dtype=np.float64))[:, None]

    temperature = column([draw.params.temperature for draw in draws])
    top_k = column([float(draw.params.top_k or vocabulary) for draw in draws])
    top_p = column([draw.params.top_p for draw in draws])
    uniform = column([draw.uniform() for draw in draws])

    # Stable, so that ties fall alike in any batch. In float64: sums over a whole vocabulary.
    ranked, order = torch.sort(logits.double() / temperature, dim=-1, descending=True, stable=True)
    place = torch.arange(vocabulary, device=logits.device)
    ranked = ranked.masked_fill(place >= top_k, -torch.inf)
    mass = ranked.softmax(dim=-1)
    before = mass.cumsum(dim=-1) - mass
    mass = mass.masked_fill(before >= top_p, 0.0)
    reached = mass.cumsum(dim=-1)
    # Searched among what has mass: `uniform` < 1, and what `reached` ends with is all there is.
    at = torch.searchsorted(reached, uniform * reached[:, -1:], right=True)
    last = (mass > 0).sum(dim=-1, keepdim=True) - 1
    return order.gather(-1, torch.minimum(at, last)).squeeze(-1)


def _on(like: torch.Tensor, array: np.ndarray[tuple[int], np.dtype[np.generic]]) -> torch.Tensor:
    """`array` on the device of `like`; from pinned memory where that makes the copy asynchronous."""
    host = torch.from_numpy(array)
    if like.device.type == "cuda":
        return host.pin_memory().to(like.device, non_blocking=True)
    return host
