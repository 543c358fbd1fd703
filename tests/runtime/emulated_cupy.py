"""As much of CuPy as the device `cuda` uses, on NumPy, with kernels run by the emulator.

Streams do everything at once, so that this says nothing about order: it runs the Python of the
device, its addresses and arguments, and the kernels' own source, where there is no GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from tokenspeed.runtime import kernels

from tests.runtime.emulator import Emulator

HOST, DEVICE = 1, 2
"""Types of memory, as CUDA numbers them."""


class Array(np.ndarray):
    """An array "on the device"."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


Array.__module__ = "numpy"  # where `Arena` looks for the array's library


def on_device(array: Any) -> Array:
    return np.asarray(array).view(Array)


class Stream:
    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        assert event.recorded

    def synchronize(self) -> None:
        pass


class Event:
    def __init__(self, disable_timing: bool = False) -> None:
        self.recorded = False
        self.timed = not disable_timing

    def record(self, stream: Stream) -> None:
        self.recorded = True

    @property
    def done(self) -> bool:
        return self.recorded

    def synchronize(self) -> None:
        assert self.recorded


class Card:
    compute_capability = "90"
    attributes: ClassVar[dict[str, int]] = {"MultiProcessorCount": 1}

    def __init__(self, index: int = 0) -> None:
        pass

    def __enter__(self) -> Card:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Pinned:
    """Pinned memory, known by its address."""

    addresses: ClassVar[set[int]] = set()

    def __init__(self, nbytes: int) -> None:
        self.memory = ctypes.create_string_buffer(nbytes + 64)
        self.first = -ctypes.addressof(self.memory) % 64
        self.addresses.add(ctypes.addressof(self.memory) + self.first)


def _pointer(pinned: Pinned, offset: int) -> memoryview:
    return memoryview(pinned.memory)[pinned.first + offset :]


class Function:
    def __init__(self, emulator: Emulator, kernel: str) -> None:
        self._emulator = emulator
        self._kernel = kernel

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: tuple[Any, ...],
        stream: Stream,
    ) -> None:
        assert block[0] * block[1] <= kernels.THREADS and grid[1:] == (1, 1) and block[2] == 1
        self._emulator.launch(self._kernel, grid[0], block[:2], *arguments)


def _copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    ctypes.memmove(target, source, nbytes)


def _elapsed_ms(start: Event, end: Event) -> float:
    assert start.recorded and end.recorded and start.timed and end.timed
    return 1.0


class Fault(Exception):
    """What CUDA would raise."""


def emulated_cupy(directory: Path) -> ModuleType:
    """A module to stand in for `cupy`; what it compiles goes into `directory`."""

    class Module:
        def load(self, code: bytes) -> None:
            self._emulator = Emulator(code.decode(), directory)

        def get_function(self, kernel: str) -> Function:
            return Function(self._emulator, kernel)

    cupy: Any = ModuleType("cupy")
    cupy.__getattr__ = lambda name: getattr(np, name)
    cupy.__version__ = "emulated"
    cupy.ndarray = Array
    cupy.zeros = lambda *args, **kwargs: on_device(np.zeros(*args, **kwargs))
    cupy.empty = lambda *args, **kwargs: on_device(np.empty(*args, **kwargs))
    cupy.asarray = lambda array: on_device(array)
    cupy.ascontiguousarray = lambda array: on_device(np.ascontiguousarray(array))
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    cupy.cuda = SimpleNamespace(
        Device=Card,
        Event=Event,
        PinnedMemory=Pinned,
        PinnedMemoryPointer=_pointer,
        Stream=Stream,
        driver=SimpleNamespace(CUDADriverError=Fault),
        function=SimpleNamespace(Module=Module),
        get_current_stream=Stream,
        get_elapsed_time=_elapsed_ms,
        memory=SimpleNamespace(OutOfMemoryError=Fault),
        runtime=SimpleNamespace(
            CUDARuntimeError=Fault,
            deviceSynchronize=lambda: None,
            driverGetVersion=lambda: 0,
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda index: {"name": b"no GPU"},
            memcpyAsync=_copy,
            memcpyDefault=4,
            memcpyDeviceToHost=2,
            memcpyHostToDevice=1,
            memoryTypeHost=HOST,
            runtimeGetVersion=lambda: 0,
            pointerGetAttributes=lambda address: SimpleNamespace(
                type=HOST if address in Pinned.addresses else 0
            ),
        ),
    )
    return cupy  # type: ignore[no-any-return]


@contextlib.contextmanager
def emulation(directory: Path) -> Iterator[None]:
    """Inside it, `cupy` is the emulated one, and nothing is compiled for a GPU."""
    import sys

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", emulated_cupy(directory))
        patch.delitem(sys.modules, "tokenspeed.runtime.launcher", raising=False)
        patch.setattr(kernels, "cubin", lambda name, architecture: name.encode())
        yield
    sys.modules.pop("tokenspeed.runtime.launcher", None)
