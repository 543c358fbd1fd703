"""Streams, fences and staging on the GPU, with work that takes long enough to go wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.cuda import CudaDevice
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe

LAYOUT = Recipe([LayerCache("full", {"k": Field((1 << 18,), "uint8")})], page_tokens=1).layout
BLOCK = LAYOUT.groups["full"].payload_bytes
PARENTS = 257


@pytest.fixture
def arenas(device: CudaDevice) -> tuple[Arena, Arena]:
    """64 MiB on the device, and pinned."""
    nbytes = PARENTS * LAYOUT.parent_bytes
    on_host = Arena(LAYOUT, PARENTS, device.alloc_host(nbytes))
    return Arena(LAYOUT, PARENTS, device.alloc_device(nbytes)), on_host


@pytest.fixture
def busy(device: CudaDevice) -> Callable[[float], None]:
    """Puts so many ms of copies on the stream `main`, or more on a slower card."""
    scratch = device.alloc_device(1 << 31)
    half = len(scratch) // 2

    def busy(ms: float) -> None:
        def work() -> None:
            for _ in range(int(2 * ms)):  # half a ms each at 4 TB/s, read and written
                scratch[:half] = scratch[half:]

        device.run(device.stream("main"), work)

    return busy


def blocks(first: int, count: int) -> Any:
    return LAYOUT.offsets("full", np.arange(first, first + count))


def test_putting_work_on_a_stream_does_not_wait(
    device: CudaDevice, arenas: tuple[Arena, Arena], busy: Callable[[float], None]
) -> None:
    near, far = arenas
    main = device.stream("main")
    busy(1)  # first use compiles and allocates
    device.upload(main, "numbers", np.arange(100, dtype=np.int32))
    device.copy_blocks(main, far, near, blocks(1, 9), blocks(3, 9), 64)
    device.download(main, near.buffer[:64])
    device.synchronize()

    busy(200)
    behind = main.record()
    start = time.perf_counter()
    with device.forbid_sync():
        for _ in range(3):
            held = device.upload(main, "numbers", np.arange(100, dtype=np.int32))
            device.copy_blocks(main, far, near, blocks(1, 9), blocks(3, 9), 64)
            device.zero_blocks(main, near, blocks(20, 9), 64)
            device.download(main, held)
    spent = time.perf_counter() - start
    assert not behind.done(), "the work ahead was too short to tell"
    assert spent < 0.05
    behind.wait()
    assert behind.done()


def test_staging_is_not_used_again_while_in_flight(
    device: CudaDevice, busy: Callable[[float], None]
) -> None:
    main = device.stream("main")
    busy(100)
    held = [
        device.upload(main, "numbers", np.full(5000, value, dtype=np.int32)) for value in range(60)
    ]
    downloads = [device.download(main, one) for one in held]
    for value, download in enumerate(downloads):
        download.event.wait()
        assert set(download.read().tolist()) == {value}


@pytest.mark.parametrize("nbytes", [4096, BLOCK])
def test_a_store_takes_what_was_there_before_the_zeroing(
    device: CudaDevice,
    arenas: tuple[Arena, Arena],
    busy: Callable[[float], None],
    nbytes: int,
) -> None:
    """The order of a round: forward, ordered store, zeroing, load, forward (runtime.md)."""
    near, far = arenas
    main, stores, loads = (device.stream(name) for name in ("main", "stores", "loads"))
    where, elsewhere = blocks(1, 100), blocks(130, 100)[::-1].copy()
    for value in range(1, 6):
        busy(20)

        def forward(value: int = value) -> None:
            near.buffer[...] = value

        device.run(main, forward)
        stores.wait(main.record())
        device.copy_blocks(stores, far, near, elsewhere, where, nbytes)
        main.wait(stores.record())
        device.zero_blocks(main, near, where, nbytes)
        loads.wait(main.record())
        device.copy_blocks(loads, near, far, where, elsewhere, nbytes // 2)
        main.wait(loads.record())
        download = device.download(main, near.buffer)
        download.event.wait()
        held = download.read()
        for at in where:
            assert (held[at : at + nbytes // 2] == value).all()
            assert not held[at + nbytes // 2 : at + nbytes].any()
        for at in elsewhere:
            assert (far.buffer[at : at + nbytes] == value).all()


def test_pageable_memory_is_refused(device: CudaDevice, arenas: tuple[Arena, Arena]) -> None:
    nbytes = PARENTS * LAYOUT.parent_bytes
    pageable = Arena(LAYOUT, PARENTS, np.zeros(nbytes, dtype=np.uint8))
    with pytest.raises(DeviceFault, match="alloc_host"):
        device.copy_blocks(
            device.stream("main"), arenas[0], pageable, blocks(1, 2), blocks(1, 2), 64
        )


def test_a_device_too_small_says_so(device: CudaDevice) -> None:
    with pytest.raises(DeviceFault, match="bytes on the device"):
        device.alloc_device(1 << 46)
    assert not device.alloc_device(64).any()
