"""Host buffers that uploads go through, each used again only after its copy has been done."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.device import Event


class Staging:
    """Buffers by name. Not for several threads."""

    def __init__(self, alloc_host: Callable[[int], NDArray[np.uint8]]) -> None:
        self._alloc_host = alloc_host
        self._sent: dict[str, deque[tuple[NDArray[np.uint8], Event]]] = defaultdict(deque)

    def take(self, name: str, nbytes: int) -> NDArray[np.uint8]:
        """At least `nbytes` bytes that no copy in flight reads; never waits for one."""
        sent = self._sent[name]
        if sent and self._is_free(sent[0][1]):
            buffer, _ = sent.popleft()
            if buffer.nbytes >= nbytes:
                return buffer
        # Room to grow into, so that a batch a little larger finds its buffer large enough.
        return self._alloc_host(max(4096, 1 << (nbytes - 1).bit_length()))

    def sent(self, name: str, buffer: NDArray[np.uint8], event: Event) -> None:
        """Gives a buffer back whose copy is done at `event`."""
        self._sent[name].append((buffer, event))

    def _is_free(self, event: Event) -> bool:
        return event.done()


def put(buffer: NDArray[np.uint8], array: NDArray[Any]) -> NDArray[Any]:
    """Writes `array` to the buffer's start; gives the buffer's part that holds it, in its shape."""
    part = buffer[: array.nbytes].view(array.dtype).reshape(array.shape)
    part[...] = array
    return part
