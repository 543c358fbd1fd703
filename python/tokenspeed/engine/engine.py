"""An engine on a thread of its own: requests in from any thread, deltas out."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tokenspeed.engine.outputs import Delta, FinishReason
from tokenspeed.engine.sampler import Draw, TokenSampler
from tokenspeed.engine.sampling import SEED_MAX, SamplingParams
from tokenspeed.engine.settings import EngineSettings
from tokenspeed.engine.text import TextStream, Tokenizer
from tokenspeed.engine.watch import OnRound, RoundView
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.drafter import PromptLookup
from tokenspeed.runtime.errors import DeviceFault, EngineClosed
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Output, Request
from tokenspeed.runtime.runner import ModelRunner

Sink = Callable[[Delta | Exception], None]
"""Takes a request's deltas, or what it failed with, on the engine's thread. Must not block."""


@dataclass
class _Client:
    text: TextStream
    sink: Sink
    stop_token_ids: frozenset[int]


class Engine:
    """Plays rounds while there is work; sleeps otherwise."""

    def __init__(
        self,
        runner: ModelRunner,
        device: Device,
        tokenizer: Tokenizer,
        settings: EngineSettings,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
        vocabulary: int,
        context_tokens: int,
        on_round: OnRound | None = None,
    ) -> None:
        """`vocabulary`: token ids that the model knows, from 0 on. `context_tokens`: the longest
        request that it bears. Raises `ValueError` for settings that go together with no pool,
        `DeviceFault` where the pool finds no room."""
        config = settings.scheduler_config(runner.recipe(), context_tokens)
        self.tokenizer = tokenizer
        self.config = config
        self._eos = eos_token_ids
        self._vocabulary = vocabulary
        try:
            self._loop: EngineLoop = EngineLoop(
                config,
                runner,
                device,
                sampler=TokenSampler(),
                drafter=PromptLookup() if settings.speculative_tokens else None,
                context_tokens=min(context_tokens, settings.max_request_tokens or context_tokens),
                on_plan=on_round and (lambda plan: on_round(RoundView.of(self._loop, plan))),
            )
        except DeviceFault as error:
            raise DeviceFault(
                f"{error}; lower memory, num_device_pages, num_host_pages or page_tokens; where "
                "none is given, max_batch_size or max_request_tokens"
            ) from error
        self._numbers = itertools.count()
        self._clients: dict[str, _Client] = {}
        self._wake = threading.Condition()
        self._closing = False
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="tokenspeed-engine", daemon=True)
        self._thread.start()

    @property
    def context_tokens(self) -> int:
        """The most tokens of one request, prompt and output."""
        return self._loop.context_tokens

    def submit(self, tokens: list[int], params: SamplingParams | None, sink: Sink) -> str:
        """Takes a prompt; returns the request's id. `params` None: the defaults. Raises
        `ValueError` for a token that the model does not know and for what are no params,
        `RequestError` for a prompt that cannot be taken, `EngineClosed`."""
        if params is None:
            params = SamplingParams()
        if not isinstance(params, SamplingParams):
            raise ValueError(f"params = {params!r:.80}: params is a SamplingParams")
        for token in (min(tokens), max(tokens)) if tokens else ():
            if not 0 <= token < self._vocabulary:
                raise ValueError(
                    f"prompt: token {token!r:.80} at place {tokens.index(token)}; this model's "
                    f"token ids are 0 to {self._vocabulary - 1}"
                )
        request_id = f"request-{next(self._numbers)}"
        stops = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos)
        seed = secrets.randbelow(SEED_MAX) if params.seed is None else params.seed
        request = Request(
            request_id,
            tokens,
            params.max_new_tokens,
            stop_token_ids=stops,
            sampling=Draw(params, seed),
        )
        with self._wake:
            if self._closing:
                raise EngineClosed("the engine is closed") from self._broken
            self._clients[request_id] = _Client(
                TextStream(self.tokenizer, params.stop), sink, stops
            )
            try:
                self._loop.submit(request)
            except BaseException:
                del self._clients[request_id]
                raise
            self._wake.notify()
        return request_id

    def abort(self, request_id: str) -> None:
        """Cancels a request, whose last delta says so; one that is gone is ignored."""
        with self._wake:
            self._loop.abort(request_id)
            self._wake.notify()

    def close(self) -> None:
        """Aborts all requests and lets go of the device. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._sleep_until_work():
                for output in self._loop.step():
                    try:
                        self._deliver(output)
                    except Exception as error:
                        self._drop(output.request_id, error)
        except Exception as error:
            self._broken = error
        with self._wake:
            self._closing = True
            left, self._clients = self._clients, {}
        try:
            self._loop.close()
        except Exception as error:
            self._broken = self._broken or error
        for client in left.values():
            with suppress(Exception):
                client.sink(self._broken or EngineClosed("the engine is closed"))

    def _sleep_until_work(self) -> bool:
        """Whether to go on."""
        with self._wake:
            while not self._closing and not self._loop.has_work:
                self._wake.wait()
            return not self._closing

    def _drop(self, request_id: str, error: Exception) -> None:
        """Ends a request whose text or client fails; the others go on."""
        client = self._clients.pop(request_id, None)
        self._loop.abort(request_id)
        if client is not None:
            with suppress(Exception):
                client.sink(error)

    def _deliver(self, output: Output) -> None:
        client = self._clients.get(output.request_id)
        if client is None:
            return  # a stop string ended it before
        if output.error is not None:
            del self._clients[output.request_id]
            client.sink(output.error)
            return
        reason: Any = output.finish_reason
        taken: list[int] = []
        text = ""
        for token in output.tokens:
            taken.append(token)
            if token not in client.stop_token_ids:
                text += client.text.push(token)
            if client.text.stopped_by is not None:
                break
        if reason is not None:
            text += client.text.close()
        ended: FinishReason | None = "stop" if client.text.stopped_by is not None else reason
        if ended is not None:
            del self._clients[output.request_id]
            if reason is None:
                self._loop.finish(output.request_id)
        client.sink(Delta(text, tuple(taken), ended))
