"""From a plan's batch to the frozen one that crosses to the forward thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter

import numpy as np

from tokenspeed.runtime.recipe import Recipe
from tokenspeed.runtime.remote import RemoteBlocks, remote_blocks
from tokenspeed.runtime.request import Live
from tokenspeed.runtime.rounds import Int32Array, RoundBatch, ToldRows
from tokenspeed.scheduler import ExecutionPlan, Forward

_NUM_TOKENS = attrgetter("num_tokens")


class Batches:
    """Makes them, and remembers who was in the last one: decodes mostly go on together."""

    def __init__(
        self, *, num_rows: int, width: int, page_tokens: int | None, with_histories: bool
    ) -> None:
        """`num_rows`: of the request pool, with row 0. `page_tokens`: of the prefix page where a
        group keeps states, else None."""
        self._width = width
        self._page_tokens = page_tokens
        self._lengths = np.zeros(num_rows, dtype=np.int32)
        """By row, as `DeviceRows.lengths` once all planned rounds have run; kept at width 1, where
        a forward gives one token for sure."""
        self._with_histories = with_histories
        self._handles = np.zeros(0, dtype=np.uint64)
        self._request_ids: tuple[str, ...] = ()
        self._requests: list[Live] = []
        self._sampling: tuple[object, ...] = ()
        self._again: RoundBatch | None = None
        """The last batch, if all but lengths would be the same in one of the same decodes."""

    def batch_of(
        self, batch: Forward.Batch, live: Mapping[str, Live], *, tokens_ahead: int
    ) -> RoundBatch:
        """`live`: all requests of the batch, whose handle this sets. `tokens_ahead`: the most
        tokens that a decode may be ahead of what is known of it."""
        self._meet(batch, live)
        if self._again is not None and (batch.decode_input_ids_array < 0).all():
            seq_lens, longest = self._decode_lengths(self._again.rows, self._requests, tokens_ahead)
            return replace(self._again, seq_lens_max=longest, seq_lens=seq_lens)
        extends = batch.num_extends()
        fed = batch.input_lengths_array
        prefixes, replays = batch.extend_prefix_lens_array, batch.extend_replay_lens_array
        prompts = batch.prefill_lengths_array[:extends]
        ends = prefixes + fed[:extends]
        completes = ends == prompts
        decodes = self._requests[extends:]
        query_start = np.zeros(len(fed) + 1, dtype=np.int32)
        np.cumsum(fed, out=query_start[1:])
        rows = batch.request_pool_indices_array
        histories = {}
        if self._with_histories:
            elsewhere = extends + np.flatnonzero(batch.decode_input_ids_array >= 0)
            histories = {
                int(rows[at]): self._requests[at].all_tokens()
                for at in [*np.flatnonzero(completes).tolist(), *elsewhere.tolist()]
            }
        told = _told(batch, decodes, self._width)
        if told is not None:
            self._lengths[told.rows] = told.lengths
        decode_lens, longest = self._decode_lengths(rows[extends:], decodes, tokens_ahead)
        self._lengths[rows[:extends][completes]] = prompts[completes] + 1
        query_start.flags.writeable = completes.flags.writeable = False
        frozen = RoundBatch(
            request_ids=self._request_ids,
            handles=batch.handles,
            sampling=self._sampling,
            num_extends=extends,
            width=self._width,
            rows=rows,
            query_start=query_start,
            prefill_ids=batch.input_ids_array,
            prefill_lengths=prompts,
            extend_prefix_lens=prefixes,
            extend_replay_lens=replays,
            checkpoints=_checkpoints(prefixes + replays, ends, self._page_tokens),
            completes=completes,
            seq_lens_max=max(longest, *ends.tolist(), 0),
            seq_lens=None if decode_lens is None else np.concatenate([ends, decode_lens]),
            told=told,
            histories=histories,
        )
        if not extends and frozen.told is None:
            self._again = frozen
        return frozen

    def _decode_lengths(
        self, rows: Int32Array, decodes: list[Live], tokens_ahead: int
    ) -> tuple[Int32Array | None, int]:
        """Contexts of decodes, their input included, and the longest; at widths above 1, where only
        the device knows how many tokens a step gave, no more than a bound on the longest."""
        if self._width > 1:
            return None, max(map(_NUM_TOKENS, decodes), default=-tokens_ahead) + tokens_ahead
        lengths = self._lengths[rows]
        self._lengths[rows] = lengths + 1
        return lengths, int(lengths.max(initial=0))

    def _meet(self, batch: Forward.Batch, live: Mapping[str, Live]) -> None:
        """Finds the batch's requests, unless they are those of the last one."""
        if np.array_equal(batch.handles, self._handles):
            return
        self._again = None
        self._handles = batch.handles
        self._request_ids = tuple(batch.request_ids)
        self._requests = [live[request_id] for request_id in self._request_ids]
        self._sampling = tuple(request.request.sampling for request in self._requests)
        for request, handle in zip(self._requests, batch.handles.tolist()):
            request.handle = handle


def _checkpoints(begins: Int32Array, ends: Int32Array, page_tokens: int | None) -> Int32Array:
    """The last page boundary strictly inside each chunk; -1 where there is none (§1.2)."""
    if page_tokens is None:
        return np.full(len(ends), -1, dtype=np.int32)
    last = ends // page_tokens * page_tokens
    return np.where((begins < last) & (last < ends), last, -1).astype(np.int32)


def remote_of(
    plan: ExecutionPlan,
    live: Mapping[str, Live],
    recipe: Recipe,
    table_of: Callable[[str], Int32Array],
) -> tuple[RemoteBlocks, ...]:
    """What a plan hands to the peer, or takes from it; noted in `live`. `table_of`: the persistent
    block table of a group."""
    batch = plan.remote_prefill or plan.remote_decode
    if batch is None:
        return ()
    for request_id, handle in zip(batch.request_ids, batch.handles.tolist()):
        live[request_id].handle = handle
    tables = {group_id: table_of(group_id) for group_id in recipe.group_ids}
    return remote_blocks(batch, tables, recipe, lands=plan.remote_prefill is not None)


def _told(batch: Forward.Batch, decodes: list[Live], width: int) -> ToldRows | None:
    """Decodes whose newest token was sampled elsewhere."""
    given = batch.decode_input_ids_array
    at = np.flatnonzero(given >= 0)
    if not len(at):
        return None
    drafts = np.zeros((len(at), width - 1), dtype=np.int32)
    for to, guessed in zip(drafts, (decodes[i].drafts[: width - 1] for i in at.tolist())):
        to[: len(guessed)] = guessed
    return ToldRows(
        rows=batch.request_pool_indices_array[batch.num_extends() :][at],
        lengths=np.array([decodes[i].num_tokens for i in at.tolist()], dtype=np.int32),
        tokens=given[at],
        drafts=drafts,
    )
