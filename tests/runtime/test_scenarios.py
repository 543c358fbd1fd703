"""The scenarios of `scenarios.md` that concern copies, aborts and late results, on the simulated
device. 22 (staging buffers) is in `test_devices.py`, 30 in `test_local_transfer.py`."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenspeed.runtime.device import Event
from tokenspeed.runtime.local_transfer import LocalTransfer, Side
from tokenspeed.runtime.request import Request
from tokenspeed.scheduler import SchedulerConfig

from .checksums import WatchedDevice, WrongBytes
from .engine import Engine
from .mutations import without_fence
from .toy import Toy, ToyLayer
from .world import draw, play


def test_20_snapshot_retract_and_reload_with_lagging_writes() -> None:
    """The stores lag as long as fences let them; without the fence their bytes are wrong."""
    worlds = [draw(seed, pressed=True) for seed in range(6)]
    for world in worlds:
        world.pace = "copies last"
    games = [play(world) for world in worlds]
    assert sum(game.ordered_stores for game in games) > 5
    assert sum(game.loads for game in games) > 5
    with pytest.raises((WrongBytes, AssertionError)):
        for world in worlds:
            play(world, executor_type=without_fence("round after ordered store"))


def test_21_nothing_is_published_of_a_prompt_that_has_arrived_in_part() -> None:
    prompt = list(range(1, 12))
    device = WatchedDevice(1, "copies last")
    transfer = LocalTransfer(device)
    common: dict[str, Any] = {"device": device, "num_device_pages": 20}
    role = SchedulerConfig.Role
    requests = [Request("a", prompt, 6)]
    prefill = Engine(requests, peer=transfer.prefill, name="P ", role=role.P, **common)
    decode = Engine(
        requests,
        peer=transfer.decode,
        name="D ",
        role=role.D,
        num_host_pages=20,
        enable_kv_cache_events=True,
        **common,
    )
    prefill.submit()
    decode.submit()
    in_transfer = 0
    while "a" not in decode.reasons:
        decode.step()
        if decode.loop.scheduler.pd_transfer_pinned("a"):
            in_transfer += 1
            assert decode.loop.scheduler.drain_kv_events() == []
            assert decode.checks.stores == 0 and not decode.checks._stored
        prefill.loop.step()
    assert in_transfer and decode.loop.scheduler.drain_kv_events()
    assert decode.said["a"] == decode.stories["a"].generated


@pytest.mark.parametrize("depth", [0, 1])
def test_23_probes_loads_and_aborts_leave_no_pin(depth: int) -> None:
    """500 requests at each depth, some given up before, during or after their loads."""
    r = random.Random(depth)
    families = [[1000 * f + at for at in range(16)] for f in range(6)]
    requests = [
        Request(f"r{at}", [*r.choice(families)[: r.randrange(2, 17)], at, 7], r.choice((1, 2, 5)))
        for at in range(500)
    ]
    engine = Engine(
        requests,
        seed=depth,
        num_device_pages=24,
        num_host_pages=40,
        overlap_schedule_depth=depth,
        max_batch_size=4,
    )
    waiting = list(engine.requests)
    give_up: dict[str, int] = {}
    step = 0
    while waiting or engine.loop.has_work:
        for _ in range(r.randrange(3)):
            if waiting:
                name = waiting.pop(0)
                engine.submit(name)
                if r.random() < 0.4:
                    give_up[name] = step + r.randrange(6)
        for name in [name for name, at in give_up.items() if at == step]:
            engine.loop.abort(name)
        engine.step()
        step += 1
    assert set(engine.reasons) == set(engine.requests)
    assert engine.checks.loads > 100 and "abort" in engine.reasons.values()
    engine.close()


def test_24_every_reload_brings_the_bytes_of_its_key() -> None:
    """64 prompts cycled three times through 32 device and 256 host blocks."""
    prompts = [[100 * at + token for token in range(9)] for at in range(64)]
    engine = Engine(
        [Request(f"r{c}-{at}", p, 1) for c in range(3) for at, p in enumerate(prompts)],
        num_device_pages=33,
        num_host_pages=257,
    )
    names = list(engine.requests)
    while names:
        engine.submit(*names[:4])
        del names[:4]
        engine.run()
    # Four whole pages a prompt: all of them come back twice.
    assert engine.checks.loads == 2 * 64 * 4
    engine.close()


class RunsWhenWaitedFor(WatchedDevice):
    """Nothing moves in the background."""

    def drift(self) -> None:
        pass


def test_25_a_newcomer_waits_for_a_store_to_let_states_go() -> None:
    """They are cached and pinned by a store that lags. Nothing is half allocated, and the newcomer
    is admitted in the very round that is told of the store's end."""
    layers = (ToyLayer("full"), ToyLayer("state"))
    prompts = [list(range(first, first + 37)) for first in (100, 200)]
    pages = Toy(layers, 4).recipe().pages_for(1, 39, max_scheduled_tokens=64)
    engine = Engine(
        [Request("a", prompts[0], 2), Request("b", prompts[1], 2)],
        layers=layers,
        page_tokens=4,
        device=RunsWhenWaitedFor(0, "copies last"),
        num_device_pages=pages,
        num_host_pages=40,
    )
    engine.submit("a")
    while "a" not in engine.reasons:
        engine.step()
    engine.submit("b")
    scheduler, waited = engine.loop.scheduler, 0
    while scheduler.waiting_size():
        stored = engine.checks.stores
        engine.step()
        waited += bool(scheduler.waiting_size())
    assert waited and engine.checks.stores > stored
    engine.run()
    assert engine.reasons == {"a": "length", "b": "length"}
    engine.close()


