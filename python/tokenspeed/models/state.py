"""Recurrent layers over an arena's snapshots (scheduler.md §1.2).

A mixer of transformers takes its state from a cache and puts it back there. Here it finds a
`Snapshot` instead: the state of one request, or of all decodes together, read from the arena's
blocks and written back to them. A prefill that passes an aligned boundary runs the mixer up to it,
keeps that state, and runs on from there: two scans in one forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tokenspeed.models.batch import BatchTensors
from tokenspeed.runtime.arena import Arena

State = dict[str, torch.Tensor]
"""A layer's fields by name, `[requests, ...]`."""


class Snapshot:
    """Stands in for transformers' cache in front of one mixer, for one call."""

    def __init__(self, state: State) -> None:
        """`state` is empty before the first token."""
        self.state = state

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self.state.get(f"conv{state_idx}")

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self.state.get(f"recurrent{state_idx}")

    def has_previous_state(self, *_: Any, **__: Any) -> bool:
        return bool(self.state)

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def update_conv_state(
        self,
        conv_states: torch.Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Takes the new columns; returns what the convolution looks at, earlier ones included."""
        before = self.get_conv_state(layer_idx, state_idx)
        full = conv_states if before is None else torch.cat([before, conv_states], dim=-1)
        kernel = conv_kernel_size or (conv_states if before is None else before).shape[-1]
        padded = nn.functional.pad(full, (max(0, kernel - full.shape[-1]), 0))
        self.state[f"conv{state_idx}"] = padded[..., -kernel:]
        return full

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **_: Any
    ) -> torch.Tensor:
        self.state[f"recurrent{state_idx}"] = recurrent_states
        return recurrent_states


class StateLayer:
    """Replaces the forward of a mixer."""

    def __init__(self, arena: Arena, layer: int, names: list[str], mixer: nn.Module) -> None:
        self.layer = layer
        self.fields: dict[str, torch.Tensor] = {name: arena.tensor(layer, name) for name in names}
        self.group_id = arena.layout.find(layer, names[0])[0].group_id
        self.batch: BatchTensors | None = None
        self.block_tokens = 0
        self._mix: Callable[..., torch.Tensor] = mixer.forward
        self._verified: list[State] = []
        """After each input token of the decodes of this forward, where some may be refused."""

    def __call__(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """As the mixer's own forward, of a batch `[1, T, hidden]`."""
        assert self.batch is not None, "a forward outside TransformersRunner.forward"
        batch, table = self.batch.input, self.batch.table(self.group_id)
        batch.layer_ready(self.layer)
        pieces = []
        for at in range(batch.num_extends):
            first, end = batch.query_start_host[at : at + 2].tolist()
            begin = int(batch.extend_prefix_lens[at])
            pieces += self._prefill(
                hidden_states[:, first:end], table[at], begin, int(batch.checkpoints[at])
            )
        if batch.num_decodes:
            first = int(batch.query_start_host[batch.num_extends])
            hidden = hidden_states[0, first:].unflatten(0, (batch.num_decodes, batch.width))
            pieces.append(self._decode(hidden, table[batch.num_extends :]).flatten(0, 1)[None])
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def _prefill(
        self, hidden: torch.Tensor, table: torch.Tensor, begin: int, checkpoint: int
    ) -> list[torch.Tensor]:
        end = begin + hidden.shape[1]
        snapshot = Snapshot(self._read(self._slot(table, begin)) if begin else {})
        pieces, at = [], begin
        for stop in (checkpoint, end):
            if stop > at:
                pieces.append(self._run(hidden[:, at - begin : stop - begin], snapshot))
                self._write(self._slot(table, stop), snapshot.state)
                at = stop
        return pieces

    def _decode(self, hidden: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        assert self.batch is not None
        width = hidden.shape[1]
        after = self.batch.seq_lens[-len(table) :]
        snapshot = Snapshot(self._read(self._blocks(table, after - width)))
        pieces, self._verified = [], []
        for at in range(width):
            pieces.append(self._run(hidden[:, at : at + 1], snapshot))
            if width > 1:
                self._verified.append({name: one.clone() for name, one in snapshot.state.items()})
        if width == 1:
            self._write(self._blocks(table, after), snapshot.state)
        return torch.cat(pieces, dim=1)

    def settle(self, counts: torch.Tensor) -> None:
        """Keeps the state after the first `counts` `[decodes]` tokens that each decode brought."""
        assert self.batch is not None
        batch = self.batch.input
        table = self.batch.table(self.group_id)[batch.num_extends :]
        after = self.batch.seq_lens[batch.num_extends :] - batch.width + counts
        rows = torch.arange(len(counts), device=counts.device)
        kept = {
            name: torch.stack([state[name] for state in self._verified])[counts - 1, rows]
            for name in self.fields
        }
        self._write(self._blocks(table, after), kept)
        self._verified = []

    def _run(self, hidden: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        return self._mix(hidden, cache=snapshot, attention_mask=None)

    def _slot(self, table: torch.Tensor, tokens: int) -> torch.Tensor:
        """The block, `[1]`, that holds the state after so many tokens."""
        slot = (tokens - 1) // self.block_tokens
        return table[slot : slot + 1].long()

    def _blocks(self, table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """As `_slot`, request by request, for counts that only the device knows."""
        slots = (tokens - 1).div(self.block_tokens, rounding_mode="floor")
        return table.gather(1, slots[:, None])[:, 0].long()

    def _read(self, blocks: torch.Tensor) -> State:
        # Copies: a mixer may update its state in place, and a block may be shared.
        return {name: field.index_select(0, blocks) for name, field in self.fields.items()}

    def _write(self, blocks: torch.Tensor, state: State) -> None:
        for name, field in self.fields.items():
            field.index_copy_(0, blocks, state[name].to(field.dtype))
