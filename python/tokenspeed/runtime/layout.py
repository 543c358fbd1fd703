"""Where a block's bytes lie: parents, blocks, layers, fields (runtime.md, "Memory").

All parents are of equal size. Parent 0 is the null parent: block 0 of every group lies in it, and
holes and padding point there, so its bytes may be read and overwritten and mean nothing. A group
cuts a parent into `blocks_per_parent` blocks of equal stride with nothing left over, so that block
`b` of a group starts at `parent_bytes + (b - 1) * block_bytes`, one stride for all ids, and a field
of all blocks is one strided tensor. Inside a block, layer lies after layer, and inside a layer,
field after field: a block moves in one copy, and so does a layer's part of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALIGNMENT_BYTES = 16
"""Every field, layer and block starts at a multiple of this: one vector load of a GPU."""

DTYPE_BYTES: Mapping[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float16": 2, "bfloat16": 2, "int16": 2,
    "float32": 4, "int32": 4,
    "float64": 8, "int64": 8, "uint64": 8,
}  # fmt: skip
"""Bytes of an element, by the name that torch and NumPy give the type."""


def aligned(nbytes: int, to: int = ALIGNMENT_BYTES) -> int:
    """The least multiple of `to` that holds `nbytes`."""
    return -(-nbytes // to) * to


@dataclass(frozen=True)
class FieldPlace:
    """One field of one layer inside a block."""

    offset_bytes: int
    """From the block's start."""
    shape: tuple[int, ...]
    """Of one block: `[block_tokens, ...]` where each token has a row, else the snapshot's own."""
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class LayerPlace:
    """One layer's part of a block: one contiguous range."""

    layer: int
    offset_bytes: int
    """From the block's start."""
    nbytes: int
    fields: Mapping[str, FieldPlace]


@dataclass(frozen=True)
class GroupLayout:
    """A cache group's blocks."""

    group_id: str
    blocks_per_parent: int
    block_bytes: int
    """From one block's start to the next one's: the layers' parts, and padding."""
    payload_bytes: int
    """What the layers' parts take of a block: the bytes to copy and to zero."""
    layers: Mapping[int, LayerPlace]


@dataclass(frozen=True)
class ArenaLayout:
    """The geometry that the device arena and the host arena share."""

    parent_bytes: int
    groups: Mapping[str, GroupLayout]
    """By group id, in the configuration's order."""

    @property
    def num_layers(self) -> int:
        return 1 + max(layer for group in self.groups.values() for layer in group.layers)

    def parts(self, layer: int) -> list[tuple[GroupLayout, LayerPlace]]:
        """Where a layer keeps its caches: one part a group that it is in."""
        return [(g, g.layers[layer]) for g in self.groups.values() if layer in g.layers]

    def find(self, layer: int, field: str) -> tuple[GroupLayout, FieldPlace]:
        """The group and place of a layer's field. Raises KeyError."""
        for group, part in self.parts(layer):
            if field in part.fields:
                return group, part.fields[field]
        raise KeyError(f"layer {layer} keeps no field {field!r}")

    def offset(self, group_id: str, block_id: int) -> int:
        """First byte of a block in an arena; block 0 is in the null parent."""
        return self.parent_bytes + (block_id - 1) * self.groups[group_id].block_bytes

    def offsets(self, group_id: str, block_ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """As `offset`, of many blocks: int64, of the shape of `block_ids`."""
        ids = np.asarray(block_ids, dtype=np.int64)
        return self.parent_bytes + (ids - 1) * self.groups[group_id].block_bytes

    def num_blocks(self, group_id: str, num_parents: int) -> int:
        """Block ids of a group in an arena of so many parents, the null parent and id included."""
        return (num_parents - 1) * self.groups[group_id].blocks_per_parent + 1
