"""The device `cpu`: every operation is done when it is put on a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Event, Stream
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.guard import SyncGuard


class CpuDevice:
    """NumPy's memory, on which torch works too (`Arena.tensor`)."""

    name = "cpu"
    xp: Any = np

    def __init__(self) -> None:
        self._guard = SyncGuard()
        self._streams: dict[str, _Stream] = {}

    def alloc_device(self, nbytes: int) -> NDArray[np.uint8]:
        return allocate(nbytes)

    def alloc_host(self, nbytes: int) -> NDArray[np.uint8]:
        return allocate(nbytes)

    def stream(self, name: str) -> Stream:
        return self._streams.setdefault(name, _Stream(name, _Event(self._guard)))

    def copy_blocks(
        self,
        stream: Stream,
        dst: Arena,
        src: Arena,
        dst_offsets: NDArray[np.int64],
        src_offsets: NDArray[np.int64],
        nbytes: int,
    ) -> None:
        for to, at in zip(dst_offsets.tolist(), src_offsets.tolist()):
            dst.buffer[to : to + nbytes] = src.buffer[at : at + nbytes]

    def zero_blocks(
        self, stream: Stream, arena: Arena, offsets: NDArray[np.int64], nbytes: int
    ) -> None:
        for at in offsets.tolist():
            arena.buffer[at : at + nbytes] = 0

    def run(self, stream: Stream, fn: Callable[[], None]) -> None:
        fn()

    def upload(self, stream: Stream, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return array.copy()

    def download(self, stream: Stream, array: NDArray[Any]) -> _Download:
        return _Download(array.copy(), _Event(self._guard))

    def forbid_sync(self) -> AbstractContextManager[None]:
        return self._guard.forbid()

    def synchronize(self) -> None:
        self._guard.check()

    def close(self) -> None:
        """Nothing is ever under way."""


class _Event:
    def __init__(self, guard: SyncGuard) -> None:
        self._guard = guard

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        self._guard.check()


class _Stream:
    def __init__(self, name: str, event: _Event) -> None:
        self.name = name
        self._event = event

    def record(self) -> Event:
        return self._event

    def wait(self, event: Event) -> None:
        """All before this is done."""


class _Download:
    def __init__(self, array: NDArray[Any], event: _Event) -> None:
        self.event = event
        self._array = array

    def read(self) -> NDArray[Any]:
        return self._array


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes at an aligned address. Raises `DeviceFault`."""
    try:
        memory = np.zeros(nbytes + 64, dtype=np.uint8)
    except (MemoryError, ValueError) as error:  # the latter beyond what an address can be
        raise DeviceFault(f"no room for {nbytes} bytes of memory") from error
    first = -memory.ctypes.data % 64
    return memory[first : first + nbytes]
