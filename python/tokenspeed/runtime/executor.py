"""One round on the device, in its order (runtime.md, "One round on the device, in this order")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.device import Device, Download, Event, Stream
from tokenspeed.runtime.drafter import Drafter
from tokenspeed.runtime.packed import Packed
from tokenspeed.runtime.remote import RemotePeer
from tokenspeed.runtime.rounds import Int32Array, Round, RoundBatch
from tokenspeed.runtime.rows import DeviceRows
from tokenspeed.runtime.runner import ForwardInput, ModelRunner, Sampler
from tokenspeed.runtime.transfer import Acknowledgement, TierTransfer

Fence = Literal[
    "ordered store after forwards",
    "round after ordered store",
    "pinned store after forwards",
    "load after zeroing",
    "layer after load",
    "later rounds after load",
]
"""Each place where one stream waits for another; a test takes them out one at a time."""


@dataclass
class Launched:
    """A round whose operations are all on their streams."""

    acknowledgements: list[Acknowledgement]
    results: Download | None = None
    """int32 [R, 1 + width]: how many tokens each request got, and these; behind the one of a prompt
    that completes, what the drafter guesses to follow."""
    failure: Exception | None = None
    """What the model raised. Not to be asked before the results have come."""
    keep: list[Any] = field(default_factory=list)
    """Device arrays that operations under way still read."""


class RoundExecutor:
    """Puts rounds on the device's streams. On the forward thread, and never waiting there."""

    def __init__(
        self,
        device: Device,
        runner: ModelRunner,
        sampler: Sampler,
        drafter: Drafter | None,
        transfer: TierTransfer,
        rows: DeviceRows,
        block_tokens: Mapping[str, int],
        peer: RemotePeer | None = None,
        name: str = "",
    ) -> None:
        """`block_tokens`: tokens that a block covers, by group id. `name`: before the names of this
        engine's streams, for engines that share a device."""
        self._device = device
        self._runner = runner
        self._sampler = sampler
        self._drafter = drafter
        self._transfer = transfer
        self._rows = rows
        self._block_tokens = block_tokens
        self._peer = peer
        self._sent_for: Int32Array | None = None
        self._sent = Packed()
        self._main = device.stream(f"{name}forward")
        self._ordered = device.stream(f"{name}ordered stores")
        self._pinned = device.stream(f"{name}pinned stores")
        self._loads = device.stream(f"{name}loads")

    def carry_out(self, round_: Round) -> Launched:
        """Puts a round on the device; returns when all is on its way and nothing need be done."""
        with self._device.forbid_sync():
            return self._carry_out(round_)

    def _carry_out(self, round_: Round) -> Launched:
        launched = Launched(self._store(round_))
        self._zero(round_)
        ready = self._load(round_, launched)
        self._hand_over(round_)
        self._change_tables(round_)
        if round_.batch is not None:
            self._forward(round_.batch, ready, launched)
        for event in ready.values():
            # For layers that the model did not come to: later rounds take all of them as loaded.
            self._fence("later rounds after load", self._main, event)
        return launched

    def _fence(self, name: Fence, stream: Stream, event: Event) -> None:
        """What is put on `stream` from here on runs after `event`."""
        stream.wait(event)

    def _store(self, round_: Round) -> list[Acknowledgement]:
        """Step 1. Sources of an ordered store are given away in this very plan, so the rest of
        the plan waits for its copy; those of a pinned one stay, and nobody waits."""
        acknowledgements = []
        for copies in round_.ordered_stores:
            self._fence("ordered store after forwards", self._ordered, self._main.record())
            acknowledgement = self._transfer.store(self._ordered, copies)
            self._fence("round after ordered store", self._main, acknowledgement.event)
            acknowledgements.append(acknowledgement)
        for copies in round_.pinned_stores:
            self._fence("pinned store after forwards", self._pinned, self._main.record())
            acknowledgements.append(self._transfer.store(self._pinned, copies))
        return acknowledgements

    def _zero(self, round_: Round) -> None:
        """Step 2."""
        for group_id, blocks in round_.zero.items():
            self._transfer.zero(self._main, group_id, blocks)

    def _load(self, round_: Round, launched: Launched) -> dict[int, Event]:
        """Step 3: for each layer, what its forward waits for."""
        if not round_.loads:
            return {}
        self._fence("load after zeroing", self._loads, self._main.record())
        ready, acknowledgements = self._transfer.load(self._loads, round_.loads)
        launched.acknowledgements += acknowledgements
        return ready

    def _hand_over(self, round_: Round) -> None:
        """Step 4: what the peer reads has been computed, and where it writes has been zeroed."""
        if round_.remote:
            assert self._peer is not None, "a remote request without a peer"
            self._peer.hand_over(self._transfer.on_device, round_.remote, self._main.record())

    def _change_tables(self, round_: Round) -> None:
        """Uploads the cells of the persistent block tables that changed, and no others."""
        if not round_.changed_cells:
            return
        packed = Packed()
        for group_id, cells in round_.changed_cells.items():
            packed.add(group_id, cells)
        parts = packed.upload(self._device, self._main)

        def change() -> None:
            for group_id, cells in parts.items():
                self._rows.change_cells(group_id, cells)

        self._device.run(self._main, change)

    def _forward(self, batch: RoundBatch, ready: dict[int, Event], launched: Launched) -> None:
        """Step 5: one model forward, its sampling, and the results on their way to the host."""
        if batch.query_start is not self._sent_for:  # else the decodes of the last round again
            self._sent_for, self._sent = batch.query_start, _arrays_of(batch)
        parts = self._sent.upload(self._device, self._main)
        out = parts["out"]

        def forward() -> None:
            try:
                self._compute(batch, parts, ready, out)
            except Exception as error:
                launched.failure = error

        self._device.run(self._main, forward)
        launched.results = self._device.download(self._main, out)
        launched.keep.append(parts)

    def _compute(
        self, batch: RoundBatch, parts: dict[str, Any], ready: dict[int, Event], out: Any
    ) -> None:
        """What the forward's stream does for a batch; `out` as in `Launched.results`."""
        rows = self._rows
        if batch.told is not None:
            rows.tell(*(parts[f"told {name}"] for name in ("rows", "lengths", "tokens", "drafts")))
        for row in batch.histories:
            rows.remember(row, parts[f"history {row}"])
        extends = batch.num_extends
        decoding = parts["rows"][extends:]
        ids, positions, seq_lens = rows.decode_input(decoding)
        given = self._forward_input(batch, parts, ready, ids, positions, seq_lens)
        logits = self._runner.forward(given).logits
        sampled_at = given.positions[given.logit_tokens] + 1
        tokens = self._device.xp.asarray(self._sampler.sample(given, logits, sampled_at))
        tokens = tokens.astype(np.int32)

        completed = int(batch.completes.sum())
        verified = tokens[completed:].reshape(-1, batch.width)
        counts = rows.verify(decoding, ids, verified)
        out[extends:, 0] = counts
        out[extends:, 1:] = verified
        if completed:
            at = parts["completing"]
            out[at, 0] = 1
            out[at, 1] = tokens[:completed]
            done = parts["rows"][at]
            rows.complete(done, parts["prefill_lengths"][at], tokens[:completed])
            rows.draft(done)
            out[at, 2:] = rows.drafts[done]
        rows.draft(decoding)
        if batch.width > 1:
            self._runner.accepted(given, out[:, 0])

    def _forward_input(
        self,
        batch: RoundBatch,
        parts: dict[str, Any],
        ready: dict[int, Event],
        ids: Any,
        positions: Any,
        seq_lens: Any,
    ) -> ForwardInput:
        """`ids`, `positions` and `seq_lens` are the decodes'."""
        xp = self._device.xp
        tables = {}
        for group_id, table in self._rows.tables.items():
            columns = -(-batch.seq_lens_max // self._block_tokens[group_id])
            tables[group_id] = table[:, :columns][parts["rows"]]

        def layer_ready(layer: int) -> None:
            if layer in ready:
                self._fence("layer after load", self._main, ready[layer])

        return ForwardInput(
            num_extends=batch.num_extends,
            width=batch.width,
            request_ids=batch.request_ids,
            sampling=batch.sampling,
            rows=parts["rows"],
            input_ids=xp.concatenate([parts["prefill_ids"], ids.ravel()]),
            positions=xp.concatenate([parts["prefill_positions"], positions.ravel()]),
            query_start=parts["query_start"],
            seq_lens=xp.concatenate([parts["prefill_ends"], seq_lens]),
            block_tables=tables,
            logit_tokens=parts["logit_tokens"],
            logit_requests=parts["logit_requests"],
            query_start_host=batch.query_start,
            seq_lens_max=batch.seq_lens_max,
            seq_lens_host=batch.seq_lens,
            extend_prefix_lens=batch.extend_prefix_lens,
            extend_replay_lens=batch.extend_replay_lens,
            checkpoints=batch.checkpoints,
            completes=batch.completes,
            layer_ready=layer_ready,
        )


def _arrays_of(batch: RoundBatch) -> Packed:
    """What a forward reads of its batch, on the device."""
    packed = Packed()
    lengths = np.diff(batch.query_start)[: batch.num_extends]
    # Zeros to write results into: so they are the stream's own, like all that an upload brings.
    packed.add("out", np.zeros((batch.num_requests, 1 + batch.width), dtype=np.int32))
    packed.add("rows", batch.rows)
    packed.add("prefill_ids", batch.prefill_ids)
    packed.add("prefill_positions", _ranges(batch.extend_prefix_lens, lengths))
    packed.add("prefill_ends", batch.extend_prefix_lens + lengths)
    packed.add("prefill_lengths", batch.prefill_lengths)
    packed.add("completing", np.flatnonzero(batch.completes))
    packed.add("query_start", batch.query_start)
    packed.add("logit_tokens", batch.logit_tokens())
    packed.add("logit_requests", batch.logit_requests())
    if batch.told is not None:
        packed.add("told rows", batch.told.rows)
        packed.add("told lengths", batch.told.lengths)
        packed.add("told tokens", batch.told.tokens)
        packed.add("told drafts", batch.told.drafts)
    for row, tokens in batch.histories.items():
        packed.add(f"history {row}", tokens)
    return packed


def _ranges(starts: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """`starts[i], starts[i] + 1, ...`, `lengths[i]` of them, one range after the other."""
    ends = np.cumsum(lengths)
    shifts: NDArray[np.int64] = np.repeat(starts.astype(np.int64) - (ends - lengths), lengths)
    shifts += np.arange(len(shifts))
    return shifts
