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
from tokenspeed.runtime import kernels

HEADER = Path(__file__).with_name("cuda_on_cpu.h")

COMPILER = shutil.which("c++")


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

    def launch(self, kernel: str, grid: int, block: tuple[int, int], *arguments: Any) -> Counts:
        """Runs a kernel. Its arguments are as CuPy takes them: a plain number is 64 bits wide,
        `numpy.int32` an int; and arrays, which are passed as their addresses."""
        self._dim("gridDim", grid, 1)
        self._dim("blockDim", *block)
        counters = ("bytes_loaded", "bytes_stored", "accesses", "misaligned")
        cells = [ctypes.c_longlong.in_dll(self._library, name) for name in counters]
        for cell in cells:
            cell.value = 0
        passed = [_passed(value) for value in arguments]
        run = getattr(self._library, kernel)
        for of_grid, y, x in itertools.product(range(grid), range(block[1]), range(block[0])):
            self._dim("blockIdx", of_grid, 0)
            self._dim("threadIdx", x, y)
            run(*passed)
        return Counts(*(cell.value for cell in cells))

    def _dim(self, name: str, x: int, y: int) -> None:
        dim = _Dim3.in_dll(self._library, name)
        dim.x, dim.y, dim.z = x, y, 1


def _passed(value: Any) -> Any:
    if isinstance(value, np.int32):
        return ctypes.c_int(int(value))
    return ctypes.c_longlong(value.ctypes.data if isinstance(value, np.ndarray) else int(value))
