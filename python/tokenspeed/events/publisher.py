"""The engine's side: cache events to whoever subscribes, and replays of what they missed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from numbers import Integral, Real
from queue import Queue
from types import TracebackType
from typing import get_args

import zmq

from tokenspeed.events import wire
from tokenspeed.events.endpoint import bind
from tokenspeed.scheduler import KVEvent, Scheduler

_COUNT_MAX = 2**31 - 1
"""What ZeroMQ counts with."""
_SECONDS_MAX = _COUNT_MAX // 1000
"""ZeroMQ takes milliseconds, and -1 for no end."""

_Drained = Sequence[KVEvent.BlockStored | KVEvent.BlockRemoved] | None


class KvEventPublisher:
    """Publishes a scheduler's cache events over ZeroMQ (`tokenspeed.events.wire`).

    `publish` never waits: it drains the scheduler into a queue, and a thread of the publisher's own
    encodes and sends. While the queue is full it drains nothing, and the scheduler keeps the net
    change, so that nothing is lost and nothing grows. A subscriber that is too slow loses batches,
    sees the gap in their numbers, and asks for them again at the replay endpoint.

    The first batch says that everything is gone: whoever listened to a former engine at this
    endpoint forgets what that one had. Begin before the first `drain_kv_events` of the scheduler.
    """

    def __init__(
        self,
        endpoint: str = "tcp://*:5557",
        *,
        replay_endpoint: str | None = None,
        topic: str = "",
        data_parallel_rank: int | None = None,
        layout: wire.Layout = "map",
        buffer_batches: int = 10_000,
        queue_batches: int = 1_000,
        high_water_mark: int = 100_000,
        linger_s: float = 1.0,
    ) -> None:
        """Binds both endpoints, in the syntax of ZeroMQ (``tcp://*:5557``). Raises `zmq.ZMQError`
        if it cannot, and `ValueError` naming an argument of the wrong type or out of its range.

        `buffer_batches` are kept for replays. `queue_batches`, 1 or more, may wait to be encoded.
        `high_water_mark` is how many batches may wait for a slow subscriber before it loses some;
        0: without a bound. `linger_s` is how long `close` waits for the last batches to leave, in
        seconds. `layout` is how events are written: see `wire`.
        """
        if not isinstance(topic, str):
            raise ValueError(f"topic = {topic!r:.80}: topic is a text")
        layouts = get_args(wire.Layout)
        if layout not in layouts:
            raise ValueError(f"layout = {layout!r}: it is one of {', '.join(layouts)}")
        self._topic = topic.encode()
        self._rank = data_parallel_rank
        self._layout = layout
        self._linger_ms = _milliseconds("linger_s", linger_s)
        kept = _count("buffer_batches", buffer_batches, 0)
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self._buffer_lock = threading.Lock()
        self._queue: Queue[tuple[float, _Drained] | None] = Queue(
            _count("queue_batches", queue_batches, 1)  # one of 0 would have no bound
        )
        mark = _count("high_water_mark", high_water_mark, 0)
        self._publish_lock = threading.Lock()
        self._failure: BaseException | None = None
        self._closed = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._threads = []
        try:
            stream = self._context.socket(zmq.PUB)
            stream.set_hwm(mark)
            self.endpoint = bind(stream, endpoint)
            self._threads.append(self._thread("stream", self._stream, stream))
            self.replay_endpoint = None
            if replay_endpoint is not None:
                replay = self._context.socket(zmq.ROUTER)
                # A router drops what is beyond its mark; what it answers is bounded by the buffer.
                replay.set_hwm(0)
                self.replay_endpoint = bind(replay, replay_endpoint)
                self._threads.append(self._thread("replay", self._answer, replay))
        except (ValueError, zmq.ZMQError):
            self._context.destroy(linger=0)
            raise
        self._queue.put((time.time(), None))
        for thread in self._threads:
            thread.start()

    endpoint: str
    """Where it publishes, a wildcard port resolved."""
    replay_endpoint: str | None
    """Where it replays, a wildcard port resolved; None if nowhere."""

    def publish(self, scheduler: Scheduler) -> int:
        """Drains the scheduler's events and hands them on, without waiting; how many.

        0 too while the queue is full: the events stay with the scheduler until a later call. 0
        always for a scheduler without `enable_kv_cache_events`.
        """
        with self._publish_lock:
            if self._failure is not None:
                raise RuntimeError("the event publisher broke off") from self._failure
            if self._closed or self._queue.full():
                return 0
            events = scheduler.drain_kv_events()
            if events:
                self._queue.put_nowait((time.time(), events))
            return len(events)

    def close(self) -> None:
        """Sends what is queued, waits `linger_s` at most for it to leave, and unbinds."""
        with self._publish_lock:
            if self._closed:
                return
            self._closed = True
        self._queue.put(None)
        self._threads[0].join()
        self._context.term()  # which ends the replay thread

    def __enter__(self) -> KvEventPublisher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = f"endpoint={self.endpoint!r}, replay_endpoint={self.replay_endpoint!r}"
        return f"<KvEventPublisher: {where}{', closed' if self._closed else ''}>"

    def _thread(
        self, name: str, work: Callable[..., None], socket: zmq.Socket[bytes]
    ) -> threading.Thread:
        return threading.Thread(name=f"kv-events-{name}", target=work, args=(socket,), daemon=True)

    def _stream(self, socket: zmq.Socket[bytes]) -> None:
        sequence = 0
        try:
            while (drained := self._queue.get()) is not None:
                timestamp_s, events = drained
                payload = wire.encode(timestamp_s, events, self._rank, self._layout)
                with self._buffer_lock:
                    # Before it is sent: who sees a batch may ask for it.
                    self._buffer.append((sequence, payload))
                socket.send_multipart((self._topic, wire.frame(sequence), payload))
                sequence += 1
        except BaseException as error:
            self._failure = error
            while self._queue.get() is not None:  # nobody waits for a thread that is gone
                pass
        finally:
            socket.close(self._linger_ms)

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        try:
            while True:
                *envelope, start = socket.recv_multipart()
                if len(start) != wire.SEQUENCE_BYTES:
                    continue  # no such question
                for sequence, payload in self._kept(wire.number(start)):
                    socket.send_multipart([*envelope, wire.frame(sequence), payload])
                socket.send_multipart([*envelope, wire.END, b""])
        except zmq.ContextTerminated:
            pass
        finally:
            socket.close(linger=0)

    def _kept(self, start: int) -> list[tuple[int, bytes]]:
        with self._buffer_lock:
            first = self._buffer[0][0] if self._buffer else 0
            return list(islice(self._buffer, max(0, start - first), None))


def _count(name: str, given: int, least: int) -> int:
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not whole or not least <= given <= _COUNT_MAX:
        raise ValueError(
            f"{name} = {given!r:.80}: {name} is a whole number, {least} to {_COUNT_MAX}"
        )
    return int(given)


def _milliseconds(name: str, given: float) -> int:
    number = isinstance(given, Real) and not isinstance(given, bool)
    if not number or not 0 <= given <= _SECONDS_MAX:
        raise ValueError(
            f"{name} = {given!r:.80}: {name} is a number of seconds, 0 to {_SECONDS_MAX}"
        )
    return int(given * 1000)
