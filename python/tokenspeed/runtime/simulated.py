"""The device `simulated`: streams as queues whose operations really move bytes, late.

Nothing runs when it is put on a stream. Operations run when somebody waits for an event or asks
whether one is done, and then a seed chooses, step by step, among the streams whose next operation
no event holds back; a copy of many blocks is as many steps. So whatever fences leave open happens
one way or another, and a missing fence shows up as wrong bytes. The same seed and calls give the
same order, if the calls come from one thread.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.cpu import allocate
from tokenspeed.runtime.device import Event, Stream
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.guard import SyncGuard
from tokenspeed.runtime.staging import Staging, put

Pace = Literal["any", "copies last", "copies first", "forwards last"]
"""Which of the possible orders a device prefers: any, with one stream or another far ahead for a
while; block copies, uploads and downloads as late as fences allow; as early; forwards as late."""

PACES: tuple[Pace, ...] = ("any", "copies last", "copies first", "forwards last")

_STEPS_OF_A_MOOD = 40


@dataclass(eq=False)
class _Operation:
    """What is on a stream: `steps` is advanced until it ends."""

    kind: Literal["copy", "zero", "run", "record", "wait"]
    steps: Iterator[None]
    event: SimulatedEvent | None = None


class SimulatedEvent:
    """A point in a stream of a simulated device."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self.passed = False
        """The stream has come here."""
        self.seen = False
        """The host knows."""

    def done(self) -> bool:
        self._device.drift()
        self.seen |= self.passed
        return self.seen

    def wait(self) -> None:
        self._device.guard.check()
        self._device.pump_until(self)
        self.seen = True


class SimulatedStream:
    """A queue of a simulated device."""

    def __init__(self, device: SimulatedDevice, name: str) -> None:
        self.name = name
        self.queue: deque[_Operation] = deque()
        self.busy = False
        """One of its operations is running right now."""
        self.eagerness = 1.0
        """Its share of the steps, among the streams that can move."""
        self._device = device

    def record(self) -> Event:
        event = SimulatedEvent(self._device)
        self.put("record", iter(()), event)
        return event

    def wait(self, event: Event) -> None:
        assert isinstance(event, SimulatedEvent)
        if self.busy:
            self._device.pump_until(event)
        else:
            self.put("wait", iter(()), event)

    def put(self, kind: Any, steps: Iterator[None], event: SimulatedEvent | None = None) -> None:
        with self._device.lock:
            self.queue.append(_Operation(kind, steps, event))


