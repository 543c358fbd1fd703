"""The devices without hardware: order, fences, staging, and what the host may see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.cpu import CpuDevice
from tokenspeed.runtime.errors import DeviceFault
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.runtime.simulated import PACES, SimulatedDevice, SimulatedEvent

RECIPE = Recipe([LayerCache("full", {"rows": Field((2,), "uint64")})], page_tokens=2)


def noted(device: Any, stream: str, notes: list[str], name: str) -> None:
    device.run(device.stream(stream), lambda: notes.append(name))


def test_nothing_runs_before_somebody_waits() -> None:
    device, notes = SimulatedDevice(0), list[str]()
    noted(device, "a", notes, "a1")
    event = device.stream("a").record()
    assert notes == []
    event.wait()
    assert notes == ["a1"] and event.done()


@pytest.mark.parametrize("pace", PACES)
def test_one_stream_is_in_order_and_two_are_not(pace: Any) -> None:
    seen = set()
    for seed in range(30):
        device, notes = SimulatedDevice(seed, pace), list[str]()
        for at in range(3):
            noted(device, "a", notes, f"a{at}")
            noted(device, "b", notes, f"b{at}")
        device.synchronize()
        for stream in "ab":
            assert [note for note in notes if note[0] == stream] == [
                f"{stream}{i}" for i in range(3)
            ]
        seen.add(tuple(notes))
    assert len(seen) > 3


def test_a_fence_holds_back_what_comes_behind_it() -> None:
    for seed in range(30):
        device, notes = SimulatedDevice(seed), list[str]()
        noted(device, "b", notes, "b before")
        noted(device, "a", notes, "a")
        device.stream("b").wait(device.stream("a").record())
        noted(device, "b", notes, "b behind")
        device.synchronize()
        assert notes.index("a") < notes.index("b behind")


def test_inside_a_forward_a_wait_lets_other_streams_go_on() -> None:
    device, notes = SimulatedDevice(0), list[str]()
    noted(device, "loads", notes, "layer 0")
    ready = device.stream("loads").record()
    noted(device, "loads", notes, "layer 1")
    forward = device.stream("forward")

    def run() -> None:
        notes.append("begins")
        forward.wait(ready)
        notes.append("reads layer 0")

    device.run(forward, run)
    forward.record().wait()
    assert notes.index("layer 0") < notes.index("reads layer 0")


def test_a_deadlock_is_told() -> None:
    device = SimulatedDevice(0)
    a, b = device.stream("a"), device.stream("b")
    a.wait(late := SimulatedDevice(1).stream("other").record())
    b.wait(a.record())
    with pytest.raises(DeviceFault, match="deadlock"):
        b.record().wait()
    assert not late.done()


def test_the_host_sees_a_download_only_behind_its_event() -> None:
    for seed in range(10):
        device = SimulatedDevice(seed)
        array = np.array([1, 2, 3], dtype=np.int32)
        download = device.download(device.stream("a"), array)
        behind = device.stream("a").record()
        assert isinstance(behind, SimulatedEvent)
        device.pump_until(behind)  # it has run, and nobody has asked
        assert download.read().tolist() == [-1, -1, -1]
        download.event.wait()
        assert download.read().tolist() == [1, 2, 3]


@pytest.mark.parametrize("reused", [False, True])
def test_a_staging_buffer_is_not_written_while_its_copy_is_in_flight(reused: bool) -> None:
    """Scenario 22: uploads of one name, delayed by rounds."""
    device = SimulatedDevice(0, "copies last")
    if reused:
        device.staging._is_free = lambda event: True  # type: ignore[method-assign]
    stream = device.stream("forward")
    arrays = [np.full(8, at, dtype=np.int32) for at in range(6)]
    uploaded = [device.upload(stream, "round", array) for array in arrays]
    for array in arrays:
        array[:] = -5  # the caller's is its own again at once
    device.synchronize()
    right = [(there == at).all() for at, there in enumerate(uploaded)]
    assert all(right) is not reused


def test_staging_buffers_are_used_again_afterwards() -> None:
    device = SimulatedDevice(0)
    stream = device.stream("forward")
    for at in range(50):
        device.upload(stream, "round", np.full(8, at, dtype=np.int32))
        device.synchronize()
    assert len(device.staging._sent["round"]) < 5


@pytest.mark.parametrize("device", [CpuDevice(), SimulatedDevice(3)], ids=lambda d: d.name)
def test_blocks_are_copied_and_zeroed_to_the_byte(device: Any) -> None:
    arenas = [Arena(RECIPE.layout, 6, device.alloc_device(6 * RECIPE.layout.parent_bytes))] * 2
    arenas[1] = Arena(RECIPE.layout, 6, device.alloc_host(6 * RECIPE.layout.parent_bytes))
    on_device, on_host = arenas
    on_device.buffer[:] = np.arange(len(on_device.buffer)) % 251
    before = on_device.buffer.copy()
    layout, stream = RECIPE.layout, device.stream("a")
    nbytes = layout.groups["full"].payload_bytes
    sources, targets = np.array([3, 1]), np.array([2, 5])
    to, at = layout.offsets("full", targets), layout.offsets("full", sources)
    device.copy_blocks(stream, on_host, on_device, to, at, nbytes)
    device.zero_blocks(stream, on_device, layout.offsets("full", sources), nbytes)
    device.synchronize()
    assert (on_host.block("full", 2) == before[layout.offset("full", 3) :][:nbytes]).all()
    assert (on_host.block("full", 5) == before[layout.offset("full", 1) :][:nbytes]).all()
    on_host.block("full", 2)[:] = on_host.block("full", 5)[:] = 0
    assert not on_host.buffer.any()
    changed = np.flatnonzero(before != on_device.buffer)
    assert set(changed // nbytes) == {layout.offset("full", b) // nbytes for b in (1, 3)}
    device.close()
