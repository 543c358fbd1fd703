"""What the device itself knows of the requests in the pool's rows: tables, lengths, newest tokens.

A token that a forward samples is input of the next one, which may be planned before any result
has reached the host. So these live on the device, by row, and only operations on the forward's
stream touch them. Row 0 belongs to nobody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenspeed.runtime.drafter import Drafter


class DeviceRows:
    """Arrays of the device's library `xp`, one row a request."""

    def __init__(
        self,
        xp: Any,
        *,
        num_rows: int,
        width: int,
        columns: dict[str, int],
        drafter: Drafter | None,
        tokens_max: int,
    ) -> None:
        """`num_rows` with row 0; `columns`: slots of a request, by group id; `tokens_max`: of one
        request."""
        self._xp = xp
        self._width = width
        self._drafter = drafter if width > 1 else None
        self.tables = {
            group_id: xp.zeros((num_rows, count), dtype=np.int32)
            for group_id, count in columns.items()
        }
        """The persistent block tables, as of the round that runs."""
        self.newest = xp.zeros(num_rows, dtype=np.int32)
        """Each request's newest token, of which nothing has been computed yet."""
        self.lengths = xp.zeros(num_rows, dtype=np.int32)
        """Tokens of each request, the newest included."""
        self.drafts = xp.zeros((num_rows, width - 1), dtype=np.int32)
        """What is guessed to follow the newest."""
        history = tokens_max + 4 * width if self._drafter is not None else 0
        self._history = xp.zeros((num_rows, history), dtype=np.int32)

    def change_cells(self, group_id: str, cells: Any) -> None:
        """Device [cells, 3] of row, slot, block."""
        self.tables[group_id][cells[:, 0], cells[:, 1]] = cells[:, 2]

    def tell(self, rows: Any, lengths: Any, tokens: Any, drafts: Any) -> None:
        """Takes newest tokens that were sampled elsewhere."""
        self.newest[rows] = tokens
        self.lengths[rows] = lengths
        self.drafts[rows] = drafts

    def remember(self, row: int, tokens: Any) -> None:
        """Takes all tokens of the request that now has this row, for the drafter."""
        self._history[row, : len(tokens)] = tokens

    def decode_input(self, rows: Any) -> tuple[Any, Any, Any]:
        """Input ids and positions [D, width] of these rows' next step, and context lengths [D]."""
        xp = self._xp
        ids = self.newest[rows][:, None]
        first = self.lengths[rows] - 1
        if self._width == 1:
            return ids, first[:, None], first + np.int32(1)
        ids = xp.concatenate([ids, self.drafts[rows]], axis=1)
        positions = first[:, None] + xp.arange(self._width, dtype=np.int32)
        return ids, positions, first + np.int32(self._width)

    def complete(self, rows: Any, lengths: Any, tokens: Any) -> None:
        """Prompts of `lengths` tokens are computed and `tokens` sampled behind them."""
        self.newest[rows] = tokens
        self.lengths[rows] = lengths + 1
        if self._drafter is not None:
            self._history[rows, lengths] = tokens

    def verify(self, rows: Any, ids: Any, tokens: Any) -> Any:
        """Decodes had `ids` [D, width] as input and sampled `tokens` [D, width] behind each: takes
        those up to the first that a draft did not foresee. Gives how many, int32 [D], or 1 of
        all of them."""
        xp = self._xp
        if self._width == 1:
            self.newest[rows] = tokens[:, 0]
            self.lengths[rows] += np.int32(1)
            return np.int32(1)
        foreseen = (tokens[:, :-1] == ids[:, 1:]).astype(np.int32)
        counts = 1 + xp.cumprod(foreseen, axis=1).sum(axis=1).astype(np.int32)
        before = self.lengths[rows]
        self.newest[rows] = tokens[xp.arange(len(counts)), counts - 1]
        self.lengths[rows] = before + counts
        if self._drafter is not None:
            # Those not taken are written over by the next step.
            places = before[:, None] + xp.arange(self._width, dtype=np.int32)
            self._history[rows[:, None], places] = tokens
        return counts

    def draft(self, rows: Any) -> None:
        """Guesses what follows in these rows."""
        if self._drafter is not None and len(rows):
            self.drafts[rows] = self._drafter.draft(
                self._xp, self._history[rows], self.lengths[rows], self._width - 1
            )
