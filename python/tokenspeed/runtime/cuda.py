"""The device `cuda`, on CuPy (runtime.md, "Devices").

Streams are CUDA streams that do not wait for the default one. What an operation needs on the device
is allocated on its own stream, from CuPy's pool, which hands freed memory to the same stream again
and to no other, so that the order of the stream protects it. What goes to the card lies in pinned
buffers first, which are not used again before their copy's event is done. No operation waits.

torch works on the same memory (`Arena.tensor`, by DLPack) and, inside `run`, on the same stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Event, Stream
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.guard import SyncGuard
from tokenspeed.runtime.runs import Runs
from tokenspeed.runtime.staging import Staging, put

COPY_ENGINE_BYTES = 1 << 20
"""Runs of at least so many bytes on average go one by one to the copy engine, which then needs no
multiprocessor; to start it costs about 2 µs, the time of some 100 kB. Shorter ones go to a kernel,
all in one launch."""


NEEDS_CUPY = "pip install 'tokenspeed-core[cu12]' or, for CUDA 13, 'tokenspeed-core[cu13]'"
"""What to do where CuPy cannot be imported."""


def why_missing() -> str | None:
    """Why there is no device `cuda` here, in words; None where there is one."""
    try:
        import cupy
    except ImportError as cause:
        return f"CuPy cannot be imported: {cause}; {NEEDS_CUPY}"
    try:
        return None if cupy.cuda.runtime.getDeviceCount() else "CuPy finds no GPU"
    except cupy.cuda.runtime.CUDARuntimeError as cause:
        return f"CuPy finds no GPU: {cause}"


class CudaDevice:
    """One GPU. Operations are for one thread, the forward thread; events and downloads for any."""

    name = "cuda"

    def __init__(self, index: int = 0) -> None:
        """`index`: which of the visible GPUs. Compiles the kernels, or loads them from the cache.

        Raises `DeviceFault` where there is no such GPU or the kernels cannot be compiled.
        """
        if reason := why_missing():
            raise DeviceFault(reason)
        import cupy

        from tokenspeed.runtime.launcher import Launcher

        self.xp: Any = cupy
        self.index = index
        self._runtime = cupy.cuda.runtime
        self._faults = (
            self._runtime.CUDARuntimeError,
            cupy.cuda.driver.CUDADriverError,
            cupy.cuda.memory.OutOfMemoryError,
        )
        self._guard = SyncGuard()
        self._streams: dict[str, _Stream] = {}
        self._staging = Staging(self.alloc_host)
        with self._reports(f"GPU {index}"):
            self._card = cupy.cuda.Device(index)
            with self._card:
                self.launcher = Launcher()

    def alloc_device(self, nbytes: int) -> Any:
        with self._reports(f"{nbytes} bytes on the device"), self._card:
            memory = self.xp.zeros(nbytes, dtype=np.uint8)
            self.xp.cuda.get_current_stream().synchronize()
            return memory

    def alloc_host(self, nbytes: int) -> NDArray[np.uint8]:
        cuda = self.xp.cuda
        with self._reports(f"{nbytes} bytes of pinned memory"), self._card:
            pinned = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(nbytes, 1)), 0)
        memory = np.frombuffer(pinned, dtype=np.uint8, count=nbytes)
        memory[...] = 0
        return memory

    def stream(self, name: str) -> _Stream:
        if name not in self._streams:
            with self._card:
                raw = self.xp.cuda.Stream(non_blocking=True)
            self._streams[name] = _Stream(name, raw, self)
        return self._streams[name]

    def copy_blocks(
        self,
        stream: Stream,
        dst: Arena,
        src: Arena,
        dst_offsets: NDArray[np.int64],
        src_offsets: NDArray[np.int64],
        nbytes: int,
    ) -> None:
        if not len(dst_offsets) or not nbytes:
            return
        raw = _raw(stream)
        target, source = self._address(dst), self._address(src)
        runs = Runs.of(dst_offsets, src_offsets, nbytes)
        with self._card:
            if runs.mean_nbytes >= COPY_ENGINE_BYTES:
                kind = self._runtime.memcpyDefault
                for to, at, length in runs:
                    self._runtime.memcpyAsync(target + to, source + at, length, kind, raw.ptr)
                return
            both = self._upload(raw, "offsets", np.stack([dst_offsets, src_offsets]))
            self.launcher.copy_blocks(
                raw,
                target,
                source,
                both[0].data.ptr,
                both[1].data.ptr,
                len(dst_offsets),
                nbytes,
                crosses_bus=type(dst.buffer) is not type(src.buffer),
            )

    def zero_blocks(
        self, stream: Stream, arena: Arena, offsets: NDArray[np.int64], nbytes: int
    ) -> None:
        if not len(offsets) or not nbytes:
            return
        raw = _raw(stream)
        with self._card:
            where = self._upload(raw, "offsets", offsets)
            self.launcher.zero_blocks(
                raw, self._address(arena), where.data.ptr, len(offsets), nbytes
            )

    def run(self, stream: Stream, fn: Callable[[], None]) -> None:
        assert isinstance(stream, _Stream)
        with self._card, stream.raw, stream.torch_stream():
            fn()

    def upload(self, stream: Stream, name: str, array: NDArray[Any]) -> Any:
        with self._card:
            return self._upload(_raw(stream), name, array)

    def download(self, stream: Stream, array: Any) -> _Download:
        raw = _raw(stream)
        with self._card, raw:
            source = self.xp.ascontiguousarray(self.xp.asarray(array))
            buffer = self._staging.take("download", source.nbytes)
            if source.nbytes:
                kind = self._runtime.memcpyDeviceToHost
                to = buffer.ctypes.data
                self._runtime.memcpyAsync(to, source.data.ptr, source.nbytes, kind, raw.ptr)
        return _Download(_Event(raw, self), source, buffer, self._staging)

    def forbid_sync(self) -> AbstractContextManager[None]:
        return self._guard.forbid()

    def synchronize(self) -> None:
        self._guard.check()
        with self._reports("waiting"), self._card:
            self._runtime.deviceSynchronize()

    def close(self) -> None:
        self.synchronize()
        self._streams.clear()
        self._staging = Staging(self.alloc_host)
        self.xp.get_default_memory_pool().free_all_blocks()

    def _upload(self, raw: Any, name: str, array: NDArray[Any]) -> Any:
        buffer = self._staging.take(name, array.nbytes)
        staged = put(buffer, array)
        with raw:
            held = self.xp.empty(array.shape, array.dtype)
            if array.nbytes:
                kind = self._runtime.memcpyHostToDevice
                at = staged.ctypes.data
                self._runtime.memcpyAsync(held.data.ptr, at, array.nbytes, kind, raw.ptr)
        self._staging.sent(name, buffer, _Event(raw, self))
        return held

    def _address(self, arena: Arena) -> int:
        """Where an arena starts. A kernel that is given pageable memory faults: it is refused."""
        if isinstance(arena.buffer, self.xp.ndarray):
            return int(arena.buffer.data.ptr)
        address = int(arena.buffer.ctypes.data)
        if self._runtime.pointerGetAttributes(address).type != self._runtime.memoryTypeHost:
            raise DeviceFault("a host arena has to lie in memory of alloc_host")
        return address

    @contextmanager
    def _reports(self, what: str) -> Iterator[None]:
        """Turns what CUDA says into a `DeviceFault`."""
        try:
            yield
        except self._faults as cause:
            raise DeviceFault(f"the device refuses {what}: {cause}") from cause


class _Stream:
    def __init__(self, name: str, raw: Any, device: CudaDevice) -> None:
        self.name = name
        self.raw = raw
        self._device = device
        self._of_torch: Any = None

    def record(self) -> _Event:
        return _Event(self.raw, self._device)

    def torch_stream(self) -> AbstractContextManager[Any]:
        """Makes this the stream that torch works on, once torch is there and sees the GPU."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return nullcontext()
        if self._of_torch is None:
            self._of_torch = torch.cuda.ExternalStream(self.raw.ptr, device=self._device.index)
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._of_torch)
        return stream

    def wait(self, event: Event) -> None:
        assert isinstance(event, _Event)
        self.raw.wait_event(event.raw)


class _Event:
    def __init__(self, stream: Any, device: CudaDevice) -> None:
        self._device = device
        with device._card:
            self.raw = device.xp.cuda.Event(disable_timing=True)
            self.raw.record(stream)

    def done(self) -> bool:
        with self._device._reports("an operation"):
            return bool(self.raw.done)

    def wait(self) -> None:
        self._device._guard.check()
        with self._device._reports("an operation"):
            self.raw.synchronize()


class _Download:
    def __init__(
        self, event: _Event, source: Any, buffer: NDArray[np.uint8], staging: Staging
    ) -> None:
        self.event = event
        self._source = source  # lives until it has been copied
        self._buffer = buffer
        self._staging = staging

    def read(self) -> NDArray[Any]:
        shape, dtype, nbytes = self._source.shape, self._source.dtype, self._source.nbytes
        array: NDArray[Any] = self._buffer[:nbytes].view(dtype).reshape(shape).copy()
        self._staging.sent("download", self._buffer, self.event)
        return array


def _raw(stream: Stream) -> Any:
    """CuPy's stream."""
    assert isinstance(stream, _Stream)
    return stream.raw
