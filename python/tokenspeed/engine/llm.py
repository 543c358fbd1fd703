"""`tokenspeed.LLM`: generate text with a model, in whatever memory there is."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from tokenspeed.engine.engine import Engine
from tokenspeed.engine.outputs import Completion, Delta
from tokenspeed.engine.prompts import PretrainedTokenizer, Prompt, encode
from tokenspeed.engine.sampling import SamplingParams
from tokenspeed.engine.settings import DEVICES, DTYPES, EngineSettings
from tokenspeed.engine.watch import OnRound
from tokenspeed.models import Loaded, TransformersRunner, load
from tokenspeed.runtime.device import Device


class Generation:
    """One request under way: iterate over it for its deltas, or ask for its `result`."""

    def __init__(self, engine: Engine, tokens: list[int], params: SamplingParams | None) -> None:
        self.prompt_token_ids = tuple(tokens)
        self._engine = engine
        self._deltas: queue.SimpleQueue[Delta | Exception] = queue.SimpleQueue()
        self._taken: list[Delta] = []
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        """Of the three above: any thread may ask."""
        self.request_id = engine.submit(tokens, params, self._deltas.put)

    def __iter__(self) -> Iterator[Delta]:
        """Deltas not taken yet, as they come. Raises what the request failed with."""
        while (delta := self._next()) is not None:
            yield delta

    def _next(self) -> Delta | None:
        with self._lock:
            if self._taken and self._taken[-1].finish_reason:
                return None
            if self._failure is None:
                came = self._deltas.get()
                if isinstance(came, Delta):
                    self._taken.append(came)
                    return came
                self._failure = came
            raise self._failure

    def result(self) -> Completion:
        """Waits for the end. Raises what the request failed with."""
        for _ in self:
            pass
        return Completion.of(self.prompt_token_ids, self._taken)

    def cancel(self) -> None:
        """Ends the request; its last delta has the reason `abort`. Too late is no error."""
        self._engine.abort(self.request_id)


def start_engine(
    model: str | Path | Loaded,
    *,
    dtype: str | torch.dtype = "float32",
    device: str = "cpu",
    on_round: OnRound | None = None,
    **settings: Any,
) -> Engine:
    """Loads a model and starts an engine with it; `settings` are those of `EngineSettings`.

    Raises `ValueError` for a wrong setting, `CheckpointError`, `UnsupportedModelError`, and
    `DeviceFault` where there is no such device or no room on it.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype = {dtype!r}: dtype is one of {', '.join(DTYPES)}")
    cut = EngineSettings.of(settings)
    place = _open_device(device)
    loaded = model if isinstance(model, Loaded) else load(model, getattr(torch, name), device)
    runner = TransformersRunner(loaded.model, cut.page_tokens)
    tokenizer = loaded.tokenizer
    if hasattr(tokenizer, "apply_chat_template"):
        tokenizer = PretrainedTokenizer(tokenizer)
    return Engine(
        runner,
        place,
        tokenizer,
        cut,
        eos_token_ids=loaded.eos_token_ids,
        vocabulary=loaded.model.get_input_embeddings().num_embeddings,
        context_tokens=loaded.context_tokens,
        on_round=on_round,
    )


def _open_device(name: str) -> Device:
    if name == "cpu":
        from tokenspeed.runtime.cpu import CpuDevice

        return CpuDevice()
    if name == "cuda":
        cuda: Any = import_module("tokenspeed.runtime.cuda")
        opened: Device = cuda.CudaDevice()
        return opened
    raise ValueError(f"device = {name!r}: device is one of {', '.join(DEVICES)}")


class LLM:
    """A model and an engine for it.

        with LLM("smollm2", num_device_pages=64) as llm:
            for completion in llm.generate(["The sea", "A poem:"]):
                print(completion.text)

    `model` is a folder with a checkpoint, a `.gguf` file, a model that a package carries
    (`models.load`), or one loaded already, which then belongs to the engine. The settings are
    those of `EngineSettings`: sizes of the pool, the batch and the host tier. What a request
    generates does not depend on them.
    """

    def __init__(self, model: str | Path | Loaded, **settings: Any) -> None:
        """`settings`: as for `start_engine`, with its errors."""
        self.engine = start_engine(model, **settings)

    def submit(self, prompt: Prompt, params: SamplingParams | None = None) -> Generation:
        """Starts a request. Raises `ValueError` for a bad prompt or what are no params,
        `RequestError` for a prompt that the pool could never hold."""
        return Generation(self.engine, encode(self.engine.tokenizer, prompt), params)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """The completions of prompts, in their order; all run side by side as the pool allows.

        `params`: for all, or one for each. Raises as `submit` and `Generation.result` do; the
        requests that are left are then cancelled.
        """
        each: dict[str, Any] = {"prompt": prompts}
        if not _is_one(prompts):
            each = {f"prompts[{place}]": prompt for place, prompt in enumerate(prompts)}
        encoded = [encode(self.engine.tokenizer, prompt, name) for name, prompt in each.items()]
        given: Sequence[SamplingParams | None]
        if params is None or isinstance(params, SamplingParams):
            given = [params] * len(encoded)
        elif isinstance(params, Sequence):
            given = params
        else:
            raise ValueError(
                f"params = {params!r:.80}: params is a SamplingParams, or a list with one a prompt"
            )
        if len(given) != len(encoded):
            raise ValueError(f"params: {len(given)} of them for {len(encoded)} prompts")
        started: list[Generation] = []
        try:
            for tokens, one in zip(encoded, given):
                started.append(Generation(self.engine, tokens, one))
            return [generation.result() for generation in started]
        except BaseException:
            for generation in started:
                generation.cancel()
            raise

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[str]:
        """The text of one completion, piece by piece as it comes. Closing the iterator cancels."""
        generation = self.submit(prompt, params)
        try:
            for delta in generation:
                if delta.text:
                    yield delta.text
        finally:
            generation.cancel()

    def close(self) -> None:
        """Cancels what runs and frees the pool. Idempotent."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_one(prompts: Any) -> bool:
    """Whether it is one prompt: text, token ids, or a conversation."""
    # What is no prompt either is refused by `encode`, by name.
    return (
        isinstance(prompts, (str, bytes))
        or not isinstance(prompts, (Sequence, np.ndarray))
        or (len(prompts) > 0 and not isinstance(prompts[0], (str, list, tuple, np.ndarray)))
    )