class SimulatedDevice:
    """A device without hardware, for tests."""

    name = "simulated"
    xp: Any = np

    def __init__(self, seed: int, pace: Pace = "any") -> None:
        self.pace = pace
        self.guard = SyncGuard()
        self.lock = threading.RLock()
        self.staging = Staging(allocate)
        self._random = random.Random(seed)
        self._streams: dict[str, SimulatedStream] = {}
        self._steps = 0

    def alloc_device(self, nbytes: int) -> NDArray[np.uint8]:
        return allocate(nbytes)

    def alloc_host(self, nbytes: int) -> NDArray[np.uint8]:
        return allocate(nbytes)

    def stream(self, name: str) -> SimulatedStream:
        with self.lock:
            if name not in self._streams:
                self._streams[name] = SimulatedStream(self, name)
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
        pairs = list(zip(dst_offsets.tolist(), src_offsets.tolist()))
        self._random.shuffle(pairs)

        def steps() -> Iterator[None]:
            for to, at in pairs:
                dst.buffer[to : to + nbytes] = src.buffer[at : at + nbytes]
                yield

        self.stream(stream.name).put("copy", steps())

    def zero_blocks(
        self, stream: Stream, arena: Arena, offsets: NDArray[np.int64], nbytes: int
    ) -> None:
        firsts = offsets.tolist()

        def steps() -> Iterator[None]:
            for at in firsts:
                arena.buffer[at : at + nbytes] = 0
                yield

        self.stream(stream.name).put("zero", steps())

    def run(self, stream: Stream, fn: Callable[[], None]) -> None:
        def steps() -> Iterator[None]:
            fn()
            yield

        self.stream(stream.name).put("run", steps())

    def upload(self, stream: Stream, name: str, array: NDArray[Any]) -> NDArray[Any]:
        buffer = self.staging.take(name, array.nbytes)
        source = put(buffer, array)
        target = np.full_like(array, -1)

        def steps() -> Iterator[None]:
            target[...] = source
            yield

        self.stream(stream.name).put("copy", steps())
        self.staging.sent(name, buffer, stream.record())
        return target

    def download(self, stream: Stream, array: NDArray[Any]) -> _Download:
        arrived = np.full_like(array, -1)

        def steps() -> Iterator[None]:
            arrived[...] = array
            yield

        self.stream(stream.name).put("copy", steps())
        return _Download(arrived, stream.record())

    def forbid_sync(self) -> AbstractContextManager[None]:
        return self.guard.forbid()

    def synchronize(self) -> None:
        self.guard.check()
        for stream in list(self._streams.values()):
            stream.record().wait()

    def close(self) -> None:
        self.synchronize()

    def drift(self) -> None:
        """Time passes: none to a few steps run."""
        with self.lock:
            for _ in range(self._random.choice((0, 0, 0, 1, 2, 8))):
                if not self._step():
                    return

    def pump_until(self, event: SimulatedEvent) -> None:
        """Runs steps until the stream of `event` has come to it."""
        with self.lock:
            while not event.passed:
                if not self._step() and not event.passed:
                    raise DeviceFault("deadlock: every stream waits for another one")

    def _step(self) -> bool:
        """One step of one stream; false if none can move."""
        ready = self._ready()
        if not ready:
            return False
        stream = self._preferred(ready)
        operation = stream.queue[0]
        stream.busy = True
        try:
            next(operation.steps)
        except StopIteration:
            stream.queue.popleft()
        finally:
            stream.busy = False
        self._can_move(stream)
        return True

    def _ready(self) -> list[SimulatedStream]:
        """Streams with a step to run now. What one passes may let another one go on."""
        while True:
            before = sum(len(stream.queue) for stream in self._streams.values())
            ready = [stream for stream in self._streams.values() if self._can_move(stream)]
            if ready or before == sum(len(stream.queue) for stream in self._streams.values()):
                return ready

    def _can_move(self, stream: SimulatedStream) -> bool:
        """Passes what takes no time; whether there is a step to run now."""
        if stream.busy:
            return False
        while stream.queue:
            operation = stream.queue[0]
            if operation.kind == "record":
                assert operation.event is not None
                operation.event.passed = True
            elif operation.kind == "wait":
                assert operation.event is not None
                if not operation.event.passed:
                    return False
            else:
                return True
            stream.queue.popleft()
        return False

    def _preferred(self, ready: list[SimulatedStream]) -> SimulatedStream:
        first = [stream for stream in ready if self._goes_first(stream.queue[0])] or ready
        if self._steps % _STEPS_OF_A_MOOD == 0:
            for stream in self._streams.values():
                stream.eagerness = self._random.random() ** 4
        self._steps += 1
        return self._random.choices(first, [stream.eagerness for stream in first])[0]

    def _goes_first(self, operation: _Operation) -> bool:
        if self.pace == "copies first":
            return operation.kind == "copy"
        if self.pace == "copies last":
            return operation.kind != "copy"
        return self.pace == "any" or operation.kind != "run"


class _Download:
    """What the host may see of a copy: nothing of it before its event."""

    def __init__(self, arrived: NDArray[Any], event: Event) -> None:
        assert isinstance(event, SimulatedEvent)
        self.event = event
        self._arrived = arrived

    def read(self) -> NDArray[Any]:
        return self._arrived.copy() if self.event.seen else np.full_like(self._arrived, -1)
