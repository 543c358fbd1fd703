"""What is the device `cuda`'s own, on the emulated CuPy: ways of copying, faults, staging."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenspeed.runtime import cuda
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.runtime.runs import Runs

from tests.runtime.emulated_cupy import Fault, Function, emulation
from tests.runtime.emulator import COMPILER

LAYOUT = Recipe([LayerCache("full", {"k": Field((64,), "uint8")})], page_tokens=4).layout


@pytest.fixture
def device(tmp_path: Any) -> Iterator[cuda.CudaDevice]:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler, c++")
    with emulation(tmp_path):
        yield cuda.CudaDevice()


def arenas(device: cuda.CudaDevice) -> tuple[Arena, Arena]:
    nbytes = 20 * LAYOUT.parent_bytes
    near = Arena(LAYOUT, 20, device.alloc_device(nbytes))
    far = Arena(LAYOUT, 20, device.alloc_host(nbytes))
    far.buffer[...] = np.random.default_rng(1).integers(1, 256, nbytes, dtype=np.uint8)
    return near, far


def offsets(ids: list[int]) -> NDArray[np.int64]:
    return LAYOUT.offsets("full", np.array(ids))


def joined(targets: list[int], sources: list[int], nbytes: int) -> list[tuple[int, int, int]]:
    runs = Runs.of(np.array(targets, np.int64), np.array(sources, np.int64), nbytes)
    assert len(runs) == len(list(runs))
    return list(runs)


def test_copies_that_continue_one_another_are_joined() -> None:
    assert joined([], [], 8) == []
    assert joined([16], [0], 8) == [(16, 0, 8)]
    assert joined([16, 24, 32, 48], [0, 8, 16, 24], 8) == [(16, 0, 24), (48, 24, 8)]
    assert joined([0, 8, 16], [0, 16, 24], 8) == [(0, 0, 8), (8, 16, 16)]
    assert joined([8, 0], [8, 0], 8) == [(8, 8, 8), (0, 0, 8)]
    assert Runs.of(np.array([0, 8, 64]), np.array([0, 8, 64]), 8).mean_nbytes == 12


@pytest.mark.parametrize(
    ("ids", "launches"), [([1, 2, 3, 4, 5, 6], 0), ([1, 3, 5, 7], 1), ([6, 5, 4], 1)]
)
def test_long_runs_take_the_copy_engine(
    device: cuda.CudaDevice, monkeypatch: pytest.MonkeyPatch, ids: list[int], launches: int
) -> None:
    launched: list[str] = []
    launch = Function.__call__

    def counted(self: Function, *args: Any, **kwargs: Any) -> None:
        launched.append(self._kernel)
        launch(self, *args, **kwargs)

    monkeypatch.setattr(Function, "__call__", counted)
    block = LAYOUT.groups["full"].block_bytes
    monkeypatch.setattr(cuda, "COPY_ENGINE_BYTES", 3 * block)
    near, far = arenas(device)
    device.copy_blocks(device.stream("main"), near, far, offsets(ids), offsets(ids), block)
    assert launched == ["copy_blocks"] * launches
    for at in offsets(ids):
        assert bytes(near.buffer[at : at + block]) == bytes(far.buffer[at : at + block])


def test_pageable_memory_is_refused(device: cuda.CudaDevice) -> None:
    near, _ = arenas(device)
    pageable = Arena(LAYOUT, 20, np.zeros(20 * LAYOUT.parent_bytes, dtype=np.uint8))
    with pytest.raises(DeviceFault, match="alloc_host"):
        device.copy_blocks(device.stream("main"), near, pageable, offsets([1]), offsets([1]), 16)


def test_what_cuda_says_becomes_a_fault(
    device: cuda.CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise Fault("out of memory")

    monkeypatch.setattr(device.xp, "zeros", fails)
    with pytest.raises(DeviceFault, match="1234 bytes on the device: out of memory"):
        device.alloc_device(1234)
    monkeypatch.setattr(device.xp.cuda, "PinnedMemory", fails)
    with pytest.raises(DeviceFault, match="1234 bytes of pinned memory: out of memory"):
        device.alloc_host(1234)
    event = device.stream("main").record()
    monkeypatch.setattr(type(event.raw), "synchronize", fails)
    with pytest.raises(DeviceFault, match="an operation: out of memory"):
        event.wait()


def test_a_download_may_be_of_a_part(device: cuda.CudaDevice) -> None:
    main = device.stream("main")
    held = device.upload(main, "numbers", np.arange(12, dtype=np.int32).reshape(3, 4))
    download = device.download(main, held[:, 1])
    download.event.wait()
    assert download.read().tolist() == [1, 5, 9]


def test_without_a_gpu_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy cannot be imported" in (cuda.why_missing() or "")
    with pytest.raises(DeviceFault, match=r"CuPy cannot be imported: .*tokenspeed-core\[cu12\]"):
        cuda.CudaDevice()
