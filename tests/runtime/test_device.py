"""What every device keeps to (`runtime/device.py`), on each that there is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.cpu import CpuDevice
from tokenspeed.runtime.cuda import CudaDevice, why_missing
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.errors import SyncForbidden
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.runtime.simulated import PACES, SimulatedDevice

from tests.runtime.emulated_cupy import emulation
from tests.runtime.emulator import COMPILER

PARENTS = 9
KINDS = ["cpu", *(f"simulated, {pace}" for pace in PACES), "cuda", "cuda, emulated"]

RECIPE = Recipe(
    [
        LayerCache("full", {"k": Field((2, 8), "float16"), "v": Field((2, 8), "float16")}),
        LayerCache("sliding", {"k": Field((3,), "float32")}, window_tokens=8),
    ],
    page_tokens=4,
)


@pytest.fixture(params=KINDS)
def device(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Device]:
    kind, _, variant = request.param.partition(", ")
    made: Device
    with contextlib.ExitStack() as around:
        if variant == "emulated":
            if COMPILER is None:
                pytest.skip("there is no C++ compiler, c++")
            around.enter_context(emulation(tmp_path_factory.mktemp("emulation")))
        if kind == "cuda":
            if reason := why_missing():
                pytest.skip(reason)
            made = CudaDevice()
        elif kind == "simulated":
            made = SimulatedDevice(seed=11, pace=variant)
        else:
            made = CpuDevice()
        yield made
        made.close()


def arenas(device: Device) -> tuple[Arena, Arena]:
    """On the device, and on the host with random bytes."""
    nbytes = PARENTS * RECIPE.layout.parent_bytes
    on_device = Arena(RECIPE.layout, PARENTS, device.alloc_device(nbytes))
    on_host = Arena(RECIPE.layout, PARENTS, device.alloc_host(nbytes))
    rng = np.random.default_rng(3)
    on_host.buffer[...] = rng.integers(1, 256, nbytes, dtype=np.uint8)
    return on_device, on_host


def bytes_of(device: Device, arena: Arena) -> NDArray[np.uint8]:
    """What a device arena holds behind all that is under way on the stream `main`."""
    download = device.download(device.stream("main"), arena.buffer.view(np.int32))
    download.event.wait()
    return download.read().view(np.uint8)


def offsets(group_id: str, blocks: list[int]) -> NDArray[np.int64]:
    return RECIPE.layout.offsets(group_id, np.array(blocks))


def test_memory_comes_zeroed(device: Device) -> None:
    on_device, _ = arenas(device)
    assert on_device.buffer.shape == (PARENTS * RECIPE.layout.parent_bytes,)
    assert not bytes_of(device, on_device).any()
    assert not device.alloc_host(100).any()


@pytest.mark.parametrize("group_id", RECIPE.group_ids)
def test_blocks_go_over_and_come_back(device: Device, group_id: str) -> None:
    on_device, on_host = arenas(device)
    before = on_host.buffer.copy()
    nbytes = RECIPE.layout.groups[group_id].payload_bytes
    there, here = [4, 1, 2, 7], [3, 5, 6, 1]
    main = device.stream("main")
    device.copy_blocks(
        main, on_device, on_host, offsets(group_id, there), offsets(group_id, here), nbytes
    )
    expected = np.zeros_like(before)
    for to, at in zip(offsets(group_id, there), offsets(group_id, here)):
        expected[to : to + nbytes] = before[at : at + nbytes]
    np.testing.assert_array_equal(bytes_of(device, on_device), expected)
    back = [2, 8, 5, 3]
    device.copy_blocks(
        main, on_host, on_device, offsets(group_id, back), offsets(group_id, there), nbytes
    )
    main.record().wait()
    for to, at in zip(offsets(group_id, back), offsets(group_id, there)):
        before[to : to + nbytes] = expected[at : at + nbytes]
    np.testing.assert_array_equal(on_host.buffer, before)


def test_blocks_move_within_the_device(device: Device) -> None:
    on_device, on_host = arenas(device)
    main, nbytes = device.stream("main"), RECIPE.layout.groups["full"].payload_bytes
    device.copy_blocks(
        main, on_device, on_host, offsets("full", [1, 2]), offsets("full", [1, 2]), nbytes
    )
    device.copy_blocks(
        main, on_device, on_device, offsets("full", [4, 3]), offsets("full", [1, 2]), nbytes
    )
    held = bytes_of(device, on_device)
    for to, at in ((4, 1), (3, 2)):
        first = RECIPE.layout.offset("full", to)
        np.testing.assert_array_equal(held[first : first + nbytes], on_host.block("full", at))


def test_blocks_are_zeroed_and_nothing_else(device: Device) -> None:
    on_device, on_host = arenas(device)
    main, nbytes = device.stream("main"), on_host.buffer.nbytes
    device.copy_blocks(
        main, on_device, on_host, np.zeros(1, np.int64), np.zeros(1, np.int64), nbytes
    )
    payload = RECIPE.layout.groups["sliding-8"].payload_bytes
    device.zero_blocks(main, on_device, offsets("sliding-8", [2, 5, 1]), payload)
    expected = on_host.buffer.copy()
    for at in offsets("sliding-8", [2, 5, 1]):
        expected[at : at + payload] = 0
    np.testing.assert_array_equal(bytes_of(device, on_device), expected)


def test_nothing_to_do_is_fine(device: Device) -> None:
    on_device, on_host = arenas(device)
    main, none = device.stream("main"), np.zeros(0, dtype=np.int64)
    device.copy_blocks(main, on_device, on_host, none, none, 16)
    device.zero_blocks(main, on_device, none, 16)
    empty = device.upload(main, "empty", np.zeros((0, 3), dtype=np.int32))
    assert empty.shape == (0, 3)
    download = device.download(main, empty)
    download.event.wait()
    assert download.read().shape == (0, 3)


def test_one_stream_keeps_its_order(device: Device) -> None:
    main = device.stream("main")
    assert device.stream("main") is main and main.name == "main"
    held = device.upload(main, "numbers", np.arange(6, dtype=np.int32).reshape(2, 3))

    def double() -> None:
        held[...] = held * 2

    device.run(main, double)
    download = device.download(main, held)
    device.run(main, double)
    download.event.wait()
    assert download.event.done()
    assert download.read().tolist() == [[0, 2, 4], [6, 8, 10]]


def test_an_upload_is_read_before_it_returns(device: Device) -> None:
    main = device.stream("main")
    sent = np.zeros(1000, dtype=np.int32)
    held = []
    for value in range(20):
        sent[...] = value
        held.append(device.upload(main, "numbers", sent))
    sent[...] = -1
    downloads = [device.download(main, array) for array in held]
    for value, download in enumerate(downloads):
        download.event.wait()
        assert set(download.read().tolist()) == {value}


def test_streams_wait_for_events(device: Device) -> None:
    on_device, on_host = arenas(device)
    nbytes = RECIPE.layout.groups["full"].payload_bytes
    at = offsets("full", [1, 2, 3, 4, 5])
    loads, main, stores = (device.stream(name) for name in ("loads", "main", "stores"))
    expected = on_host.buffer.copy()
    for _ in range(5):
        device.copy_blocks(loads, on_device, on_host, at, at, nbytes)
        main.wait(loads.record())

        def change() -> None:
            on_device.buffer[...] ^= 255

        device.run(main, change)
        stores.wait(main.record())
        device.copy_blocks(stores, on_host, on_device, at[::-1].copy(), at, nbytes)
        loads.wait(stores.record())
        main.wait(stores.record())
        moved = [expected[one : one + nbytes] ^ 255 for one in at]
        for to, block in zip(at[::-1], moved):
            expected[to : to + nbytes] = block
    stores.record().wait()
    np.testing.assert_array_equal(on_host.buffer, expected)


def test_a_round_may_not_wait(device: Device) -> None:
    event = device.stream("main").record()
    with device.forbid_sync():
        event.done()
        with pytest.raises(SyncForbidden):
            event.wait()
        with pytest.raises(SyncForbidden):
            device.synchronize()
        other = threading.Thread(target=event.wait)
        other.start()
        other.join()
        with device.forbid_sync():
            pass
        with pytest.raises(SyncForbidden):
            event.wait()
    event.wait()
    assert event.done()
    device.synchronize()


def test_a_torch_tensor_is_the_same_memory(device: Device) -> None:
    torch = pytest.importorskip("torch")
    on_device, on_host = arenas(device)
    main = device.stream("main")
    tensor = on_device.tensor(0, "v")
    assert tensor.shape == (RECIPE.layout.num_blocks("full", PARENTS), 4, 2, 8)
    assert tensor.dtype == torch.float16

    def write() -> None:
        tensor[5, 2] = 1.0
        tensor[6] = 2.0

    device.run(main, write)
    nbytes = RECIPE.layout.groups["full"].payload_bytes
    at = offsets("full", [5, 6])
    device.copy_blocks(main, on_host, on_device, at, at, nbytes)
    main.record().wait()
    values = on_host.view(0, "v")
    assert (values[5, 2] == 1).all() and not values[5, :2].any() and (values[6] == 2).all()


def test_closing_twice_is_fine(device: Device) -> None:
    device.upload(device.stream("main"), "numbers", np.zeros(4, dtype=np.int32))
    device.close()
    device.close()
