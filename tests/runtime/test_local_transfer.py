"""The transfer in one process, on bytes."""

from __future__ import annotations

import numpy as np
import pytest
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.local_transfer import LocalTransfer
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.runtime.remote import Heard, RemoteBlocks, Word
from tokenspeed.runtime.simulated import SimulatedDevice

from .test_split import without_fence

RECIPE = Recipe([LayerCache("full", {"rows": Field((2,), "uint64")})], page_tokens=2)


def handed(transfer: LocalTransfer, device: SimulatedDevice) -> tuple[Arena, Arena]:
    """A request of three blocks that both sides have handed over, nothing of it run yet: the
    prefill side writes its blocks, the decode side zeroes them."""
    nbytes = 8 * RECIPE.layout.parent_bytes
    source, target = (Arena(RECIPE.layout, 8, device.alloc_device(nbytes)) for _ in range(2))
    target.buffer[:] = 9
    slots = {"full": np.arange(3)}
    for end in (transfer.prefill, transfer.decode):
        end.meet("a")
    writes, zeroes = device.stream("writes"), device.stream("zeroes")
    device.run(writes, lambda: source.view(0, "rows").__setitem__(slice(1, 4), 5))
    blocks = {"full": np.array([1, 2, 3], dtype=np.int32)}
    sent = RemoteBlocks("a", 6, slots, blocks, token=7)
    transfer.prefill.hand_over(source, [sent], writes.record())
    blocks = {"full": np.array([4, 6, 2], dtype=np.int32)}
    device.zero_blocks(zeroes, target, RECIPE.layout.offsets("full", blocks["full"]), 32)
    transfer.decode.hand_over(target, [RemoteBlocks("a", 6, slots, blocks)], zeroes.record())
    return source, target


@pytest.mark.parametrize("name", ["nothing", "transfer after prefill", "transfer after zeroing"])
def test_both_fences_are_needed(name: str) -> None:
    right = []
    for seed in range(20):
        device = SimulatedDevice(seed)
        transfer = without_fence(name)(device)
        _, target = handed(transfer, device)
        transfer.decode.wait()
        device.synchronize()
        right.append(bool((target.view(0, "rows")[[4, 6, 2]] == 5).all()))
    assert all(right) if name == "nothing" else not all(right)


def test_the_last_word_comes_to_both_when_the_copy_is_over() -> None:
    device = SimulatedDevice(0, "copies last")
    transfer = LocalTransfer(device)
    handed(transfer, device)
    met = [Heard("a", Word.BOOTSTRAPPED)]
    assert transfer.prefill.heard() == met
    transfer.decode.give_up("a")  # too late: the copy is on its way, and so is its word
    transfer.decode.wait()
    assert transfer.decode.heard() == [*met, Heard("a", Word.LANDED, 7)]
    assert transfer.prefill.heard() == [Heard("a", Word.LANDED, 7)]
    assert transfer.prefill.heard() == transfer.decode.heard() == []


def test_a_prompt_is_bootstrapped_where_it_lands_first() -> None:
    transfer = LocalTransfer(SimulatedDevice(0))
    transfer.prefill.meet("a")
    transfer.decode.meet("a")
    met = [Heard("a", Word.BOOTSTRAPPED)]
    assert (transfer.prefill.heard(), transfer.decode.heard()) == ([], met)
    arena = Arena(RECIPE.layout, 8, np.zeros(8 * RECIPE.layout.parent_bytes, dtype=np.uint8))
    landing = RemoteBlocks("a", 6, {}, {})
    transfer.decode.hand_over(arena, [landing], SimulatedDevice(0).stream("zeroes").record())
    assert (transfer.prefill.heard(), transfer.decode.heard()) == (met, [])


def test_who_gives_up_before_the_other_knows() -> None:
    """Scenario 30: the decode side rejects before admission, the prefill side is told."""
    transfer = LocalTransfer(SimulatedDevice(0))
    transfer.decode.meet("a")
    transfer.decode.give_up("a")
    assert transfer.decode.heard() == [Heard("a", Word.FAILED)]
    assert transfer.prefill.heard() == []
    transfer.prefill.meet("a")
    assert transfer.prefill.heard() == [Heard("a", Word.FAILED)]
    transfer.prefill.meet("a")  # the same name, for another request
    transfer.decode.meet("a")
    assert transfer.decode.heard() == [Heard("a", Word.BOOTSTRAPPED)]
