"""Recipe, layout and arena: from layers to groups, bytes and views."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.errors import RecipeError
from tokenspeed.runtime.layout import DTYPE_BYTES
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.scheduler import CacheGroupFamily, CacheRetention, Scheduler

KV = {"k": Field((2, 4), "float32"), "v": Field((2, 4), "float32")}
STATE = {"ssm": Field((33, 7), "float32"), "conv": Field((5,), "float16")}


def hybrid() -> Recipe:
    """Full and sliding attention, a state, and a layer with both."""
    sliding = LayerCache("sliding", KV, window_tokens=5, block_tokens=2)
    full, state = LayerCache("full", KV), LayerCache("state", STATE)
    return Recipe([full, sliding, [full, state], [], sliding, state], page_tokens=4)


def test_layers_of_a_kind_share_a_group() -> None:
    recipe = hybrid()
    assert recipe.group_ids == ["full", "sliding-5", "state"]
    assert [list(group.layers) for group in recipe.layout.groups.values()] == [
        [0, 2],
        [1, 4],
        [2, 5],
    ]
    full, sliding, state = recipe.groups(9)
    assert (full.retention, sliding.sliding_window_tokens) == (CacheRetention.FullHistory, 5)
    assert (state.family, sliding.block_granularity) == (CacheGroupFamily.State, 2)
    for group in (full, sliding, state):
        group.validate()
        assert group.total_pages == 8 * group.cache_blocks_per_lcm_block + 1


def test_no_two_fields_of_any_block_share_a_byte() -> None:
    recipe, pages = hybrid(), 4
    layout = recipe.layout
    for group in layout.groups.values():
        taken: list[tuple[int, int]] = []
        for block in range(1, layout.num_blocks(group.group_id, pages)):
            first = layout.offset(group.group_id, block)
            parent = first // layout.parent_bytes
            assert 1 + (block - 1) // group.blocks_per_parent == parent
            assert first % 16 == 0
            assert (first + group.payload_bytes - 1) // layout.parent_bytes == parent < pages
            for part in group.layers.values():
                fields = [(f.offset_bytes, f.offset_bytes + f.nbytes) for f in part.fields.values()]
                inside = part.offset_bytes, part.offset_bytes + part.nbytes
                assert all(inside[0] <= a < b <= inside[1] for a, b in fields)
                taken += [(first + a, first + b) for a, b in fields]
        taken.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(taken))


def test_little_is_lost_to_padding() -> None:
    """State blocks of megabytes beside small pages of keys and values."""
    kv = {"k": Field((8, 128), "bfloat16"), "v": Field((8, 128), "bfloat16")}
    state = {"ssm": Field((32, 128, 128), "float32"), "conv": Field((3, 8192), "bfloat16")}
    layers = [LayerCache("state", state)] * 3 + [LayerCache("full", kv, block_tokens=32)]
    layout = Recipe(layers * 12, page_tokens=64).layout
    for group in layout.groups.values():
        used = group.payload_bytes * group.blocks_per_parent
        assert 0.9 < used / layout.parent_bytes <= 1, group.group_id


def test_a_view_is_the_arenas_own_memory() -> None:
    recipe = hybrid()
    arena = Arena(recipe.layout, 5, np.zeros(5 * recipe.layout.parent_bytes, dtype=np.uint8))
    for layer, field in ((0, "k"), (2, "v"), (2, "conv"), (4, "k"), (5, "ssm")):
        group, place = recipe.layout.find(layer, field)
        view = arena.view(layer, field)
        assert view.shape == (recipe.layout.num_blocks(group.group_id, 5), *place.shape)
        last = len(view) - 1
        view[last] = 1
        first = recipe.layout.offset(group.group_id, last) + place.offset_bytes
        assert np.flatnonzero(arena.buffer).min() >= first
        assert np.flatnonzero(arena.buffer).max() < first + place.nbytes
        view[last] = 0
        assert not arena.buffer.any()
    with pytest.raises(KeyError):
        arena.view(3, "k")
    with pytest.raises(RecipeError):
        Arena(recipe.layout, 6, arena.buffer)


def test_a_tensor_is_the_same_memory() -> None:
    torch: Any = pytest.importorskip("torch")
    recipe = Recipe([LayerCache("full", {"k": Field((2, 4), "bfloat16")})], page_tokens=4)
    arena = Arena(recipe.layout, 5, np.zeros(5 * recipe.layout.parent_bytes, dtype=np.uint8))
    tensor = arena.tensor(0, "k")
    assert tensor.dtype is torch.bfloat16 and tuple(tensor.shape) == arena.view(0, "k").shape
    tensor[3, 1, 0, 2] = 1.0
    assert arena.view(0, "k")[3, 1, 0, 2] == 0x3F80


def test_a_pool_for_so_many_requests_runs_them() -> None:
    recipe = hybrid()
    pages = recipe.pages_for(3, 40, max_scheduled_tokens=16)
    config = recipe.scheduler_config(
        num_device_pages=pages, max_scheduled_tokens=16, max_batch_size=3
    )
    assert Scheduler(config).max_single_request_tokens() >= 40
    assert recipe.pages_for(6, 40, max_scheduled_tokens=16) > pages


WRONG: dict[str, tuple[list[LayerCache], int]] = {
    "window": ([LayerCache("sliding", KV)], 4),
    "a window of a full layer": ([LayerCache("full", KV, window_tokens=3)], 4),
    "divisor": ([LayerCache("full", KV, block_tokens=3)], 4),
    "dtype": ([LayerCache("full", {"k": Field((1,), "float7")})], 4),
    "fields": ([LayerCache("full", {})], 4),
    "other layers": ([LayerCache("full", KV), LayerCache("full", KV, block_tokens=2)], 4),
    "no layer": ([], 4),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_recipe_that_breaks_a_rule(name: str) -> None:
    layers, page_tokens = WRONG[name]
    with pytest.raises(RecipeError):
        Recipe(layers, page_tokens)


def test_every_type_has_its_size() -> None:
    for name, nbytes in DTYPE_BYTES.items():
        if hasattr(np, name):
            assert np.dtype(name).itemsize == nbytes
