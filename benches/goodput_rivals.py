"""Other schedulers behind the calls that `tokenspeed.simulate.Player` makes of ours.

They are played without a Host tier. A handle is a request's place in the trace plus one, for as
long as the request lives, and so is its row.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peer import Pool
from tokenspeed.simulate import Player, Scenario, Trace


class RivalPlayer(Player):
    """Plays a rival: its rows are as many as the trace has requests."""

    def __init__(self, trace: Trace, scenario: Scenario, rival: Rival) -> None:
        super().__init__(trace, scenario, scheduler=rival)
        rows = len(trace) + 1
        self._request_of_row = np.arange(-1, rows - 1)
        self._handle_of_row = np.arange(rows, dtype=np.uint64)
        self._offsets = np.arange(rows + 1, dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """A forward: chunks of prompts first. One entry a request, of chunks alone where it says so."""

    handles: NDArray[np.uint64]
    input_lengths_array: NDArray[np.int64]
    extend_prefix_lens_array: NDArray[np.int64]
    """Where the chunks begin."""
    prefill_lengths_array: NDArray[np.int64]
    """Tokens of the chunks' prompts: behind a retraction, all that were known then."""
    device_hit_tokens_array: NDArray[np.int64]
    """Of the chunks that begin an admission."""

    @property
    def request_pool_indices_array(self) -> NDArray[np.int64]:
        return self.handles.astype(np.int64)

    @property
    def host_hit_tokens_array(self) -> NDArray[np.int64]:
        return np.zeros_like(self.extend_prefix_lens_array)

    @property
    def extend_replay_lens_array(self) -> NDArray[np.int64]:
        return np.zeros_like(self.extend_prefix_lens_array)

    def num_extends(self) -> int:
        return len(self.extend_prefix_lens_array)


@dataclass(frozen=True)
class Plan:
    """A round as `Player` reads it."""

    batch: Batch | None
    retracted: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    aborts: Sequence[Any] = ()
    num_write_back_blocks: int = 0
    num_load_back_blocks: int = 0

    @property
    def num_retractions(self) -> int:
        return len(self.retracted)


@dataclass(frozen=True)
class Chunk:
    """A part of a prompt, of `prompt` tokens, in a forward."""

    request: int
    begin: int
    size: int
    prompt: int


class Rival:
    """What all of them share: who runs, and how far each prompt was computed."""

    def __init__(self) -> None:
        self._prompts: dict[int, int] = {}
        """Tokens of the prompt of each request that was admitted, as of then."""

    def waiting_size(self) -> int:
        return 0

    active_lcm_blocks = available_lcm_blocks = empty_lcm_blocks = waiting_size
    prefilling_size = decoding_size = waiting_size

    def _plan(self, chunks: Sequence[Chunk], decodes: Sequence[int]) -> Plan:
        """A plan; a request that is admitted again was retracted."""
        if not chunks and not decodes:
            return Plan(None)
        admitted = [self._prompts.get(chunk.request) != chunk.prompt for chunk in chunks]
        again = [
            c.request for c, new in zip(chunks, admitted) if new and c.request in self._prompts
        ]
        self._prompts.update((chunk.request, chunk.prompt) for chunk in chunks)
        requests = [chunk.request for chunk in chunks] + list(decodes)
        begins = np.array([chunk.begin for chunk in chunks], dtype=np.int64)
        sizes = [chunk.size for chunk in chunks] + [1] * len(decodes)
        return Plan(
            Batch(
                np.array(requests, dtype=np.uint64) + np.uint64(1),
                np.array(sizes, dtype=np.int64),
                begins,
                np.array([chunk.prompt for chunk in chunks], dtype=np.int64),
                np.where(admitted, begins, 0) if chunks else begins,
            ),
            np.array(again, dtype=np.uint64) + np.uint64(1),
        )

    def _ended(self, handles: NDArray[np.uint64]) -> list[str]:
        ended = (handles.astype(np.int64) - 1).tolist()
        for request in ended:
            self._prompts.pop(request, None)
        return [str(request) for request in ended]


