"""The guard that keeps a thread from waiting for the device (runtime.md, "Two threads")."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tokenspeed.runtime.errors import SyncForbidden


class SyncGuard:
    """Whether this thread is inside a round."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def forbid(self) -> Iterator[None]:
        depth = getattr(self._of_thread, "depth", 0)
        self._of_thread.depth = depth + 1
        try:
            yield
        finally:
            self._of_thread.depth = depth

    def check(self) -> None:
        """Raises `SyncForbidden` inside `forbid`."""
        if getattr(self._of_thread, "depth", 0):
            raise SyncForbidden("a wait for the device inside a round")
