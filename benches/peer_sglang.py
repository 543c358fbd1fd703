"""SGLang's scheduling, as far as it can be had without a model worker, allocator on the CPU.

SGLang's own `Scheduler` is a process around a model worker. What that process runs in a round are
the classes used here: the radix cache, the paged allocator, `PrefillAdder`, `ScheduleBatch`. The
loop between them is this file's: prompts first, decodes if there are none. Left out are SGLang's
sockets, the batch's way to the model runner, the sampling and the streaming. Tensors are the CPU's.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from peer import MODEL, SAMPLE, Pool, Request, imported, model_folder, not_importable

MAX_TOKENS = 1 << 18
"""Of a request."""

NAMES = {
    "sglang.srt.configs.model_config": ("ModelConfig",),
    "sglang.srt.managers.schedule_batch": ("FINISH_LENGTH", "Req", "ScheduleBatch"),
    "sglang.srt.managers.schedule_policy": (
        "CLIP_MAX_NEW_TOKENS", "AddReqResult", "PrefillAdder", "SchedulePolicy"
    ),
    "sglang.srt.managers.scheduler_components.new_token_ratio_tracker": ("NewTokenRatioTracker",),
    "sglang.srt.mem_cache.allocator": ("PagedTokenToKVPoolAllocator",),
    "sglang.srt.mem_cache.common": ("checkpoint_kv_cache", "release_kv_cache"),
    "sglang.srt.mem_cache.memory_pool": ("ReqToTokenPool",),
    "sglang.srt.mem_cache.radix_cache": ("CacheInitParams", "RadixCache"),
    "sglang.srt.sampling.sampling_params": ("SamplingParams",),
    "sglang.srt.server_args": ("ServerArgs", "set_global_server_args_for_scheduler"),
    "sglang.srt.speculative.spec_info": ("SpeculativeAlgorithm",),
    "torch": ("float32", "set_num_threads"),
}  # fmt: skip
"""What is used of it, by module."""


class SglangRound(NamedTuple):
    """A round: a `ScheduleBatch` that is prepared for the model worker, and who samples in it."""

    batch: Any
    sampling: list[Any]


class Sglang:
    """SGLang: radix cache, chunked prefill, first come first served, no overlap."""

    name: ClassVar[str] = "sglang"
    about: ClassVar[str] = (
        "SGLang's PrefillAdder, ScheduleBatch and RadixCache, its allocator on the CPU"
    )

    @classmethod
    def missing(cls) -> str | None:
        return not_importable("sglang.srt.managers.schedule_policy")

    def __init__(self, pool: Pool) -> None:
        api = self._api = imported(NAMES)
        api.set_num_threads(1)
        with model_folder() as folder:
            arguments = api.ServerArgs(model_path=folder, device="cpu", skip_tokenizer_init=True)
            api.set_global_server_args_for_scheduler(arguments)
            self._model = api.ModelConfig(folder, context_length=MAX_TOKENS, dtype="float32")
        self._page = pool.page_tokens
        # It counts a prompt's last page as a whole one.
        self._round_tokens = pool.round_tokens + (pool.running or 1) * self._page
        self._rows_max = pool.running or pool.rows
        # A request must leave pages over. Where it is told how many requests run, there is room for
        # what it sets aside for outputs that nobody declared: all of them are to start.
        spare = 3 * self._page
        spare += (pool.running or 0) * (api.CLIP_MAX_NEW_TOKENS + spare)
        tokens = (pool.blocks + -(-spare // self._page)) * self._page
        # Its table of slots is dense, and written at the start: where all run side by side, none is
        # longer than twice the mean.
        columns = min(MAX_TOKENS, 2 * tokens // (pool.running or 1))
        self._rows = api.ReqToTokenPool(self._rows_max, columns, "cpu", enable_memory_saver=False)
        self._slots = api.PagedTokenToKVPoolAllocator(
            tokens, self._page, api.float32, "cpu", kvcache=None, need_sort=False
        )
        self._cache = api.RadixCache(
            api.CacheInitParams(
                disable=False,
                req_to_token_pool=self._rows,
                token_to_kv_pool_allocator=self._slots,
                page_size=self._page,
            )
        )
        self._policy = api.SchedulePolicy("fcfs", self._cache, False, False, False)
        self._ratio = api.NewTokenRatioTracker.from_config()
        self._waiting: list[Any] = []
        self._chunked: Any = None
        """The request whose prompt is under way."""
        self._last: Any = None
        """The prompts of the last round, if it was one of prompts."""
        self._running = self._batch([])
        self._live: dict[str, Any] = {}

    def prepare(self, requests: Sequence[Request]) -> list[tuple[str, array[int], Any]]:
        def sampling(request: Request) -> Any:
            # One token more than declared: the benchmark finishes requests itself. SGLang lets
            # nobody ask for more than the pool has for one request.
            new_tokens = request.max_new_tokens + 1 if request.max_new_tokens else MAX_TOKENS
            new_tokens = min(new_tokens, self._slots.size - len(request.tokens) - 2 * self._page)
            sampling = self._api.SamplingParams(
                max_new_tokens=new_tokens, temperature=0.0, ignore_eos=True
            )
            sampling.normalize(None)
            return sampling

        return [(r.id, array("q", r.tokens), sampling(r)) for r in requests]

    def submit(self, prepared: list[tuple[str, array[int], Any]]) -> None:
        for request_id, tokens, sampling in prepared:
            request = self._api.Req(
                request_id, "", tokens, sampling, vocab_size=MODEL["vocab_size"]
            )
            self._live[request_id] = request
            self._waiting.append(request)

    def plan(self) -> SglangRound:
        self._join()
        batch = self._prompts() or self._decodes()
        if batch is None:
            return SglangRound(None, [])
        return SglangRound(batch, [r for r in batch.reqs if r is not self._chunked])

    def _join(self) -> None:
        """Whose prompt was completed in the last round decodes from now on."""
        if self._last is None:
            return
        if self._chunked is not None:
            self._api.checkpoint_kv_cache(self._chunked, self._cache)
        self._last.filter_batch(reqs_to_exclude=self._chunked)
        if self._running.is_empty():
            self._running = self._last
        elif not self._last.is_empty():
            self._running.merge_batch(self._last)
        self._last = None

    def _prompts(self) -> Any:
        """A batch of prompts, if one can start or goes on."""
        running = self._running
        if self._chunked is None and (running.batch_is_full or not self._waiting):
            return None
        self._policy.calc_priority(self._waiting, running)
        adder = self._api.PrefillAdder(
            self._page,
            self._cache,
            self._slots,
            running,
            self._ratio.current,
            rem_input_tokens=self._round_tokens,
            rem_chunk_tokens=self._round_tokens,
            max_running_requests=self._rows_max,
        )
        chunked = self._chunked
        if chunked is not None:
            chunked.init_next_round_input()
            self._chunked = adder.add_chunked_req(chunked)
        for request in self._waiting:
            if running.batch_size() + len(adder.can_run_list) >= self._rows_max:
                running.batch_is_full = True
                break
            request.init_next_round_input(self._cache)
            result = adder.add_one_req(request, self._chunked is not None, None)
            if result is not self._api.AddReqResult.CONTINUE:
                running.batch_is_full = result is self._api.AddReqResult.NO_TOKEN
                break
        if not adder.can_run_list:
            return None
        self._chunked = adder.new_chunked_req or self._chunked
        started = set(adder.can_run_list)
        self._waiting = [request for request in self._waiting if request not in started]
        self._last = self._batch(adder.can_run_list)
        self._last.prepare_for_extend()
        return self._last

    def _decodes(self) -> Any:
        """All that decode, but those that have to make room."""
        running = self._running
        before = running.batch_size()
        running.filter_batch()
        if running.is_empty():
            running.batch_is_full = False
            return None
        if running.check_decode_mem():
            self._ratio.decay_step()
        else:
            retracted, self._ratio.current, aborted = running.retract_decode()
            assert not aborted, "one request fits into any pool"
            self._waiting += retracted
        if running.batch_size() < before:
            running.batch_is_full = False
        running.prepare_for_decode()
        return running

    def _batch(self, requests: list[Any]) -> Any:
        return self._api.ScheduleBatch.init_new(
            requests,
            self._rows,
            self._slots,
            self._cache,
            self._model,
            enable_overlap=False,
            spec_algorithm=self._api.SpeculativeAlgorithm.NONE,
        )

    def feed(self, round_: SglangRound) -> None:
        are_prompts = round_.batch is self._last
        for request in round_.sampling:
            request.output_ids.append(SAMPLE)
            request.update_finish_state()
            if are_prompts:
                self._api.checkpoint_kv_cache(request, self._cache)

    def sampled(self, round_: SglangRound) -> list[str]:
        return [request.rid for request in round_.sampling]

    def finish(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            request = self._live.pop(request_id)
            request.finished_reason = self._api.FINISH_LENGTH(len(request.output_ids))
            self._api.release_kv_cache(request, self._cache, checkpoint=True)
