"""A plan's copies between the tiers, put on streams (runtime.md, steps 1 and 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Device, Event, Stream
from tokenspeed.runtime.rounds import BlockCopies


@dataclass(frozen=True)
class Acknowledgement:
    """What says that an operation is over: the event of its own copy and nothing else."""

    copies: BlockCopies
    event: Event


class TierTransfer:
    """Copies blocks between a device arena and a host arena of the same layout."""

    def __init__(self, device: Device, on_device: Arena, on_host: Arena | None) -> None:
        self._device = device
        self.on_device = on_device
        self._on_host = on_host
        self._layout = on_device.layout

    def zero(self, stream: Stream, group_id: str, blocks: NDArray[np.int32]) -> None:
        """Zeroes device blocks of a group."""
        self._device.zero_blocks(
            stream,
            self.on_device,
            self._layout.offsets(group_id, blocks),
            self._layout.groups[group_id].payload_bytes,
        )

    def store(self, stream: Stream, copies: BlockCopies) -> Acknowledgement:
        """Device to Host, whole blocks."""
        assert self._on_host is not None, "a store without a host tier"
        for group_id, (sources, targets) in copies.blocks.items():
            self._device.copy_blocks(
                stream,
                self._on_host,
                self.on_device,
                self._layout.offsets(group_id, targets),
                self._layout.offsets(group_id, sources),
                self._layout.groups[group_id].payload_bytes,
            )
        return Acknowledgement(copies, stream.record())

    def load(
        self, stream: Stream, loads: Sequence[BlockCopies]
    ) -> tuple[dict[int, Event], list[Acknowledgement]]:
        """Host to Device, layer after layer in the order in which a forward needs them: for each
        layer the event behind its part of all loads, and the acknowledgements."""
        assert self._on_host is not None, "a load without a host tier"
        ready: dict[int, Event] = {}
        last_layer: dict[int, int] = {}
        by_layer: dict[int, list[BlockCopies]] = defaultdict(list)
        for copies in loads:
            for group_id in copies.blocks:
                for layer in self._layout.groups[group_id].layers:
                    last_layer[copies.op_id] = max(layer, last_layer.get(copies.op_id, 0))
                    if copies not in by_layer[layer]:
                        by_layer[layer].append(copies)
        acknowledgements = []
        for layer in sorted(by_layer):
            for copies in by_layer[layer]:
                self._load_layer(stream, layer, copies)
                if last_layer[copies.op_id] == layer:
                    acknowledgements.append(Acknowledgement(copies, stream.record()))
            ready[layer] = stream.record()
        return ready, acknowledgements

    def _load_layer(self, stream: Stream, layer: int, copies: BlockCopies) -> None:
        assert self._on_host is not None
        for group, part in self._layout.parts(layer):
            if group.group_id not in copies.blocks:
                continue
            sources, targets = copies.blocks[group.group_id]
            first = np.int64(part.offset_bytes)
            self._device.copy_blocks(
                stream,
                self.on_device,
                self._on_host,
                self._layout.offsets(group.group_id, targets) + first,
                self._layout.offsets(group.group_id, sources) + first,
                part.nbytes,
            )
