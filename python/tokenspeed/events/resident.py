"""What a consumer knows of an engine's cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokenspeed.events.wire import Batch, BlockRemoved, BlockStored


class ResidentBlocks(Mapping[int, int | None]):
    """The pages that prompts would find on an engine: each one's hash and its parent's.

    After a loss that no replay could mend it begins anew with nothing: it then holds less than the
    engine has, never a page that is gone.
    """

    def __init__(self) -> None:
        self._parents: dict[int, int | None] = {}

    def apply(self, batch: Batch) -> None:
        """Applies a batch; each once, in order."""
        if batch.missed:
            self._parents.clear()
        for event in batch.events:
            if isinstance(event, BlockStored):
                parent = event.parent_block_hash
                for block_hash in event.block_hashes:
                    self._parents[block_hash] = parent
                    parent = block_hash
            elif isinstance(event, BlockRemoved):
                for block_hash in event.block_hashes:
                    self._parents.pop(block_hash, None)
            else:
                self._parents.clear()

    def __getitem__(self, block_hash: int) -> int | None:
        return self._parents[block_hash]

    def __iter__(self) -> Iterator[int]:
        return iter(self._parents)

    def __len__(self) -> int:
        return len(self._parents)

    def hit_pages(self, block_hashes: list[int]) -> int:
        """How many of a prompt's pages, from the first on, the engine has."""
        for pages, block_hash in enumerate(block_hashes):
            if block_hash not in self._parents:
                return pages
        return len(block_hashes)
