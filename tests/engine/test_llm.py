"""`LLM` and `AsyncLLM` as a client sees them, on glassllm."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from models.tiny import plain
from tokenspeed import LLM, AsyncLLM, SamplingParams
from tokenspeed.engine.engine import Engine
from tokenspeed.models import CheckpointError
from tokenspeed.runtime.errors import DeviceFault, EngineClosed, ForwardFault
from tokenspeed.scheduler import RequestError

PROMPTS = ["Alice was beginning to", "“Off with her head!” said the Queen", "The Cat", "Tea"]
SETTINGS: dict[str, Any] = {"dtype": "float64", "page_tokens": 8, "max_request_tokens": 160}
TIGHT: dict[str, Any] = {**SETTINGS, "num_device_pages": 14}
"""A pool for a request and a half of those here."""


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("glassllm", **SETTINGS) as llm:
        yield llm


def greedy(new_tokens: int = 24, **params: Any) -> SamplingParams:
    return SamplingParams(max_new_tokens=new_tokens, **params)


def alone(tokens: tuple[int, ...], new_tokens: int) -> tuple[int, ...]:
    out = plain("glassllm").generate(
        torch.tensor([tokens]),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(out[0, len(tokens) :].tolist())


def test_a_batch_gives_what_transformers_gives_for_each_prompt(llm: LLM) -> None:
    for completion in llm.generate(PROMPTS, greedy()):
        assert completion.token_ids == alone(completion.prompt_token_ids, 24)
        assert completion.finish_reason == "length"
        assert completion.text == llm.engine.tokenizer.decode(list(completion.token_ids))


def test_a_tight_pool_retracts_and_changes_nothing(llm: LLM) -> None:
    retracted: list[str] = []
    wanted = [completion.token_ids for completion in llm.generate(PROMPTS, greedy(60))]
    with LLM(
        "glassllm",
        **TIGHT,
        num_host_pages=12,
        on_round=lambda view: retracted.extend(view.retracted),
    ) as tight:
        got = [completion.token_ids for completion in tight.generate(PROMPTS, greedy(60))]
    assert got == wanted
    assert retracted


def test_a_stream_is_the_text_piece_by_piece(llm: LLM) -> None:
    (whole,) = llm.generate(PROMPTS[0], greedy())
    pieces = list(llm.stream(PROMPTS[0], greedy()))
    assert len(pieces) > 10
    assert "".join(pieces) == whole.text


def test_a_prompt_may_be_token_ids(llm: LLM) -> None:
    tokens = llm.engine.tokenizer.encode(PROMPTS[0])
    assert llm.generate([tokens], greedy()) == llm.generate(PROMPTS[0], greedy())


def test_a_stop_string_ends_the_text_before_it(llm: LLM) -> None:
    (whole,) = llm.generate(PROMPTS[0], greedy(40))
    stop = whole.text[30:36]
    (cut,) = llm.generate(PROMPTS[0], greedy(40, stop=["no such text", stop]))
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert len(cut.token_ids) < len(whole.token_ids)
    assert "".join(llm.stream(PROMPTS[0], greedy(40, stop=stop))) == cut.text


def test_a_stop_token_ends_and_is_no_text(llm: LLM) -> None:
    (whole,) = llm.generate(PROMPTS[0], greedy(40))
    token = whole.token_ids[10]
    end = whole.token_ids.index(token) + 1
    (cut,) = llm.generate(PROMPTS[0], greedy(40, stop_token_ids=[token]))
    assert cut.finish_reason == "stop"
    assert cut.token_ids == whole.token_ids[:end]
    assert cut.text == llm.engine.tokenizer.decode(list(whole.token_ids[: end - 1]))


def test_the_models_end_of_sequence_ends_unless_ignored() -> None:
    from tokenspeed.models import load

    loaded = load("glassllm", torch.float64)
    (whole,) = run_alone(greedy(20))
    token = whole.token_ids[5]
    with LLM(type(loaded)(loaded.model, loaded.tokenizer, frozenset({token})), **SETTINGS) as llm:
        (cut,) = llm.generate(PROMPTS[0], greedy(20))
        (ignored,) = llm.generate(PROMPTS[0], greedy(20, ignore_eos=True))
    assert cut.finish_reason == "stop"
    assert cut.token_ids == whole.token_ids[: whole.token_ids.index(token) + 1]
    assert ignored == whole


def run_alone(params: SamplingParams) -> list[Any]:
    with LLM("glassllm", **SETTINGS) as llm:
        return llm.generate(PROMPTS[0], params)


SAMPLED = greedy(24, temperature=0.9, top_p=0.95, top_k=50, seed=11)


def test_the_same_seed_gives_the_same_text_in_any_company(llm: LLM) -> None:
    (first,) = llm.generate(PROMPTS[0], SAMPLED)
    company = [greedy(30), greedy(9, temperature=1.3, seed=5), SAMPLED, greedy(17)]
    assert llm.generate(PROMPTS[1:] + PROMPTS[:1], [*company[:2], company[3], SAMPLED])[-1] == first
    with LLM("glassllm", **TIGHT) as tight:
        assert (
            tight.generate([*PROMPTS[1:], PROMPTS[0]], [*company[:2], greedy(50), SAMPLED])[-1]
            == first
        )
    with LLM("glassllm", **SETTINGS, speculative_tokens=3) as speculative:
        assert speculative.generate(PROMPTS[0], SAMPLED) == [first]


def test_other_seeds_give_other_texts(llm: LLM) -> None:
    texts = {
        llm.generate(PROMPTS[0], greedy(24, temperature=0.9, seed=seed))[0].text
        for seed in range(6)
    }
    drawn = {llm.generate(PROMPTS[0], greedy(24, temperature=0.9))[0].text for _ in range(3)}
    assert len(texts) == 6
    assert len(drawn) == 3


def test_a_cancelled_request_ends_and_the_others_go_on(llm: LLM) -> None:
    long = llm.submit(PROMPTS[0], greedy(150))
    other = llm.submit(PROMPTS[1], greedy(20))
    next(iter(long))
    long.cancel()
    ended = long.result()
    assert ended.finish_reason == "abort"
    assert 1 <= len(ended.token_ids) < 150
    assert other.result().token_ids == alone(other.prompt_token_ids, 20)


def test_leaving_a_stream_cancels_it(llm: LLM) -> None:
    stream = llm.stream(PROMPTS[0], greedy(150))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert llm.generate("Tea", greedy(2))[0].finish_reason == "length"
    assert idle(llm.engine)


def idle(engine: Engine) -> bool:
    """Whether nothing is left of any request, a moment after the last one ended."""
    for _ in range(500):
        if not engine._clients and not engine._loop.has_work:
            return True
        time.sleep(0.01)
    return False


def test_what_cannot_be_served_is_refused_by_name(llm: LLM) -> None:
    with pytest.raises(ValueError, match="prompt"):
        llm.generate("")
    with pytest.raises(ValueError, match="conversation"):
        llm.generate([{"role": "user", "content": "Hello"}])
    with pytest.raises(RequestError, match="160"):
        llm.generate(PROMPTS[0], greedy(1000))
    for prompt in ([3, 10**6], [-1], [3, 10**400], ["Tea", 3], [3.5], b"Tea", None):
        with pytest.raises(ValueError, match="prompt"):
            llm.submit(prompt)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^prompts\[1\]: it is empty; give at least one token$"):
        llm.generate(["Tea", ""])
    with pytest.raises(ValueError, match="params: 2 of them for 4 prompts"):
        llm.generate(PROMPTS, [greedy(), greedy()])
    for params in (5, 0, {"max_new_tokens": 5}):
        said = re.escape(f"params = {params!r}: params is a SamplingParams")
        with pytest.raises(ValueError, match=f"^{said}, or a list with one a prompt$"):
            llm.generate("Tea", params)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"^{said}$"):
            llm.generate(["Tea"], [params])  # type: ignore[list-item]
        with pytest.raises(ValueError, match=f"^{said}$"):
            llm.submit("Tea", params)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="no-such-folder"):
        LLM("no-such-folder")
    with pytest.raises(ValueError, match="dtype"):
        LLM("glassllm", dtype="int3")
    with pytest.raises(ValueError, match="memory"):
        LLM("glassllm", memory="much")
    with pytest.raises(ValueError, match="pool"):
        LLM("glassllm", memory="1KiB")
    for page_tokens in (2**27, 2**30):  # more than there is, and more than can be addressed
        with pytest.raises(DeviceFault, match=r"^no room for \d+ bytes of memory; lower memory, "):
            LLM("glassllm", num_device_pages=2**24, page_tokens=page_tokens)
    with pytest.raises(
        ValueError, match=r"no_such_setting.*settings are dtype, device, num_device_pages, memory"
    ):
        LLM("glassllm", no_such_setting=1)


def test_a_client_that_fails_fails_alone(llm: LLM) -> None:
    """Whatever its sink raises (an event loop that is closed, say), the engine goes on."""
    heard: list[object] = []

    def sink(delta: object) -> None:
        heard.append(delta)
        raise ArithmeticError("the client broke")

    other = llm.submit(PROMPTS[1], greedy(20))
    llm.engine.submit(llm.engine.tokenizer.encode("Tea"), greedy(20), sink)
    assert other.result().token_ids == alone(other.prompt_token_ids, 20)
    assert idle(llm.engine)
    assert isinstance(heard[-1], ArithmeticError)


def test_prompts_may_be_arrays_and_none_at_all(llm: LLM) -> None:
    tokens = np.array(llm.engine.tokenizer.encode("Tea"))
    text, array, several = (llm.generate(given, greedy(4)) for given in ("Tea", tokens, [tokens]))
    assert text == array == several
    assert llm.generate([]) == []


def test_a_forward_that_raises_fails_its_requests_and_not_the_engine() -> None:
    from tokenspeed.models import load

    loaded = load("glassllm", torch.float64)
    layer: Any = loaded.model.model.layers[1]
    whole, raised = layer.forward, []

    def forward(*args: Any, **kwargs: Any) -> Any:
        if raised == ["now"]:
            raised.append("done")
            raise ArithmeticError("the layer broke")
        return whole(*args, **kwargs)

    layer.forward = forward
    with LLM(loaded, **SETTINGS) as llm:
        (before,) = llm.generate(PROMPTS[0], greedy(12))
        raised.append("now")
        failed = llm.submit(PROMPTS[1], greedy(12))
        for _ in range(2):  # who asks again hears the same
            with pytest.raises(ForwardFault, match="the layer broke"):
                failed.result()
        assert raised == ["now", "done"]
        assert llm.generate(PROMPTS[0], greedy(12)) == [before]


def test_a_closed_engine_takes_and_owes_nothing() -> None:
    llm = LLM("glassllm", **SETTINGS)
    running = llm.submit(PROMPTS[0], greedy(150))
    next(iter(running))
    llm.close()
    llm.close()
    with pytest.raises(EngineClosed):
        running.result()
    with pytest.raises(EngineClosed):
        llm.generate(PROMPTS[0])


def test_coroutines_share_the_engine() -> None:
    async def main() -> None:
        async with AsyncLLM("glassllm", **TIGHT) as llm:
            completions = await asyncio.gather(
                *(llm.generate(prompt, greedy()) for prompt in PROMPTS)
            )
            for completion in completions:
                assert completion.token_ids == alone(completion.prompt_token_ids, 24)
            pieces = [piece async for piece in llm.stream(PROMPTS[0], greedy())]
            assert "".join(pieces) == completions[0].text

            task = asyncio.create_task(llm.generate(PROMPTS[0], greedy(20)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(RequestError):
                await llm.generate(PROMPTS[0], greedy(1000))
            assert (await llm.generate("Tea", greedy(3))).finish_reason == "length"
            assert idle(llm.engine)

    asyncio.run(main())
