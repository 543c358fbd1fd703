"""The L3 store behind the Host tier, as an engine keeps it (cache.md §8)."""

from __future__ import annotations

from .plan import Copy

#: ``(group index, content hash, ordinal in the page)``.
Key = tuple[int, str, int]


class Storage:
    """What the store holds, and what the scheduler has been told that it holds.

    An engine asks before each plan which pages the waiting prompts could use, and registers those
    that it finds. A fetch can still miss: another engine may have dropped the page since.
    """

    def __init__(self) -> None:
        self._held: set[Key] = set()

    def put(self, keys: list[Key]) -> None:
        self._held.update(keys)

    def held(self, keys: list[Key]) -> list[Key]:
        """Those of `keys` that it holds, in their order."""
        return [key for key in keys if key in self._held]

    def lose(self, copies: list[Copy]) -> list[Key]:
        """Drops what `copies` should have fetched; returns its keys."""
        keys = [(c.group, c.content_hash, c.offset) for c in copies if c.guard]
        self._held.difference_update(keys)
        return keys