def _pool(scenario: Scenario) -> Pool:
    engine = scenario.engine
    return Pool(
        page_tokens=engine.prefix_granularity,
        blocks=engine.num_device_pages - 1,
        rows=engine.max_batch_size,
        round_tokens=engine.max_scheduled_tokens,
    )


class Reference(Rival):
    """The `tokenspeed-scheduler` wheel."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        from peers import config_of

        self._api = api = importlib.import_module("tokenspeed_scheduler")
        config = config_of(api, _pool(scenario))
        config.enable_mixed_prefill_decode = scenario.engine.enable_mixed_prefill_decode
        self._scheduler = api.Scheduler(config)

    def waiting_size(self) -> int:
        return int(self._scheduler.waiting_size())

    def submit_requests(self, specs: Sequence[Any]) -> None:
        theirs = self._api.RequestSpec()
        for spec in specs:
            theirs.request_id = spec.request_id
            theirs.tokens = np.asarray(spec.tokens).tolist()
            theirs.max_new_tokens = spec.max_new_tokens
            self._scheduler.submit_requests([theirs])

    def next_execution_plan(self) -> Plan:
        plan = self._scheduler.next_execution_plan()
        if not plan.forward:
            return Plan(None)
        (batch,) = plan.forward
        prefills = batch.num_extends()
        requests = [int(request_id) for request_id in batch.request_ids]
        begins, sizes, prompts = (
            batch.extend_prefix_lens,
            batch.input_lengths,
            batch.prefill_lengths,
        )
        chunks = [Chunk(requests[i], begins[i], sizes[i], prompts[i]) for i in range(prefills)]
        return self._plan(chunks, requests[prefills:])

    def advance_results(
        self, handles: NDArray[np.uint64], tokens: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> None:
        event = self._api.ExecutionEvent()
        for at, handle in enumerate(handles.tolist()):
            result = self._api.ForwardEvent.ExtendResult()
            result.request_id = str(handle - 1)
            result.tokens = tokens[offsets[at] : offsets[at + 1]].tolist()
            event.add_event(result)
        self._scheduler.advance(event)

    def finish(self, handles: NDArray[np.uint64]) -> None:
        event = self._api.ExecutionEvent()
        for request_id in self._ended(handles):
            finish = self._api.ForwardEvent.Finish()
            finish.request_id = request_id
            event.add_event(finish)
        self._scheduler.advance(event)


class Vllm(Rival):
    """vLLM V1's scheduler, by way of the peer that `compare.py` plays."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        import peer_vllm
        from peer import Request

        peer_vllm.MAX_TOKENS = 1 << 18  # the traces have longer prompts than most models take
        self._request = Request
        self._submitted: dict[str, int] = {}
        """Tokens of the prompts."""
        self._peer = peer_vllm.Vllm(_pool(scenario))
        self._round: Any = None

    def submit_requests(self, specs: Sequence[Any]) -> None:
        requests = [self._request(s.request_id, np.asarray(s.tokens), 0) for s in specs]
        self._submitted.update((request.id, len(request.tokens)) for request in requests)
        self._peer.submit(self._peer.prepare(requests))

    def next_execution_plan(self) -> Plan:
        self._round = self._peer.plan()
        output, counts = self._round.output, self._round.counts
        known = [(new.req_id, new.num_computed_tokens, 0) for new in output.scheduled_new_reqs]
        others = output.scheduled_cached_reqs
        known += zip(others.req_ids, others.num_computed_tokens, others.num_output_tokens)
        admitted = {request_id for request_id, _, _ in known[: len(output.scheduled_new_reqs)]}
        admitted |= set(others.resumed_req_ids)
        chunks, decodes = [], []
        for request_id, begin, generated in known:
            request = int(request_id)
            prompt = self._prompts.get(request, 0)
            if request_id in admitted:
                prompt = self._submitted[request_id] + generated
            if begin < prompt:
                chunks.append(Chunk(request, begin, counts[request_id], prompt))
            else:
                decodes.append(request)
        return self._plan(chunks, decodes)

    def advance_results(self, *_: object) -> None:
        self._peer.feed(self._round)

    def finish(self, handles: NDArray[np.uint64]) -> None:
        self._peer.finish(self._ended(handles))
