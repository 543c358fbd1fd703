"""Prefill and decode on two engines: what a transfer between them is asked and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.device import Event
from tokenspeed.runtime.recipe import Recipe
from tokenspeed.scheduler import Forward


@dataclass(frozen=True)
class RemoteBlocks:
    """A request's blocks on one side: where its prompt lies, or is to come."""

    request_id: str
    prompt_tokens: int
    slots: Mapping[str, NDArray[np.int64]]
    """Group id -> the table's slots that the decode side will read: ascending."""
    blocks: Mapping[str, NDArray[np.int32]]
    """Group id -> the block in each of these."""
    token: int | None = None
    """Prefill side: the prompt's sample."""
    drafts: tuple[int, ...] = ()
    """Prefill side: what its drafter guesses to follow the sample."""


class Word(Enum):
    """What a peer says of a request."""

    BOOTSTRAPPED = "bootstrapped"
    """It may be admitted here: on the decode side once both know of it, on the prefill side once
    the decode side has blocks for it."""
    LANDED = "landed"
    """Its prompt lies in the decode side's blocks: the last word on both sides."""
    FAILED = "failed"
    """It will not come, and nothing touches its blocks any more: the last word."""


@dataclass(frozen=True)
class Heard:
    """One word."""

    request_id: str
    word: Word
    token: int | None = None
    """With `LANDED`: the prompt's sample."""
    drafts: tuple[int, ...] = ()
    """With `LANDED`: guesses at what follows the sample."""


class RemotePeer(Protocol):
    """One engine's end of a transfer.

    `hand_over` is called on the forward thread and does not wait; the others on the control side.
    """

    def meet(self, request_id: str) -> None:
        """This side knows of a request."""
        ...

    def give_up(self, request_id: str) -> None:
        """This side has ended a request. The last word on it still comes, to both sides."""
        ...

    def hand_over(self, arena: Arena, requests: Sequence[RemoteBlocks], ready: Event) -> None:
        """Blocks to read from (prefill side) or to write to (decode side), behind `ready`."""
        ...

    def heard(self) -> list[Heard]:
        """New words; never blocks."""
        ...

    def wait(self) -> None:
        """Blocks until a transfer under way is over; if none is, for a moment at most, so that who
        waits for the other side does not spin."""
        ...


def remote_blocks(
    batch: Forward.Batch,
    tables: Mapping[str, NDArray[np.int32]],
    recipe: Recipe,
    *,
    lands: bool,
) -> tuple[RemoteBlocks, ...]:
    """The requests of `plan.remote_prefill` (`lands`) or `plan.remote_decode`, by the persistent
    block tables as of this plan."""
    found = []
    for at, request_id in enumerate(batch.request_ids):
        prompt = int(batch.prefill_lengths_array[at])
        hit = int(batch.extend_prefix_lens_array[at]) if lands else 0
        slots, blocks = {}, {}
        for group_id in recipe.group_ids:
            row = tables[group_id][batch.request_pool_indices_array[at]]
            first, end = _slots(recipe, group_id, prompt, hit)
            slots[group_id] = np.arange(first, end)
            blocks[group_id] = row[first:end].copy()
        token = None if lands else int(batch.decode_input_ids_array[at])
        drafts = () if lands else tuple(batch.spec_candidate_ids[at])
        found.append(RemoteBlocks(request_id, prompt, slots, blocks, token, drafts))
    return tuple(found)


def _slots(recipe: Recipe, group_id: str, prompt: int, hit: int) -> tuple[int, int]:
    """Slots that decoding behind a prompt reads, those below the decode side's own hit left out:
    all of a history, a window's tail, the last state."""
    block_tokens, kind = recipe.block_tokens(group_id), recipe.kind(group_id)
    end = -(-prompt // block_tokens)
    if kind == "state":
        return end - 1, end
    window = recipe.window_tokens(group_id)
    first = 0 if window is None else max(0, prompt - window + 1) // block_tokens
    if kind != "replay":
        first = max(first, hit // block_tokens)
    return min(first, end), end
