"""A consumer's side: batches in order, gaps mended by replay."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

import zmq
from zmq.utils.monitor import parse_monitor_message

from tokenspeed.events import wire
from tokenspeed.events.endpoint import connect
from tokenspeed.events.wire import Batch


class KvEventSubscriber:
    """Receives an engine's cache events (`tokenspeed.events.wire`), each batch once and in order.

    With a replay endpoint it begins with the oldest batch that the publisher keeps, asks for what a
    gap in the numbers shows to be lost, and asks whether it missed something after a second of
    silence and after a lost connection. What nobody has any more is counted in `Batch.missed`. An
    engine that begins anew at the same endpoint is followed: its first batch says that everything
    is gone. Without a replay endpoint all before a lost connection counts as missed.
    """

    silence_s = 1.0
    """Seconds without a batch after which it asks for one."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str | None = None,
        *,
        topic: str = "",
        replay_timeout_s: float = 5.0,
    ) -> None:
        """Connects; raises ValueError for what is no endpoint, like ``tcp://host:5557``.

        `topic` is a prefix of the topics wanted. `replay_timeout_s` is how long to wait for a batch
        that was asked for, in seconds; then it counts as missed.
        """
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._stream = self._context.socket(zmq.SUB)
        self._stream.set_hwm(0)
        # A connection that met an engine on its way out is given up soon, not in half a minute.
        self._stream.handshake_ivl = 1000  # ms
        self._stream.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._link = self._stream.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        )
        """Says when the connection was lost, and made again: perhaps to another engine."""
        self._lost = self._back = False
        try:
            connect(self._stream, endpoint)
        except (ValueError, zmq.ZMQError):
            self.close()
            raise
        self._replay_endpoint = replay_endpoint
        self._replay_timeout_ms = int(replay_timeout_s * 1000)
        self._ready: deque[Batch] = deque()
        self._next = 0
        """Number of the batch to come."""
        self._last_s = float("-inf")
        """Timestamp of the one before."""
        self._began = False
        self._heard_s = time.monotonic()
        """When a batch last came or was asked for."""

    def receive(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch; None if none comes in that many seconds. Raises `msgspec.DecodeError` for
        what is no batch, `ValueError` for a replay endpoint that is none.

        Takes up to `replay_timeout_s` longer where the replay endpoint does not answer.
        """
        if not self._began:
            self._began = True
            self._recover()
        end_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not self._ready:
            left_s = max(0.0, end_s - time.monotonic())
            if self._stream.poll(int(min(left_s, self.silence_s) * 1000)):
                self._heard_s = time.monotonic()
                batch = wire.decode(self._stream.recv_multipart())
                if self._is_doubtful():
                    self._doubt()
                self._take(batch)
            elif time.monotonic() - self._heard_s >= self.silence_s:
                self._recover()
                self._heard_s = time.monotonic()
            elif left_s == 0:
                return None
        return self._ready.popleft()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self.receive()
            if batch is not None:
                yield batch

    def close(self) -> None:
        """Disconnects."""
        self._context.destroy(linger=0)

    def __enter__(self) -> KvEventSubscriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _is_doubtful(self) -> bool:
        """Whether the batch that came may be of another connection than the one before it: from the
        next connection on, until nothing is left that may have come before it."""
        while self._link.poll(0):
            event = parse_monitor_message(self._link.recv_multipart())["event"]
            self._back = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._lost = self._lost or not self._back
        doubtful = self._lost and self._back
        if self._back and not self._stream.poll(0):
            self._lost = False
        return doubtful

    def _doubt(self) -> None:
        """Behind a lost connection: whether the last batch was still the same engine's."""
        if self._replay_endpoint is None:
            self._next = 0
        else:
            self._recover()

    def _take(self, batch: Batch) -> None:
        if batch.sequence < self._next:
            if batch.timestamp_s <= self._last_s:
                return  # a replay has brought it already
            self._next = 0  # another engine, which counts anew
        if batch.sequence > self._next:
            self._recover()
        if batch.sequence >= self._next:
            self._append(batch)

    def _append(self, batch: Batch) -> None:
        self._ready.append(replace(batch, missed=batch.sequence - self._next))
        self._next = batch.sequence + 1
        self._last_s = batch.timestamp_s

    def _recover(self) -> None:
        """Asks for the batches that came since the last one, and whether that one is still the last
        engine's."""
        if self._replay_endpoint is None:
            return
        endpoint = self._replay_endpoint
        batches = self._replayed(endpoint, max(self._next - 1, 0))
        if batches is not None and self._next and not self._is_followed_by(batches):
            self._next = 0
            batches = self._replayed(endpoint, 0)
        for batch in batches or ():
            if batch.sequence >= self._next:
                self._append(batch)

    def _is_followed_by(self, batches: list[Batch]) -> bool:
        """Whether these are of the engine of the last batch. It would have that one still, or later
        ones if it keeps few; another counts anew."""
        if not batches:
            return False
        first = batches[0]
        if first.sequence == self._next - 1:
            return first.timestamp_s == self._last_s
        return first.timestamp_s > self._last_s

    def _replayed(self, endpoint: str, first: int) -> list[Batch] | None:
        """The batches that the publisher keeps, from a number on; None where it does not answer to
        the end."""
        batches: list[Batch] = []
        with self._context.socket(zmq.DEALER) as socket:
            socket.set_hwm(0)
            socket.linger = 0
            connect(socket, endpoint)
            socket.send_multipart([b"", wire.frame(first)])
            while socket.poll(self._replay_timeout_ms):
                frames = socket.recv_multipart()
                if frames[1:2] == [wire.END]:
                    return batches
                batches.append(wire.decode(frames))
        return None
