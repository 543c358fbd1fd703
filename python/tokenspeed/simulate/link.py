"""One direction of the link between the device and the host, and the copies on it."""

from __future__ import annotations

from collections import deque


class Link:
    """Carries copies one after the other, each at the link's full bandwidth."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.free_at_s = 0.0
        """When the last copy queued is done, in seconds."""
        self._copies: deque[tuple[float, int]] = deque()
        """(the moment it is done in seconds, operation id), first to be done first."""

    def copy(self, op_id: int, num_bytes: int, now_s: float) -> float:
        """Queues a copy at `now_s`; returns the moment, in seconds, at which it is done."""
        self.free_at_s = max(self.free_at_s, now_s) + num_bytes / self._bytes_per_s
        self._copies.append((self.free_at_s, op_id))
        return self.free_at_s

    def next_done_s(self) -> float:
        """When the next copy is done; infinity if none is under way."""
        return self._copies[0][0] if self._copies else float("inf")

    def take_done(self, now_s: float) -> list[int]:
        """The operations that are done by `now_s`, each told once."""
        done = []
        while self._copies and self._copies[0][0] <= now_s:
            done.append(self._copies.popleft()[1])
        return done

    def __len__(self) -> int:
        return len(self._copies)
