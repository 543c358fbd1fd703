"""What the runtime asks of a model: a small protocol, so that an engine brings its own.

A runner keeps its caches in the arena it is bound to and nowhere else. Token `p` of a request, in
a layer of a group whose blocks cover `g` tokens, is row `p % g` of block `table[p // g]`. A state
layer keeps the state after `n` tokens in block `table[(n - 1) // g]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.recipe import Recipe


@dataclass(frozen=True)
class ForwardInput:
    """One batch: `num_extends` prefills first, then decodes. R requests, T tokens of input.

    Arrays called "device" are int32 arrays of `Device.xp`, valid inside the forward only; the
    others are read-only NumPy arrays on the host, known without asking the device.
    """

    num_extends: int
    width: int
    """Input tokens of each decode: 1, or the verify width with speculation."""
    request_ids: tuple[str, ...]
    """[R]."""
    sampling: tuple[object, ...]
    """[R], what the client gave with each request; the runtime does not look into it."""

    rows: Any
    """Device [R]: row in the request pool, from 1."""
    input_ids: Any
    """Device [T]. A decode's are its newest token, then the drafted ones."""
    positions: Any
    """Device [T]: each input token's place in its request, from 0."""
    query_start: Any
    """Device [R + 1]: input tokens of request i are `query_start[i]:query_start[i + 1]`."""
    seq_lens: Any
    """Device [R]: tokens of context, this input included."""
    block_tables: Mapping[str, Any]
    """Group id -> device [R, columns]: block ids by absolute slot, 0 for a hole."""
    logit_tokens: Any
    """Device [L]: the input tokens whose logits are wanted: the last one of each prefill that
    completes, then all of each decode."""
    logit_requests: Any
    """Device [L]: the request, by its place in the batch, that each row of logits is of."""

    query_start_host: NDArray[np.int32]
    """[R + 1], the same as `query_start`."""
    seq_lens_max: int
    """No entry of `seq_lens` is above this."""
    seq_lens_host: NDArray[np.int32] | None
    """[R], the same as `seq_lens`; None at widths above 1, where the host does not know what a step
    that is under way gives."""
    extend_prefix_lens: NDArray[np.int32]
    """[E]: position of each prefill's first input token."""
    extend_replay_lens: NDArray[np.int32]
    """[E]: how many of a prefill's first input tokens regenerate replay groups only (§1.3): their
    rows must be written to no other group."""
    checkpoints: NDArray[np.int32]
    """[E]: number of tokens after which a state layer keeps an extra snapshot inside this forward
    (§1.2), a multiple of the page before the chunk's end; -1 for none. The state at a chunk's end
    is kept always."""
    completes: NDArray[np.bool_]
    """[E]: whether the prefill reaches the end of its prompt and so samples a token."""

    layer_ready: Callable[[int], None]
    """To be called before the forward reads or writes the caches of a layer: what comes after it
    on the forward's stream waits for the layer's part of the loads (runtime.md, step 3)."""

    @property
    def num_requests(self) -> int:
        return len(self.request_ids)

    @property
    def num_decodes(self) -> int:
        return self.num_requests - self.num_extends


@dataclass(frozen=True)
class ForwardOutput:
    """What a forward gives."""

    logits: Any
    """Device [L, vocabulary], one row for each of `ForwardInput.logit_tokens`; or a torch tensor of
    that shape in the device's memory."""


class ModelRunner(Protocol):
    """A model that keeps its caches in an arena."""

    def recipe(self) -> Recipe:
        """What its layers keep; the same at every call."""
        ...

    def bind(self, arena: Arena, device: Device) -> None:
        """Takes the device arena that all forwards read and write. Called once, before them."""
        ...

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        """Computes a batch. Runs on the forward thread with the forward's stream current, must not
        wait for the device, and keeps nothing of `batch`. An exception fails the requests of this
        batch and nothing else."""
        ...

    def accepted(self, batch: ForwardInput, counts: Any) -> None:
        """Verification (width above 1) kept the first `counts[i]` input tokens of each request:
        device int32 [R], 1 and more for decodes. A state layer settles here on the state after
        them; layers with a row a token have nothing to do, since a rejected token's row is written
        again. Called on the same stream right after the sampling, for every forward of width > 1.
        """
        ...


class Sampler(Protocol):
    """Turns logits into tokens on the device."""

    def sample(self, batch: ForwardInput, logits: Any, positions: Any) -> Any:
        """Device int32 [L]: a token for each row of `logits`, to stand at `positions` (device int32
        [L]). What it draws for a request and position must depend on nothing else of the batch."""
        ...
