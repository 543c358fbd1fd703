"""The one thread that touches a device, first in first out (runtime.md, "Two threads")."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ForwardThread:
    """Runs what it is given, in order, and answers through futures."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "tokenspeed-forward")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(work)

    def close(self) -> None:
        """Ends after what it has been given. Idempotent."""
        self._pool.shutdown(wait=True)


class CallersThread:
    """In place of a forward thread: the caller's own, so that a test plays the same every time."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Nothing is ever left to do."""
