"""The round's small arrays, sent to the device in one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.device import Device, Stream


class Packed:
    """int32 arrays of any shape, by name. May be sent again and again once all are there."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.int32]] = {}
        self._together: NDArray[np.int32] | None = None

    def add(self, name: str, array: NDArray[Any]) -> None:
        self._arrays[name] = np.asarray(array, dtype=np.int32)

    def upload(self, device: Device, stream: Stream) -> dict[str, Any]:
        """The same arrays on the device, for operations put on `stream` from now on."""
        if self._together is None:
            none = np.zeros(0, dtype=np.int32)
            self._together = np.concatenate([none, *(a.ravel() for a in self._arrays.values())])
        if not len(self._together):
            empty = device.xp.zeros(0, dtype=np.int32)
            return {name: empty.reshape(a.shape) for name, a in self._arrays.items()}
        together = device.upload(stream, "round", self._together)
        parts, at = {}, 0
        for name, array in self._arrays.items():
            parts[name] = together[at : at + array.size].reshape(array.shape)
            at += array.size
        return parts
