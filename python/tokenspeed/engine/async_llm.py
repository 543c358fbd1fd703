"""`tokenspeed.AsyncLLM`: the same engine under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tokenspeed.engine.llm import start_engine
from tokenspeed.engine.outputs import Completion, Delta
from tokenspeed.engine.prompts import Prompt, encode
from tokenspeed.engine.sampling import SamplingParams
from tokenspeed.models import Loaded


class AsyncLLM:
    """As `LLM`, for coroutines: requests of all tasks share the engine's batches.

        async with AsyncLLM("smollm2") as llm:
            async for piece in llm.stream("The sea"):
                print(piece, end="")

    A task that is cancelled, or leaves its iterator, cancels its request.
    """

    def __init__(self, model: str | Path | Loaded, **settings: Any) -> None:
        """As `LLM`. Blocks while the model is loaded."""
        self.engine = start_engine(model, **settings)

    async def deltas(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> AsyncIterator[Delta]:
        """A request's deltas as they come. Raises as `LLM.submit` and `Generation.result` do."""
        tokens = encode(self.engine.tokenizer, prompt)
        async for delta in self._run(tokens, params):
            yield delta

    async def stream(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> AsyncIterator[str]:
        """The text of a completion, piece by piece."""
        async for delta in self.deltas(prompt, params):
            if delta.text:
                yield delta.text

    async def generate(self, prompt: Prompt, params: SamplingParams | None = None) -> Completion:
        """One completion; gather several to have them run side by side."""
        tokens = encode(self.engine.tokenizer, prompt)
        came = [delta async for delta in self._run(tokens, params)]
        return Completion.of(tokens, came)

    async def _run(self, tokens: list[int], params: SamplingParams | None) -> AsyncIterator[Delta]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Delta | Exception] = asyncio.Queue()

        def sink(delta: Delta | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, delta)

        request_id = self.engine.submit(tokens, params, sink)
        try:
            while True:
                delta = await queue.get()
                if isinstance(delta, Exception):
                    raise delta
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            self.engine.abort(request_id)

    async def close(self) -> None:
        """Cancels what runs and frees the pool. Idempotent."""
        await asyncio.to_thread(self.engine.close)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
