"""What the runtime asks of a device (runtime.md, "Devices").

An operation is put on a stream and returns at once; operations of one stream run in their order,
those of different streams in any order that events do not forbid. Host memory written by an
operation may be read once an event recorded behind it has been waited for, or was seen done.

Arrays "of the device" are those of `Device.xp`: NumPy on `cpu` and `simulated`, CuPy on `cuda`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena


class Event(Protocol):
    """A point in a stream."""

    def done(self) -> bool:
        """Whether all before it has run; never blocks."""
        ...

    def wait(self) -> None:
        """Blocks the host until it is done. Raises `SyncForbidden` under `Device.forbid_sync`, and
        `DeviceFault` if the device failed."""
        ...


class Stream(Protocol):
    """A queue of operations on the device."""

    @property
    def name(self) -> str: ...

    def record(self) -> Event:
        """An event behind everything put on this stream so far."""
        ...

    def wait(self, event: Event) -> None:
        """Whatever is put on this stream from now on runs after `event`; never blocks the host.
        Inside a function given to `Device.run`, its own later operations wait."""
        ...


class Download(Protocol):
    """A copy from the device on its way to the host."""

    @property
    def event(self) -> Event:
        """Done when the copy is."""
        ...

    def read(self) -> NDArray[Any]:
        """The copy, to keep. Only after `event`; once."""
        ...


class Device(Protocol):
    """Memory, streams and the few operations that a round is made of."""

    @property
    def name(self) -> str:
        """`cuda`, `cpu` or `simulated`, as in the option that chooses it."""
        ...

    @property
    def xp(self) -> Any:
        """The array library of the device's memory: the module numpy or cupy."""
        ...

    def alloc_device(self, nbytes: int) -> Any:
        """Zeroed bytes on the device: a uint8 array of `xp`. Raises `DeviceFault`."""
        ...

    def alloc_host(self, nbytes: int) -> NDArray[np.uint8]:
        """Zeroed host bytes that the device copies to and from at full speed (pinned on cuda).
        Raises `DeviceFault`."""
        ...

    def stream(self, name: str) -> Stream:
        """The stream of that name, made at first use."""
        ...

    def copy_blocks(
        self,
        stream: Stream,
        dst: Arena,
        src: Arena,
        dst_offsets: NDArray[np.int64],
        src_offsets: NDArray[np.int64],
        nbytes: int,
    ) -> None:
        """Puts on `stream`: for each i, `nbytes` bytes from `src_offsets[i]` of `src` to
        `dst_offsets[i]` of `dst`. One arena is on the device and one in host memory, or both on
        the device. Offsets are in bytes, multiples of 16, on the host, and not kept."""
        ...

    def zero_blocks(
        self, stream: Stream, arena: Arena, offsets: NDArray[np.int64], nbytes: int
    ) -> None:
        """Puts on `stream`: `nbytes` zero bytes at each of `offsets` of a device arena."""
        ...

    def run(self, stream: Stream, fn: Callable[[], None]) -> None:
        """Puts on `stream` what `fn` does to the device's memory, in its place among the stream's
        operations. `fn` may be called now, putting work on the stream as it goes (cuda, cpu), or
        when its turn has come (simulated); with `stream` current for `xp` and torch; exactly once.
        It must not raise: who runs a model catches."""
        ...

    def upload(self, stream: Stream, name: str, array: NDArray[Any]) -> Any:
        """Puts on `stream` a copy of `array` to the device, and gives the device array that will
        hold it for operations put on `stream` later, until the caller drops it. `array` is read
        before this returns; the copy goes through a staging buffer of that `name`, which is not
        used again while its copy is in flight."""
        ...

    def download(self, stream: Stream, array: Any) -> Download:
        """Puts on `stream` a copy of a device array to the host."""
        ...

    def forbid_sync(self) -> AbstractContextManager[None]:
        """Inside it, this thread may not wait for the device: `Event.wait` raises
        `SyncForbidden`."""
        ...

    def synchronize(self) -> None:
        """Blocks until all streams are empty: for start and shutdown."""
        ...

    def close(self) -> None:
        """Waits for what is under way and frees what the device holds. Idempotent."""
        ...
