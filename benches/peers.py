"""The schedulers that are compared, by name: this project's two surfaces and the published
wheel; those of other projects have files of their own. `peer.py` says what a peer is.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from peer import SAMPLE, Peer, Pool, Request, not_importable
from peer_sglang import Sglang
from peer_vllm import Vllm


class ArrayRound(NamedTuple):
    """What an engine reads of a plan on the array path: views, nothing is copied."""

    batch: Any
    handles: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int32]
    input_lengths: npt.NDArray[np.int32]
    input_ids: npt.NDArray[np.int32]
    prefix_lens: npt.NDArray[np.int32]
    prompt_lens: npt.NDArray[np.int32]
    changed_cells: dict[str, npt.NDArray[np.int32]]
    """Cells of the persistent block tables that the round changed."""
    pages_to_zero: dict[str, npt.NDArray[np.int32]]
    copies: list[Any]

    def samples(self) -> npt.NDArray[np.int64]:
        """Tokens that each request samples: none from a chunk that leaves some of its prompt."""
        samples = np.ones(len(self.handles), dtype=np.int64)
        prefills = len(self.prefix_lens)
        if prefills:
            ends = self.prefix_lens + self.input_lengths[:prefills]
            samples[:prefills] = ends == self.prompt_lens[:prefills]
        return samples


class Arrays:
    """tokenspeed.scheduler as a new engine would use it."""

    name: ClassVar[str] = "arrays"
    about: ClassVar[str] = (
        "tokenspeed.scheduler: numpy views, persistent block tables, results by handle"
    )

    @classmethod
    def missing(cls) -> str | None:
        return not_importable("tokenspeed.scheduler")

    def __init__(self, pool: Pool) -> None:
        self._api = importlib.import_module("tokenspeed.scheduler")
        self._scheduler = self._api.Scheduler(config_of(self._api, pool))
        self._scheduler.use_persistent_tables()

    def prepare(self, requests: Sequence[Request]) -> list[Request]:
        return list(requests)

    def submit(self, prepared: list[Request]) -> None:
        spec = self._api.RequestSpec
        self._scheduler.submit_requests([spec(r.id, r.tokens, r.max_new_tokens) for r in prepared])

    def plan(self) -> ArrayRound:
        plan = self._scheduler.next_execution_plan()
        (batch,) = plan.forward
        return ArrayRound(
            batch,
            batch.handles,
            batch.request_pool_indices_array,
            batch.input_lengths_array,
            batch.input_ids_array,
            batch.extend_prefix_lens_array,
            batch.prefill_lengths_array,
            plan.changed_cells,
            plan.pages_to_zero_arrays(),
            plan.cache,
        )

    def feed(self, round_: ArrayRound) -> None:
        offsets = np.zeros(len(round_.handles) + 1, dtype=np.int64)
        np.cumsum(round_.samples(), out=offsets[1:])
        tokens = np.full(offsets[-1], SAMPLE, dtype=np.int32)
        self._scheduler.advance_results(round_.handles, tokens, offsets)

    def sampled(self, round_: ArrayRound) -> list[str]:
        return [id for id, n in zip(round_.batch.request_ids, round_.samples()) if n]

    def finish(self, request_ids: Sequence[str]) -> None:
        _finish(self._api, self._scheduler, request_ids)


class EventRound(NamedTuple):
    """What an engine reads of a plan on the compatible path: lists, and arrays for the tables."""

    request_ids: list[str]
    num_extends: int
    rows: list[int]
    input_lengths: list[int]
    input_ids: list[int]
    prefix_lens: list[int]
    prompt_lens: list[int]
    decode_input_ids: list[int]
    block_tables: dict[str, npt.NDArray[np.int32]]
    pages_to_zero: dict[str, list[int]]
    copies: list[Any]

    def samples(self) -> list[bool]:
        """Whether each request samples a token; a chunk that leaves some of its prompt does not."""
        chunks = zip(self.prefix_lens, self.input_lengths, self.prompt_lens)
        prefills = [first + length == prompt for first, length, prompt in chunks]
        return prefills + [True] * (len(self.request_ids) - self.num_extends)


class Compatible:
    """tokenspeed.scheduler through the surface that the published wheel has too."""

    name: ClassVar[str] = "compatible"
    about: ClassVar[str] = (
        "tokenspeed.scheduler as an engine of the published wheel uses it: lists and events"
    )
    module: ClassVar[str] = "tokenspeed.scheduler"

    @classmethod
    def missing(cls) -> str | None:
        return not_importable(cls.module)

    def __init__(self, pool: Pool) -> None:
        self._api = importlib.import_module(self.module)
        self._scheduler = self._api.Scheduler(config_of(self._api, pool))

    def prepare(self, requests: Sequence[Request]) -> list[tuple[str, list[int], int]]:
        return [(r.id, r.tokens.tolist(), r.max_new_tokens) for r in requests]

    def submit(self, prepared: list[tuple[str, list[int], int]]) -> None:
        specs = []
        for request_id, tokens, max_new_tokens in prepared:
            spec = self._api.RequestSpec()
            spec.request_id = request_id
            spec.tokens = tokens
            spec.max_new_tokens = max_new_tokens
            specs.append(spec)
        self._scheduler.submit_requests(specs)

    def plan(self) -> EventRound:
        plan = self._scheduler.next_execution_plan()
        (batch,) = plan.forward
        return EventRound(
            batch.request_ids,
            batch.num_extends(),
            batch.request_pool_indices,
            batch.input_lengths,
            batch.input_ids,
            batch.extend_prefix_lens,
            batch.prefill_lengths,
            batch.decode_input_ids,
            batch.block_tables_arrays(),
            plan.pages_to_zero,
            plan.cache,
        )

    def feed(self, round_: EventRound) -> None:
        event = self._api.ExecutionEvent()
        make = self._api.ForwardEvent.ExtendResult
        for request_id, samples in zip(round_.request_ids, round_.samples()):
            result = make()
            result.request_id = request_id
            result.tokens = [SAMPLE] if samples else []
            event.add_event(result)
        self._scheduler.advance(event)

    def sampled(self, round_: EventRound) -> list[str]:
        return [id for id, samples in zip(round_.request_ids, round_.samples()) if samples]

    def finish(self, request_ids: Sequence[str]) -> None:
        _finish(self._api, self._scheduler, request_ids)


class Reference(Compatible):
    """The published wheel, an independent implementation in C++."""

    name: ClassVar[str] = "reference"
    about: ClassVar[str] = "the tokenspeed-scheduler wheel, used in the same way as `compatible`"
    module: ClassVar[str] = "tokenspeed_scheduler"


_ALL: tuple[type[Peer], ...] = (Arrays, Compatible, Reference, Vllm, Sglang)

PEERS = {peer.name: peer for peer in _ALL}
"""By name, in the order of the tables."""


def config_of(api: Any, pool: Pool) -> Any:
    """A scheduler's configuration in the published names, for a pool of one full group."""
    config = api.SchedulerConfig()
    config.prefix_granularity = pool.page_tokens
    config.num_device_pages = pool.blocks + 1
    config.max_scheduled_tokens = pool.round_tokens
    config.max_batch_size = pool.rows
    config.decode_input_tokens = 1
    config.cache_groups = [api.CacheGroupConfig("full", pool.page_tokens, pool.blocks + 1)]
    return config


def _finish(api: Any, scheduler: Any, request_ids: Sequence[str]) -> None:
    event = api.ExecutionEvent()
    for request_id in request_ids:
        finish = api.ForwardEvent.Finish()
        finish.request_id = request_id
        event.add_event(finish)
    scheduler.advance(event)
