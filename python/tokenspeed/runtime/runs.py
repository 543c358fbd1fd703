"""Copies of equal size that continue one another, joined into longer ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Runs:
    """Copies as few and as long as their list allows, in its order; all in bytes."""

    targets: NDArray[np.int64]
    sources: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, targets: NDArray[np.int64], sources: NDArray[np.int64], nbytes: int) -> Runs:
        """Of copies of `nbytes` each; one joins the one before it where both its ends continue
        that one's."""
        joined = (np.diff(targets) == nbytes) & (np.diff(sources) == nbytes)
        firsts = np.flatnonzero(np.concatenate([[True], ~joined])[: len(targets)])
        counts = np.diff(np.append(firsts, len(targets)))
        return cls(targets[firsts], sources[firsts], counts * nbytes)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Each as target, source, length."""
        return zip(self.targets.tolist(), self.sources.tolist(), self.lengths.tolist())

    @property
    def mean_nbytes(self) -> float:
        """Mean length; 0 of none."""
        return float(self.lengths.mean()) if len(self) else 0.0
