"""The kernels' own source, compiled as C++ and run on the CPU, thread after thread."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime import kernels

HEADER = Path(__file__).with_name("cuda_on_cpu.h")

COMPILER = shutil.which("c++")

INT_PARAMETERS = {"scatter_rows": (6, 10), "gather_rows": (6, 10)}
"""Which parameters of a kernel are `int`; all others are 64 bits wide."""


class _Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


@dataclass(frozen=True)
class Counts:
    """What one launch did to memory through the streaming loads and stores."""

    bytes_loaded: int
    bytes_stored: int
    accesses: int
    misaligned: int


class Emulator:
    """The kernels of one file of `kernels.KERNELS`."""

    def __init__(self, name: str, directory: Path) -> None:
        """Compiles the file into `directory`."""
        assert COMPILER
        library = directory / f"{Path(name).stem}.so"
        source = kernels.sources() / name
        flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-x", "c++", "-include"]
        command = [COMPILER, *flags, str(HEADER), str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(library))

    def launch(
        self, kernel: str, grid: int, block: tuple[int, int], *arguments: int | NDArray[Any]
    ) -> Counts:
        """Runs a kernel; arrays are passed as their addresses."""
        self._dim("gridDim", grid, 1)
        self._dim("blockDim", *block)
        counters = ("bytes_loaded", "bytes_stored", "accesses", "misaligned")
        cells = [ctypes.c_longlong.in_dll(self._library, name) for name in counters]
        for cell in cells:
            cell.value = 0
        ints = INT_PARAMETERS.get(kernel, ())
        passed = [
            ctypes.c_int(value)
            if at in ints
            else ctypes.c_longlong(value.ctypes.data if isinstance(value, np.ndarray) else value)
            for at, value in enumerate(arguments)
        ]
        run = getattr(self._library, kernel)
        for of_grid, y, x in itertools.product(range(grid), range(block[1]), range(block[0])):
            self._dim("blockIdx", of_grid, 0)
            self._dim("threadIdx", x, y)
            run(*passed)
        return Counts(*(cell.value for cell in cells))


    def _dim(self, name: str, x: int, y: int) -> None:
        dim = _Dim3.in_dll(self._library, name)
        dim.x, dim.y, dim.z = x, y, 1
