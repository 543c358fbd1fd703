"""The kernels of `kernels/` on one card: loaded, and launched over grids that fit the work.

Nothing here waits for the device. Addresses are plain integers, of device memory or of pinned host
memory, which has the same address on both sides.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from tokenspeed.runtime.kernels import KERNELS, THREADS, TILE_BYTES, cubin

BUS_BYTES_IN_FLIGHT = 1 << 20
"""Of a copy across the bus, all thread blocks together: some ten times what hides the bus's delay
(2 µs at 60 GB/s are 120 kB), and still few enough to leave most of the card to a forward."""

THREAD_BLOCKS_PER_PROCESSOR = 8
"""All that a multiprocessor has room for, in copies and zeroing inside the card's memory."""

WARP = 32


class Launcher:
    """The kernels of the current device. Raises `DeviceFault` where they cannot be compiled."""

    def __init__(self) -> None:
        card = cupy.cuda.Device()
        self._processors = int(card.attributes["MultiProcessorCount"])
        self._functions: dict[str, Any] = {}
        for name, kernels in KERNELS.items():
            module = cupy.cuda.function.Module()
            module.load(cubin(name, f"sm_{card.compute_capability}"))
            for kernel in kernels:
                self._functions[kernel] = module.get_function(kernel)

    def zero_blocks(self, stream: Any, base: int, offsets: int, count: int, nbytes: int) -> None:
        """`nbytes` zeros at `base` + each of `count` int64 `offsets`, an array on the device."""
        grid = min(_tiles(count, nbytes), self._processors * THREAD_BLOCKS_PER_PROCESSOR)
        self._launch("zero_blocks", stream, grid, (THREADS, 1, 1), (base, offsets, count, nbytes))

    def copy_blocks(
        self,
        stream: Any,
        target: int,
        source: int,
        target_offsets: int,
        source_offsets: int,
        count: int,
        nbytes: int,
        crosses_bus: bool,
        bytes_in_flight: int = BUS_BYTES_IN_FLIGHT,
    ) -> None:
        """`nbytes` from `source` + each of `count` offsets to `target` + the offset of the same
        place; both lists are int64 arrays on the device."""
        grid = min(_tiles(count, nbytes), self._processors * THREAD_BLOCKS_PER_PROCESSOR)
        if crosses_bus:
            grid = min(grid, -(-bytes_in_flight // min(nbytes, TILE_BYTES)))
        self._launch(
            "copy_blocks",
            stream,
            grid,
            (THREADS, 1, 1),
            (target, source, target_offsets, source_offsets, count, nbytes),
        )

    def scatter_rows(self, stream: Any, *rows: int) -> None:
        """New rows into blocks; `rows` as the kernel takes them from `arena` on."""
        self._move_rows("scatter_rows", stream, rows)

    def gather_rows(self, stream: Any, *rows: int) -> None:
        """Rows out of blocks; `rows` as the kernel takes them from `arena` on."""
        self._move_rows("gather_rows", stream, rows)

    def _move_rows(self, name: str, stream: Any, rows: tuple[int, ...]) -> None:
        arena, dense, requests, positions, count, table, columns, start, stride, row, tokens = rows
        if not count:
            return
        per_block = THREADS // WARP
        grid = min(-(-count // per_block), self._processors * THREAD_BLOCKS_PER_PROCESSOR)
        arguments = (
            arena, dense, requests, positions, count, table, np.int32(columns),
            start, stride, row, np.int32(tokens),
        )  # fmt: skip
        self._launch(name, stream, grid, (WARP, per_block, 1), arguments)

    def _launch(
        self, name: str, stream: Any, grid: int, block: tuple[int, int, int], arguments: Any
    ) -> None:
        """`arguments`: plain numbers are passed in 64 bits, `numpy.int32` in 32."""
        wide = tuple(np.int64(one) if isinstance(one, int) else one for one in arguments)
        if grid:
            self._functions[name]((grid, 1, 1), block, wide, stream=stream)


def _tiles(count: int, nbytes: int) -> int:
    return count * -(-nbytes // TILE_BYTES)
