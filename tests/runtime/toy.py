"""A model of hashes: one wrong, late or early byte of its caches changes what it says.

Each layer keeps rows that depend on the token, its place and all that the layers below saw; each
token's value mixes in every row that its window sees, weighted by place, and the bytes of its last
block that nobody has written, which have to be zero. `Alone` computes the same, one request on its
own, with Python's integers and without a cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.recipe import Field, Kind, LayerCache, Recipe
from tokenspeed.runtime.runner import ForwardInput, ForwardOutput

U64 = np.uint64
MASK = 2**64 - 1
MIX, DECAY, ZERO_WEIGHT = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95, 0xA24BAED4963EE407


def mix(*values: Any) -> NDArray[np.uint64]:
    """A hash of arrays, place by place."""
    total = np.zeros(1, dtype=U64)
    for value in values:
        total = (total + np.asarray(value).astype(U64)) * U64(MIX)
        total = total ^ (total >> U64(29))
    return total


def mix_alone(*values: int) -> int:
    total = 0
    for value in values:
        total = (total + value) * MIX & MASK
        total ^= total >> 29
    return total


@dataclass(frozen=True)
class ToyLayer:
    kind: Kind
    window_tokens: int | None = None
    block_tokens: int | None = None


class Toy:
    """The model on a device's arena."""

    def __init__(
        self, layers: Sequence[ToyLayer], page_tokens: int, vocabulary: int = 50, lanes: int = 2
    ) -> None:
        self.layers = list(layers)
        self.vocabulary = vocabulary
        self.raises: dict[str, int] = {}
        """Request id -> how many of its forwards go well before all raise."""
        self.raises_early = False
        """Whether that is before the first layer, rather than behind the last."""
        caches = [
            LayerCache(
                layer.kind,
                {"rows": Field((lanes,) if layer.kind != "state" else (5 * lanes,), "uint64")},
                layer.window_tokens,
                layer.block_tokens,
            )
            for layer in layers
        ]
        self._recipe = Recipe(caches, page_tokens)
        self._places = [self._recipe.layout.find(at, "rows")[0] for at in range(len(layers))]
        self._group_ids = [place.group_id for place in self._places]
        self._tried: dict[tuple[int, int], NDArray[np.uint64]] = {}

    def recipe(self) -> Recipe:
        return self._recipe

    def bind(self, arena: Arena, device: Device) -> None:
        self._rows = [arena.view(at, "rows") for at in range(len(self.layers))]

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        if batch.seq_lens_host is not None:
            np.testing.assert_array_equal(batch.seq_lens_host, batch.seq_lens)
        raises = self._raises(batch)
        if raises and self.raises_early:
            raise ArithmeticError("before the first layer")
        x = mix(batch.input_ids, batch.positions)
        embedded = x
        for at, layer in enumerate(self.layers):
            batch.layer_ready(at)
            parts = []
            for i in range(batch.num_requests):
                mine = slice(batch.query_start_host[i], batch.query_start_host[i + 1])
                if layer.kind == "state":
                    parts.append(self._state(at, batch, i, batch.positions[mine], x[mine]))
                else:
                    values = embedded if layer.kind == "replay" else x
                    parts.append(self._attend(at, batch, i, batch.positions[mine], values[mine]))
            x = mix(x, np.concatenate(parts))
        if raises:
            raise ArithmeticError("behind the last layer")
        chosen = mix(x[batch.logit_tokens]) % U64(self.vocabulary)
        logits = np.zeros((len(chosen), self.vocabulary), dtype=np.float32)
        logits[np.arange(len(chosen)), chosen.astype(np.int64)] = 1
        return ForwardOutput(logits)

    def _raises(self, batch: ForwardInput) -> bool:
        for request_id in set(batch.request_ids) & set(self.raises):
            self.raises[request_id] -= 1
            if self.raises[request_id] < 0:
                return True
        return False

    def _attend(
        self, at: int, batch: ForwardInput, i: int, positions: Any, values: Any
    ) -> NDArray[np.uint64]:
        layer, rows, group_id = self.layers[at], self._rows[at], self._group_ids[at]
        block_tokens = self._recipe.block_tokens(group_id)
        table = batch.block_tables[group_id][i]
        new = positions
        if layer.kind != "replay" and i < batch.num_extends:
            replayed = batch.extend_replay_lens[i]
            new, values = positions[replayed:], values[replayed:]
        row = mix(values, new, at)
        rows[table[new // block_tokens], new % block_tokens] = row[:, None]
        first, end = int(positions[0]), int(positions[-1]) + 1
        lowest = 0 if layer.window_tokens is None else max(0, first - layer.window_tokens + 1)
        seen = np.arange(lowest, end)
        kept = rows[table[seen // block_tokens], seen % block_tokens]
        weighted = (kept[:, 0] + kept[:, 1] * U64(3)) * (2 * seen + 1).astype(U64)
        sums = np.concatenate([np.zeros(1, dtype=U64), np.cumsum(weighted, dtype=U64)])
        last = positions - lowest
        since = np.zeros_like(last)
        if layer.window_tokens is not None:
            since = np.maximum(last - layer.window_tokens + 1, 0)
        result: NDArray[np.uint64] = sums[last + 1] - sums[since]
        # What nobody has written yet has to be zero.
        unwritten = rows[table[(end - 1) // block_tokens], (end - 1) % block_tokens + 1 :]
        result[-1:] += unwritten.sum(dtype=U64, keepdims=True).ravel() * U64(ZERO_WEIGHT)
        return result

    def _state(
        self, at: int, batch: ForwardInput, i: int, positions: Any, values: Any
    ) -> NDArray[np.uint64]:
        states, group_id = self._rows[at], self._group_ids[at]
        block_tokens = self._recipe.block_tokens(group_id)
        table = batch.block_tables[group_id][i]
        first, end = int(positions[0]), int(positions[-1]) + 1
        state = 0
        if first:
            kept = states[table[(first - 1) // block_tokens]]
            state = int(kept.sum(dtype=U64)) if kept.min() != kept.max() else int(kept[0])
        scanned = []
        checkpoint = batch.checkpoints[i] if i < batch.num_extends else -1
        for position, value in zip(positions.tolist(), values.tolist()):
            state = (state * DECAY + value) & MASK
            scanned.append(state)
            if position + 1 == checkpoint:
                states[table[position // block_tokens]] = state
        if i < batch.num_extends or batch.width == 1:
            states[table[(end - 1) // block_tokens]] = state
        result = np.array(scanned, dtype=U64)
        if batch.width > 1:
            self._tried[at, i] = result
        return result

    def accepted(self, batch: ForwardInput, counts: Any) -> None:
        for at, layer in enumerate(self.layers):
            if layer.kind != "state":
                continue
            block_tokens = self._recipe.block_tokens(self._group_ids[at])
            for i in range(batch.num_extends, batch.num_requests):
                count = int(counts[i])
                last = int(batch.positions[batch.query_start_host[i]]) + count - 1
                block = batch.block_tables[self._group_ids[at]][i][last // block_tokens]
                self._rows[at][block] = self._tried[at, i][count - 1]


class Alone:
    """What a request says on its own, and what its caches hold."""

    def __init__(self, toy: Toy) -> None:
        self._layers = toy.layers
        self._vocabulary = toy.vocabulary
        self._sums = [0] * len(toy.layers)
        self.kept: list[list[int]] = [[] for _ in toy.layers]
        """By layer: each token's row; in a state layer the state after it."""
        self._weighted: list[deque[int]] = [deque() for _ in toy.layers]

    def feed(self, token: int) -> int:
        """The token that follows."""
        position = len(self.kept[0])
        x = embedded = mix_alone(token, position)
        for at, layer in enumerate(self._layers):
            if layer.kind == "state":
                self._sums[at] = (self._sums[at] * DECAY + x) & MASK
                self.kept[at].append(self._sums[at])
            else:
                row = mix_alone(embedded if layer.kind == "replay" else x, position, at)
                self.kept[at].append(row)
                self._weighted[at].append(row * 4 * (2 * position + 1))
                self._sums[at] += self._weighted[at][-1]
                if layer.window_tokens is not None and position >= layer.window_tokens:
                    self._sums[at] -= self._weighted[at].popleft()
            x = mix_alone(x, self._sums[at] & MASK)
        return mix_alone(x) % self._vocabulary


@dataclass(frozen=True)
class Story:
    """A request on its own, to its end."""

    tokens: list[int]
    """Prompt and output."""
    generated: list[int]
    kept: list[list[int]]
    """As `Alone.kept`."""


def alone(toy: Toy, prompt: Sequence[int], new_tokens: int) -> Story:
    """What a request generates with all the memory in the world."""
    model = Alone(toy)
    following = [model.feed(token) for token in prompt]
    generated = following[-1:]
    while len(generated) < new_tokens:
        generated.append(model.feed(generated[-1]))
    model.feed(generated[-1])
    return Story([*prompt, *generated], generated, model.kept)
