"""The kernels' bytes on the GPU, for any alignment, in device memory and across the bus."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.cuda import CudaDevice
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe

SIZES = (1, 15, 16, 17, 100, 4096, 16383, 16384, 16400, 100_000, 1 << 20)
COUNT = 37


def filled(device: CudaDevice, nbytes: int, where: str, seed: int) -> tuple[Any, NDArray[np.uint8]]:
    """Random bytes in memory of a kind, and a copy of them."""
    values = np.random.default_rng(seed).integers(1, 256, nbytes, dtype=np.uint8)
    memory = device.alloc_host(nbytes) if where == "host" else device.alloc_device(nbytes)
    if where == "host":
        memory[...] = values
    else:
        memory.set(values)
    device.synchronize()
    return memory, values


def read(device: CudaDevice, memory: Any) -> NDArray[np.uint8]:
    device.synchronize()
    return memory if isinstance(memory, np.ndarray) else memory.get()


def address(memory: Any) -> int:
    return int(memory.ctypes.data if isinstance(memory, np.ndarray) else memory.data.ptr)


def offsets(nbytes: int, shift: int, seed: int) -> NDArray[np.int64]:
    stride = -(-nbytes // 16) * 16 + 16
    places = np.random.default_rng(seed).permutation(COUNT + 5)[:COUNT]
    return places.astype(np.int64) * stride + shift


def room(nbytes: int) -> int:
    return (-(-nbytes // 16) * 16 + 16) * (COUNT + 6)


@pytest.mark.parametrize("shift", [0, 4, 13])
@pytest.mark.parametrize("nbytes", SIZES)
def test_zeroing(device: CudaDevice, nbytes: int, shift: int) -> None:
    memory, expected = filled(device, room(nbytes), "device", nbytes)
    where = offsets(nbytes, shift, nbytes)
    for at in where:
        expected[at : at + nbytes] = 0
    listed = device.xp.asarray(where)
    device.synchronize()
    raw = device.stream("main").raw
    device.launcher.zero_blocks(raw, address(memory), listed.data.ptr, COUNT, nbytes)
    np.testing.assert_array_equal(read(device, memory), expected)


@pytest.mark.parametrize("ends", [("device", "host"), ("host", "device"), ("device", "device")])
@pytest.mark.parametrize("shifts", [(0, 0), (4, 12), (1, 1), (0, 7)])
@pytest.mark.parametrize("nbytes", SIZES)
def test_copies(
    device: CudaDevice, nbytes: int, shifts: tuple[int, int], ends: tuple[str, str]
) -> None:
    target, expected = filled(device, room(nbytes), ends[0], nbytes)
    source, values = filled(device, room(nbytes), ends[1], nbytes + 1)
    to, at = offsets(nbytes, shifts[0], 5), offsets(nbytes, shifts[1], 6)
    for one, other in zip(to, at):
        expected[one : one + nbytes] = values[other : other + nbytes]
    both = device.xp.asarray(np.stack([to, at]))
    device.synchronize()
    device.launcher.copy_blocks(
        device.stream("main").raw,
        address(target),
        address(source),
        both[0].data.ptr,
        both[1].data.ptr,
        COUNT,
        nbytes,
        crosses_bus="host" in ends,
    )
    np.testing.assert_array_equal(read(device, target), expected)
    np.testing.assert_array_equal(read(device, source), values)


RECIPE = Recipe(
    [
        LayerCache("full", {"k": Field((8, 128), "bfloat16"), "odd": Field((7,), "uint8")}),
        LayerCache("sliding", {"k": Field((5,), "float32")}, window_tokens=8),
    ],
    page_tokens=16,
)


@pytest.mark.parametrize("place", [(0, "k"), (0, "odd"), (1, "k")])
def test_rows(device: CudaDevice, place: tuple[int, str]) -> None:
    layout = RECIPE.layout
    group, at = layout.find(*place)
    parents, columns, requests = 65, 10, 6
    memory, expected = filled(device, parents * layout.parent_bytes, "device", 1)
    rng = np.random.default_rng(2)
    ids = np.arange(1, layout.num_blocks(group.group_id, parents))
    table = rng.permutation(ids)[: requests * columns].reshape(requests, columns).astype(np.int32)
    table[rng.random(table.shape) < 0.2] = 0
    tokens, row_bytes = at.shape[0], at.nbytes // at.shape[0]
    row_of, position = (
        axis.ravel().astype(np.int32)
        for axis in np.meshgrid(np.arange(requests), np.arange(columns * tokens), indexing="ij")
    )
    fresh, values = filled(device, len(row_of) * row_bytes, "device", 3)
    gathered = np.zeros_like(values).reshape(len(row_of), row_bytes)
    for row, (request, token) in enumerate(zip(row_of.tolist(), position.tolist())):
        block = int(table[request, token // tokens])
        if block:
            first = layout.offset(group.group_id, block) + at.offset_bytes
            first += token % tokens * row_bytes
            gathered[row] = values[row * row_bytes : (row + 1) * row_bytes]
            expected[first : first + row_bytes] = gathered[row]
    arrays = [device.xp.asarray(one) for one in (row_of, position, table)]
    result, _ = filled(device, len(row_of) * row_bytes, "device", 4)
    start = layout.offset(group.group_id, 0) + at.offset_bytes
    about = (
        arrays[0].data.ptr, arrays[1].data.ptr, len(row_of), arrays[2].data.ptr, columns,
        start, group.block_bytes, row_bytes, tokens,
    )  # fmt: skip
    raw = device.stream("main").raw
    device.launcher.scatter_rows(raw, address(memory), address(fresh), *about)
    device.launcher.gather_rows(raw, address(memory), address(result), *about)
    np.testing.assert_array_equal(read(device, memory), expected)
    np.testing.assert_array_equal(read(device, result), gathered.ravel())


def test_a_torch_tensor_sees_what_a_kernel_wrote(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    nbytes = 9 * RECIPE.layout.parent_bytes
    arena = Arena(RECIPE.layout, 9, device.alloc_device(nbytes))
    tensor, main = arena.tensor(0, "k"), device.stream("main")
    device.run(main, lambda: tensor.fill_(1.0))
    first = RECIPE.layout.offsets("full", np.array([3]))
    device.zero_blocks(main, arena, first, RECIPE.layout.groups["full"].payload_bytes)
    sums: list[Any] = []
    device.run(main, lambda: sums.append(tensor.float().sum(dim=(1, 2, 3))))
    download = device.download(main, sums[0])
    download.event.wait()
    ones = 16 * 8 * 128
    assert download.read().tolist() == [0 if at == 3 else ones for at in range(len(sums[0]))]
