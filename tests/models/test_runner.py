"""A runner's logits against the same model run plainly, over blocks in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenspeed.models.runner import TransformersRunner

from .paging import Paging
from .tiny import FAMILIES, VOCABULARY, plain, tiny

ALL = ["glassllm", *FAMILIES]
PAGE = 4


def tolerance(logits: torch.Tensor) -> float:
    """Norms and scans of several families compute in float32 whatever the model's dtype."""
    return 1e-4 * float(logits.abs().max())


def plainly(family: str, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return plain(family)(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("family", ALL)
def test_chunks_and_decodes_in_any_batch_give_the_logits_of_one_plain_forward(family: str) -> None:
    rng = np.random.default_rng(5)
    paging = Paging(TransformersRunner(tiny(family), PAGE), num_parents=400)
    prompts = {name: rng.integers(4, VOCABULARY, 30).tolist() for name in "abc"}
    wanted = {name: plainly(family, tokens) for name, tokens in prompts.items()}
    for name, bounds in {"a": (7, 8, 20), "b": (12, 13, 22), "c": (2, 5, 19)}.items():
        for begin, end in zip((0, *bounds), bounds):
            got = paging.forward({name: prompts[name][begin:end]})
            assert torch.allclose(got[0], wanted[name][end - 1], atol=tolerance(got))
    for at in range(3):  # two prefills beside a decode, then all decode
        done = paging.done
        extends = {name: prompts[name][done[name] :][: 2 + at] for name in "ab"}
        decodes = {"c": prompts["c"][done["c"] :][:1]}
        if at == 2:
            extends, decodes = {}, {name: prompts[name][done[name] :][:1] for name in "abc"}
        got = paging.forward(extends, decodes)
        for row, name in enumerate(extends | decodes):
            want = wanted[name][paging.done[name] - 1]
            assert torch.allclose(got[row], want, atol=tolerance(got)), (at, name)


@pytest.mark.parametrize("family", ALL)
def test_refused_tokens_leave_no_trace(family: str) -> None:
    rng = np.random.default_rng(6)
    paging = Paging(TransformersRunner(tiny(family), PAGE), num_parents=400)
    tokens = {name: rng.integers(4, VOCABULARY, 24).tolist() for name in "ab"}
    wanted = {name: plainly(family, ids) for name, ids in tokens.items()}
    paging.forward({"a": tokens["a"][:9], "b": tokens["b"][:6]})
    for accepted in ({"a": 1, "b": 3}, {"a": 3, "b": 1}, {"a": 2, "b": 2}):
        done = dict(paging.done)
        given = {
            name: ids[done[name] : done[name] + accepted[name]] + [1] * (3 - accepted[name])
            for name, ids in tokens.items()
        }
        got = paging.forward({}, given, accept=accepted).view(2, 3, -1)
        for row, (name, count) in enumerate(accepted.items()):
            want = wanted[name][done[name] : done[name] + count]
            assert torch.allclose(got[row, :count], want, atol=tolerance(got)), (name, count)


@pytest.mark.parametrize("family", ["falcon_h1", "qwen3_next", "mamba2", "lfm2"])
def test_one_forward_leaves_the_aligned_state_and_the_final_one(family: str) -> None:
    tokens = np.random.default_rng(7).integers(4, VOCABULARY, 19).tolist()
    one = Paging(TransformersRunner(tiny(family), PAGE), num_parents=100)
    one.forward({"a": tokens[:11]}, checkpoints={"a": 8})
    two = Paging(TransformersRunner(tiny(family), PAGE), num_parents=100)
    two.forward({"a": tokens[:8]})
    two.forward({"a": tokens[8:11]})
    for slot in (1, 2):  # after 8 tokens, and after 11
        snapshots = []
        for paging in (one, two):
            block = paging.tables["a"]["state"][slot]
            for layer, caches in enumerate(paging.recipe.layers):
                for cache in caches:
                    if cache.kind == "state":
                        snapshots += [
                            paging.arena.tensor(layer, name)[block].clone() for name in cache.fields
                        ]
        half = len(snapshots) // 2
        assert half and any(state.abs().max() > 0 for state in snapshots[:half])
        for left, right in zip(snapshots[:half], snapshots[half:]):
            assert torch.allclose(left, right, atol=1e-5)


def test_each_layer_waits_for_its_own_load_before_it_reads() -> None:
    paging = Paging(TransformersRunner(tiny("gemma3_text"), PAGE), num_parents=100)
    paging.forward({"a": [5, 6, 7]})
    assert paging.ready == [0, 1, 2]


def test_layers_of_one_window_share_a_group() -> None:
    recipe = TransformersRunner(tiny("gemma3_text"), PAGE).recipe()
    assert recipe.group_ids == ["sliding-6", "full"]
    assert [recipe.kind(group_id) for group_id in recipe.group_ids] == ["sliding", "full"]
    assert TransformersRunner(tiny("falcon_h1"), PAGE).recipe().group_ids == ["state", "full"]
