"""From a plan's batch to the frozen one that crosses to the forward thread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokenspeed.runtime.request import Live
from tokenspeed.runtime.rounds import Int32Array, RoundBatch, ToldRows
from tokenspeed.scheduler import ExecutionPlan, Forward


def batch_of(
    batch: Forward.Batch,
    live: Mapping[str, Live],
    *,
    width: int,
    tokens_ahead: int,
    page_tokens: int | None,
    with_histories: bool,
) -> RoundBatch:
    """`live`: all requests of the batch, whose handle and state this sets. `tokens_ahead`: the most
    tokens that a decode may be ahead of what is known of it. `page_tokens`: of the prefix page
    where a group keeps states, else None."""
    extends = batch.num_extends()
    request_ids = tuple(batch.request_ids)
    requests = [live[request_id] for request_id in request_ids]
    fed = batch.input_lengths_array
    prefixes, replays = batch.extend_prefix_lens_array, batch.extend_replay_lens_array
    prompts = batch.prefill_lengths_array[:extends]
    ends = prefixes + fed[:extends]
    completes = ends == prompts
    for at, (request, handle) in enumerate(zip(requests, batch.handles.tolist())):
        request.handle = handle
        request.decodes = at >= extends or bool(completes[at])
    decoded = [request.num_tokens for request in requests[extends:]]
    lengths = [*ends.tolist(), *(tokens + tokens_ahead for tokens in decoded)]
    rows = batch.request_pool_indices_array
    histories = {}
    if with_histories:
        histories = {
            int(rows[at]): requests[at].all_tokens() for at in np.flatnonzero(completes).tolist()
        }
    return RoundBatch(
        request_ids=request_ids,
        handles=batch.handles,
        sampling=tuple(request.request.sampling for request in requests),
        num_extends=extends,
        width=width,
        rows=rows,
        query_start=np.concatenate([[0], np.cumsum(fed)]).astype(np.int32),
        prefill_ids=batch.input_ids_array,
        prefill_lengths=prompts,
        extend_prefix_lens=prefixes,
        extend_replay_lens=replays,
        checkpoints=_checkpoints(prefixes + replays, ends, page_tokens),
        completes=completes,
        seq_lens_max=max(lengths),
        told=_told(batch, decoded, width),
        histories=histories,
    )


def _checkpoints(begins: Int32Array, ends: Int32Array, page_tokens: int | None) -> Int32Array:
    """The last page boundary strictly inside each chunk; -1 where there is none (§1.2)."""
    if page_tokens is None:
        return np.full(len(ends), -1, dtype=np.int32)
    last = ends // page_tokens * page_tokens
    return np.where((begins < last) & (last < ends), last, -1).astype(np.int32)


def remote_of(plan: ExecutionPlan, live: Mapping[str, Live]) -> Forward.Batch | None:
    """The batch of a plan that goes to the peer, or comes from it, noted in `live`."""
    batch = plan.remote_prefill or plan.remote_decode
    if batch is not None:
        for request_id, handle in zip(batch.request_ids, batch.handles.tolist()):
            live[request_id].handle = handle
    return batch


def _told(batch: Forward.Batch, decoded: list[int], width: int) -> ToldRows | None:
    """Decodes whose newest token was sampled elsewhere."""
    given = batch.decode_input_ids_array
    at = np.flatnonzero(given >= 0)
    if not len(at):
        return None
    drafts = np.zeros((len(at), width - 1), dtype=np.int32)
    for to, candidates in zip(drafts, (batch.spec_candidate_ids[i] for i in at.tolist())):
        to[: len(candidates)] = candidates[: width - 1]
    return ToldRows(
        rows=batch.request_pool_indices_array[batch.num_extends() :][at],
        lengths=np.array(decoded, dtype=np.int32)[at],
        tokens=given[at],
        drafts=drafts,
    )
