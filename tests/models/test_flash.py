"""FlashInfer's seam, without a GPU: a stand-in computes what the arguments of `plan` and `run` say,
by the documented meaning of each, and the logits have to be those of torch's attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenspeed.models import flash
from tokenspeed.models.flash import FlashAttention
from tokenspeed.models.runner import TransformersRunner

from .paging import Paging
from .tiny import VOCABULARY, tiny

PAGE = 4


class StandIn:
    """A module like flashinfer, of plain loops."""

    def __init__(self) -> None:
        self.wrappers: list[StandIn.BatchPrefillWithPagedKVCacheWrapper] = []
        outer = self

        class Wrapper(StandIn.Plain):
            def __init__(self, workspace: torch.Tensor, layout: str) -> None:
                assert layout == "NHD" and workspace.dtype == torch.uint8
                outer.wrappers.append(self)

        self.BatchPrefillWithPagedKVCacheWrapper = Wrapper

    class Plain:
        plans = 0
        runs = 0

        def plan(self, *arrays: Any, **settings: Any) -> None:
            for array in arrays[:4]:
                assert array.dtype == torch.int32
            self.arrays, self.sizes, self.settings = arrays[:4], arrays[4:], settings
            self.plans += 1

        def run(
            self, query: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]
        ) -> torch.Tensor:
            self.runs += 1
            starts, page_starts, indices, last = (array.tolist() for array in self.arrays)
            heads, kv_heads, dim, page = self.sizes
            assert query.shape[1:] == (heads, dim) and cache[0].shape[1:] == (page, kv_heads, dim)
            out = torch.empty_like(query)
            for at, rows in enumerate(last):
                pages = indices[page_starts[at] : page_starts[at + 1]]
                count = (len(pages) - 1) * page + rows
                keys, values = (
                    side[pages].flatten(0, 1)[:count].repeat_interleave(heads // kv_heads, dim=1)
                    for side in cache
                )
                for token in range(starts[at], starts[at + 1]):
                    end = count - (starts[at + 1] - 1 - token)
                    left = self.settings["window_left"]
                    first = 0 if left < 0 else max(0, end - 1 - left)
                    scores = torch.einsum("hd,khd->hk", query[token], keys[first:end])
                    scores = scores * self.settings["sm_scale"]
                    if cap := self.settings["logits_soft_cap"]:
                        scores = cap * torch.tanh(scores / cap)
                    out[token] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[first:end])
            return out


class OnCpu(FlashAttention):
    """With a stand-in, for which a forward is over when a test says so."""

    over = True

    def _mark(self) -> None:
        return None

    def _is_over(self, event: None) -> bool:
        return self.over


@pytest.fixture
def any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "_DTYPES", (torch.float64,))
    monkeypatch.setattr(flash, "_HEAD_DIMS", (8, 16, 32))
    monkeypatch.setattr(flash, "_WORKSPACE_BYTES", 16)


def played(family: str, stand_in: StandIn | None) -> list[torch.Tensor]:
    """Logits of prefills in chunks, of a mixed batch and of decodes."""
    made = None if stand_in is None else OnCpu(stand_in, torch.device("cpu"))
    paging = Paging(TransformersRunner(tiny(family), PAGE, made), num_parents=300)
    rng = np.random.default_rng(3)
    tokens = {name: rng.integers(4, VOCABULARY, 30).tolist() for name in "ab"}
    logits = [paging.forward({"a": tokens["a"][:13]}), paging.forward({"a": tokens["a"][13:17]})]
    logits.append(paging.forward({"b": tokens["b"][:9]}, {"a": tokens["a"][17:18]}))
    for at in range(3):
        given = {"a": tokens["a"][18 + at : 19 + at], "b": tokens["b"][9 + at : 10 + at]}
        logits.append(paging.forward({}, given))
    return logits


@pytest.mark.usefixtures("any_shape")
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma2", "gemma3_text"])
def test_the_logits_are_those_of_torch(family: str) -> None:
    stand_in = StandIn()
    for got, wanted in zip(played(family, stand_in), played(family, None)):
        assert torch.allclose(got, wanted, atol=1e-4 * float(wanted.abs().max()))
    last = stand_in.wrappers[-1]
    assert sum(wrapper.runs for wrapper in stand_in.wrappers) == 6 * 3  # forwards, layers
    assert last.settings["causal"] is True
    groups = 2 if family in ("gemma2", "gemma3_text") else 1
    assert len(stand_in.wrappers) == groups
    assert sum(wrapper.plans for wrapper in stand_in.wrappers) == 6 * groups


@pytest.mark.usefixtures("any_shape")
def test_a_wrapper_waits_for_its_last_forward() -> None:
    late = StandIn()
    OnCpu.over = False
    try:
        played("llama", late)
    finally:
        OnCpu.over = True
    assert len(late.wrappers) == 6


def test_torch_computes_what_flashinfer_does_not() -> None:
    """Here: float64, and heads of 8."""
    stand_in = StandIn()
    played("llama", stand_in)
    assert stand_in.wrappers == []


def test_without_a_gpu_nobody_looks_for_it() -> None:
    assert flash.open_flash(torch.device("cpu")) is None
