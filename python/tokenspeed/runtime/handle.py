"""All that the control side may ask of a device (runtime.md, "Two threads")."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.device import Device
from tokenspeed.runtime.executor import Launched, RoundExecutor
from tokenspeed.runtime.forward_thread import CallersThread, ForwardThread
from tokenspeed.runtime.rounds import Round
from tokenspeed.runtime.transfer import Acknowledgement


@dataclass(frozen=True)
class Landed:
    """What a forward gave."""

    counts: NDArray[np.int32]
    """[R]: tokens of each request; 0 for a chunk that does not complete its prompt."""
    tokens: NDArray[np.int32]
    """[R, width]: the first `counts` of each row. Behind the one of a prompt that completes stand
    the drafter's guesses."""
    failure: Exception | None
    """What the model raised, if it did; then there are no tokens."""


class Submission:
    """A round given to the forward thread: the only way back from there."""

    def __init__(self, round_: Round, future: Future[Launched]) -> None:
        self.round = round_
        self._future = future
        self._owed: list[Acknowledgement] | None = None

    def acknowledged(self) -> list[Acknowledgement]:
        """Copies of this round that are over and were not told before. Never blocks."""
        if self._owed is None:
            if not self._future.done():
                return []
            self._owed = list(self._future.result().acknowledgements)
        over = [one for one in self._owed if one.event.done()]
        if over:
            self._owed = [one for one in self._owed if one not in over]
        return over

    @property
    def owes_copies(self) -> bool:
        """Whether a copy of this round has not been told as over."""
        if self._owed is None:
            round_ = self.round
            return bool(round_.ordered_stores or round_.pinned_stores or round_.loads)
        return bool(self._owed)

    def wait_for_copies(self) -> None:
        """Blocks until a copy that is owed is over: the first one launched."""
        owed = self._future.result().acknowledgements if self._owed is None else self._owed
        if owed:
            owed[0].event.wait()

    def wait_for_results(self) -> Landed:
        """Blocks until the round's forward is over. Raises what the forward thread raised."""
        launched = self._future.result()
        assert launched.results is not None, "a round without a batch has no results"
        launched.results.event.wait()
        results = launched.results.read()
        launched.keep.clear()
        return Landed(results[:, 0], results[:, 1:], launched.failure)


class Thread(Protocol):
    """A forward thread, or the caller's in its place."""

    def submit(self, work: Any) -> Future[Any]: ...
    def close(self) -> None: ...


class DeviceHandle:
    """Named operations; what crosses is frozen, what comes back comes by the submission."""

    def __init__(self, device: Device, executor: RoundExecutor, *, inline: bool = False) -> None:
        """`inline`: carries rounds out on the caller's thread, for tests that repeat."""
        self._device = device
        self._executor = executor
        self._thread: Thread = CallersThread() if inline else ForwardThread()

    def execute(self, round_: Round) -> Submission:
        """Has a round carried out, after those before it."""
        return Submission(round_, self._thread.submit(lambda: self._executor.carry_out(round_)))

    def close(self) -> None:
        """Waits for everything under way and lets go of the device. Idempotent."""
        self._thread.close()
        self._device.close()
