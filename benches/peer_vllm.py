"""vLLM's V1 scheduler, used as its own engine uses it.

Nothing of a model is loaded: the configuration names a folder with a made-up `config.json`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from peer import SAMPLE, Pool, Request, imported, model_folder, not_importable

MAX_TOKENS = 1 << 17
"""Of a request."""

NAMES = {
    "vllm.config": ("CacheConfig", "ModelConfig", "SchedulerConfig", "VllmConfig"),
    "vllm.sampling_params": ("SamplingParams",),
    "vllm.utils.hashing": ("sha256",),
    "vllm.v1.core.kv_cache_utils": ("get_request_block_hasher", "init_none_hash"),
    "vllm.v1.core.sched.scheduler": ("Scheduler",),
    "vllm.v1.kv_cache_interface": ("FullAttentionSpec", "KVCacheConfig", "KVCacheGroupSpec"),
    "vllm.v1.outputs": ("ModelRunnerOutput",),
    "vllm.v1.request": ("Request", "RequestStatus"),
    "vllm.v1.structured_output": ("StructuredOutputManager",),
    "torch": ("float32",),
}
"""What is used of it, by module."""


class VllmRound(NamedTuple):
    """A round: what is scheduled, in lists and dictionaries."""

    output: Any
    counts: dict[str, int]
    """Tokens of input, by request."""


class Vllm:
    """vLLM V1: prefix caching on, SHA-256, one full-attention group, no overlap."""

    name: ClassVar[str] = "vllm"
    about: ClassVar[str] = "vLLM V1's scheduler: schedule() and update_from_output()"

    @classmethod
    def missing(cls) -> str | None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        return not_importable("vllm.v1.core.sched.scheduler")

    def __init__(self, pool: Pool) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        api = self._api = imported(NAMES)
        with model_folder() as folder:
            model = api.ModelConfig(
                model=folder, skip_tokenizer_init=True, dtype="float32", max_model_len=MAX_TOKENS
            )
        rows = pool.running or pool.rows
        config = api.VllmConfig(
            model_config=model,
            cache_config=api.CacheConfig(block_size=pool.page_tokens, enable_prefix_caching=True),
            scheduler_config=api.SchedulerConfig(
                max_model_len=MAX_TOKENS,
                is_encoder_decoder=False,
                # It wants room for one token of each request.
                max_num_batched_tokens=max(pool.round_tokens, rows),
                max_num_seqs=rows,
                async_scheduling=False,
            ),
        )
        blocks = pool.blocks + 1  # the null block
        config.cache_config.num_gpu_blocks = blocks
        spec = api.FullAttentionSpec(
            block_size=pool.page_tokens, num_kv_heads=1, head_size=64, dtype=api.float32
        )
        api.init_none_hash(api.sha256)
        self._hasher = api.get_request_block_hasher(pool.page_tokens, api.sha256)
        self._scheduler = api.Scheduler(
            config,
            api.KVCacheConfig(blocks, [], [api.KVCacheGroupSpec(["layer"], spec)]),
            api.StructuredOutputManager(config),
            block_size=pool.page_tokens,
        )
        self._prompts: dict[str, int] = {}
        """Lengths, by request."""

    def prepare(self, requests: Sequence[Request]) -> list[tuple[str, list[int], Any]]:
        def sampling(request: Request) -> Any:
            # One token more than declared: the benchmark finishes requests itself.
            new_tokens = request.max_new_tokens + 1 if request.max_new_tokens else 1 << 16
            return self._api.SamplingParams(
                temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False
            )

        return [(r.id, r.tokens.tolist(), sampling(r)) for r in requests]

    def submit(self, prepared: list[tuple[str, list[int], Any]]) -> None:
        for request_id, tokens, sampling in prepared:
            self._prompts[request_id] = len(tokens)
            request = self._api.Request(
                request_id, tokens, sampling, None, block_hasher=self._hasher
            )
            self._scheduler.add_request(request)

    def plan(self) -> VllmRound:
        output = self._scheduler.schedule()
        return VllmRound(output, output.num_scheduled_tokens)

    def feed(self, round_: VllmRound) -> None:
        ids = list(round_.counts)
        partial = self._partial(round_)
        self._scheduler.update_from_output(
            round_.output,
            self._api.ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: at for at, request_id in enumerate(ids)},
                sampled_token_ids=[[] if i in partial else [SAMPLE] for i in ids],
            ),
        )

    def _partial(self, round_: VllmRound) -> set[str]:
        """Who computes a part of its prompt and samples nothing."""
        known = [(r.req_id, r.num_computed_tokens, 0) for r in round_.output.scheduled_new_reqs]
        others = round_.output.scheduled_cached_reqs
        known += zip(others.req_ids, others.num_computed_tokens, others.num_output_tokens)
        return {
            request_id
            for request_id, computed, output in known
            if computed + round_.counts[request_id] < self._prompts[request_id] + output
        }

    def sampled(self, round_: VllmRound) -> list[str]:
        partial = self._partial(round_)
        return [request_id for request_id in round_.counts if request_id not in partial]

    def finish(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            del self._prompts[request_id]
        self._scheduler.finish_requests(request_ids, self._api.RequestStatus.FINISHED_STOPPED)