class NobodyWaits(LocalTransfer):
    """A copy is over when the device comes to it."""

    first: Event | None = None
    """Of the first copy."""

    def _copy(self, *meeting: Any) -> Event:
        event = super()._copy(*meeting)
        self.first = self.first or event
        return event

    def _wait(self, side: Side) -> None:
        pass


class SaysSoAtLaunch(NobodyWaits):
    """The word on `a` comes when its copy is on its stream."""

    def _is_over(self, event: Event) -> bool:
        return event is self.first or super()._is_over(event)


@pytest.mark.parametrize("transfer_type", [NobodyWaits, SaysSoAtLaunch])
def test_29_blocks_of_who_is_given_up_wait_for_the_late_write(
    transfer_type: type[NobodyWaits],
) -> None:
    """`a`'s blocks are being written when it is aborted, and `b` needs some of them. A word that
    comes before the write hands them on too early, and `b` meets `a`'s bytes."""
    is_true = transfer_type is NobodyWaits
    right = [_given_up_while_it_lands(transfer_type, is_true, seed) for seed in range(8)]
    assert all(right) if is_true else not all(right)


def _given_up_while_it_lands(transfer_type: type[NobodyWaits], is_true: bool, seed: int) -> bool:
    """Whether `b` says what it should; if the word `is_true`, `a`'s blocks are fenced up to it."""
    device = RunsWhenWaitedFor(seed, "copies last")
    transfer = transfer_type(device, idle_s=0)
    requests = [Request("a", list(range(1, 10)), 2), Request("b", list(range(50, 59)), 6)]
    role = SchedulerConfig.Role
    prefill = Engine(
        requests, device=device, peer=transfer.prefill, name="P ", role=role.P, num_device_pages=20
    )
    decode = Engine(
        requests, device=device, peer=transfer.decode, name="D ", role=role.D, num_device_pages=9
    )
    prefill.submit("a")
    decode.submit("a")
    while transfer.first is None:
        decode.step()
        prefill.loop.step()
    decode.loop.abort("a")
    prefill.submit("b")
    decode.submit("b")
    try:
        for _ in range(8):
            decode.step()
            prefill.loop.step()
            assert not is_true or decode.loop.scheduler.waiting_size() == 1
        transfer.first.wait()  # the late write lands
        while "b" not in decode.reasons:
            decode.step()
            prefill.loop.step()
            device.synchronize()
    except AssertionError:
        if is_true:
            raise
        return False
    decode.run()
    decode.close()
    return decode.reasons == {"a": "abort", "b": "length"}


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("depth", [0, 1])
def test_26_28_an_abort_at_each_edge(depth: int, at: int) -> None:
    """Between plan, launch, result and acknowledgement: one end, no token behind it, and all
    blocks come back."""
    layers = (ToyLayer("full"), ToyLayer("sliding", 3))
    prompt = list(range(1, 10))
    for seed in range(4):
        engine = Engine(
            [Request("a", prompt, 4), Request("b", prompt, 4), Request("c", [5, 4, 3], 8)],
            layers=layers,
            seed=seed,
            overlap_schedule_depth=depth,
            max_scheduled_tokens=6,
            num_device_pages=14,
            num_host_pages=30,
        )
        engine.submit("a")
        engine.run()
        assert engine.loop.scheduler.clear_l1_cache()  # so that b loads back
        engine.submit("b", "c")
        for _ in range(at):
            engine.step()
        over = set(engine.reasons)
        engine.loop.abort("b")
        engine.step()
        assert engine.reasons["b"] == ("length" if "b" in over else "abort")
        engine.run()
        assert engine.reasons["c"] == "length"
        engine.close()


def test_27_a_result_that_is_out_when_its_request_ends() -> None:
    """Depth 1: the forward behind the last one is under way, and its token counts for nobody."""
    first = Engine([Request("a", [1, 2, 3], 6)], num_device_pages=20)
    stop = first.stories["a"].generated[2]
    ends = first.stories["a"].generated.index(stop) + 1
    engine = Engine(
        [
            Request("a", [1, 2, 3], 6, stop_token_ids=frozenset([stop])),
            Request("b", [3, 4, 5], 9),
        ],
        num_device_pages=20,
        overlap_schedule_depth=1,
    )
    engine.submit()
    engine.run()
    assert engine.reasons == {"a": "stop", "b": "length"}
    assert engine.said["a"] == first.stories["a"].generated[:ends]
    assert engine.said["b"] == engine.stories["b"].generated
    engine.close()
