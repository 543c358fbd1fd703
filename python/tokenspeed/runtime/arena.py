"""One buffer of bytes, seen as the fields of blocks: where block ids become memory."""

from __future__ import annotations

import importlib
from typing import Any

from tokenspeed.runtime.errors import RecipeError
from tokenspeed.runtime.layout import DTYPE_BYTES, ArenaLayout


class Arena:
    """Parents of a layout in one allocation, on a device or in (pinned) host memory."""

    def __init__(self, layout: ArenaLayout, num_parents: int, buffer: Any) -> None:
        """`num_parents` counts the null parent; `buffer` is a one-dimensional uint8 array of NumPy
        or CuPy with at least `num_parents * layout.parent_bytes` bytes.

        Raises `RecipeError` for a buffer too small.
        """
        needed = num_parents * layout.parent_bytes
        if buffer.nbytes < needed:
            raise RecipeError(f"{num_parents} parents need {needed} bytes, not {buffer.nbytes}")
        self.layout = layout
        self.num_parents = num_parents
        self.buffer = buffer
        self._views: dict[tuple[int, str, bool], Any] = {}

    def view(self, layer: int, field: str) -> Any:
        """A layer's field in all blocks, as an array of the buffer's own library, without a copy:
        `[blocks, block_tokens, ...]`, or `[blocks, ...]` for a snapshot, by block id.

        bfloat16 and float8, which NumPy has not, come as unsigned integers of their size.
        """
        return self._cached(layer, field, False)

    def tensor(self, layer: int, field: str) -> Any:
        """As `view`, as a torch tensor over the same memory."""
        return self._cached(layer, field, True)

    def block(self, group_id: str, block_id: int) -> Any:
        """The bytes of one block that its layers use: uint8, without a copy."""
        first = self.layout.offset(group_id, block_id)
        return self.buffer[first : first + self.layout.groups[group_id].payload_bytes]

    def _cached(self, layer: int, field: str, as_tensor: bool) -> Any:
        key = layer, field, as_tensor
        if key not in self._views:
            self._views[key] = self._make(layer, field, as_tensor)
        return self._views[key]

    def _make(self, layer: int, field: str, as_tensor: bool) -> Any:
        group, place = self.layout.find(layer, field)
        size = DTYPE_BYTES[place.dtype]
        first = self.layout.offset(group.group_id, 0) + place.offset_bytes
        blocks = self.layout.num_blocks(group.group_id, self.num_parents)
        span = (blocks - 1) * group.block_bytes + place.nbytes
        shape = (blocks, *place.shape)
        strides = [size] * len(shape)  # in bytes; a row's elements lie together
        for at in range(len(shape) - 2, 0, -1):
            strides[at] = strides[at + 1] * shape[at + 1]
        strides[0] = group.block_bytes
        piece = self.buffer[first : first + span]
        if as_tensor:
            torch = importlib.import_module("torch")
            typed = torch.from_dlpack(piece).view(getattr(torch, place.dtype))
            return typed.as_strided(shape, [stride // size for stride in strides])
        library = importlib.import_module(type(self.buffer).__module__.partition(".")[0])
        plain = place.dtype if hasattr(library, place.dtype) else f"uint{8 * size}"
        return library.lib.stride_tricks.as_strided(piece.view(plain), shape, strides)
