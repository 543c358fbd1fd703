"""One engine prefills, another decodes: the output is that of the request alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenspeed.runtime.device import Event
from tokenspeed.runtime.drafter import PromptLookup
from tokenspeed.runtime.local_transfer import LocalTransfer, Side
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.remote import Word
from tokenspeed.runtime.request import Request
from tokenspeed.runtime.simulated import SimulatedDevice
from tokenspeed.scheduler import SchedulerConfig

from .mutations import NothingZeroed
from .split import play_split
from .toy import Toy, ToyLayer
from .world import NeverOver, draw

CHUNK = 20
SEEDS = range(40)
"""Worlds within which each fence that is taken out has to be caught."""


@pytest.mark.parametrize("first", range(0, 60, CHUNK))
def test_two_engines_say_what_each_request_says_alone(first: int) -> None:
    games = [play_split(draw(seed)) for seed in range(first, first + CHUNK)]
    assert sum(game.landed for game in games) >= CHUNK
    assert sum(game.retractions for game in games)


class BothAtOnce(LocalTransfer):
    """A prompt is bootstrapped on both sides as soon as both know of it."""

    def _meet(self, side: Side, request_id: str) -> None:
        super()._meet(side, request_id)
        with self._lock:
            meeting = self._meetings[request_id]
            if len(meeting.knows) == 2 and not meeting.given_up:
                self._say(request_id, meeting, Word.BOOTSTRAPPED, {"prefill"})


@pytest.mark.parametrize("seed", [107, 259])
def test_who_prefills_waits_for_a_place_on_the_decode_engine(seed: int) -> None:
    """Else the prefill engine, which never retracts, fills up with prompts that have no place to
    go, while the decode engine holds its blocks for others that find no place there."""
    world = draw(seed)
    world.drafts = False
    assert play_split(world).landed
    with pytest.raises(NeverOver):
        play_split(world, transfer_type=BothAtOnce, steps_max=600)


@pytest.mark.parametrize("transfer_type", [LocalTransfer, BothAtOnce])
def test_two_prompts_in_opposite_orders_do_not_cross(transfer_type: type[LocalTransfer]) -> None:
    """Either engine has room for one of them; the least of such worlds."""
    pair = Pair(transfer_type, num_device_pages=8)
    a, b = (
        Request(name, list(range(first, first + 10)), 3) for name, first in (("a", 1), ("b", 50))
    )
    for loop, requests in ((pair.prefill, (a, b)), (pair.decode, (b, a))):
        for request in requests:
            loop.submit(request)
    said = pair.play(steps=60)
    if transfer_type is BothAtOnce:
        assert said == []
    else:
        assert sorted(name for name, _ in said) == ["a"] * 3 + ["b"] * 3
        pair.close()


def test_guesses_travel_with_the_prompt() -> None:
    """A verify width of 3: what the prefill engine's drafter guesses is verified by the first
    step of the decode engine, whose own drafter then knows the whole request."""
    pair = Pair(vocabulary=1, decode_input_tokens=3)  # it says 0 and nothing else
    for loop in pair.loops:
        loop.submit(Request("a", [7, 0, 0, 0], 9))
    assert [len(tokens) for _, tokens in pair.play(steps=60)] == [1, 3, 3, 2]
    pair.close()


class Pair:
    """A prefill and a decode engine with a full layer, in one process."""

    def __init__(
        self,
        transfer_type: type[LocalTransfer] = LocalTransfer,
        vocabulary: int = 40,
        **settings: int,
    ) -> None:
        given = {
            "num_device_pages": 40,
            "max_scheduled_tokens": 64,
            "max_batch_size": 4,
            **settings,
        }
        device = SimulatedDevice(0)
        transfer = transfer_type(device, idle_s=0)
        self.loops = []
        for role, peer in zip("PD", (transfer.prefill, transfer.decode)):
            toy = Toy([ToyLayer("full")], 2, vocabulary)
            config = toy.recipe().scheduler_config(
                role=getattr(SchedulerConfig.Role, role), **given
            )
            loop = EngineLoop(
                config, toy, device, drafter=PromptLookup(1), inline=True, peer=peer, name=role
            )
            self.loops.append(loop)
        self.prefill, self.decode = self.loops

    def play(self, steps: int) -> list[tuple[str, tuple[int, ...]]]:
        """What the decode engine says, request by request, output by output."""
        said = []
        for _ in range(steps):
            self.prefill.step()
            said += [(output.request_id, output.tokens) for output in self.decode.step()]
        return said

    def close(self) -> None:
        """Nothing is left."""
        for loop in self.loops:
            assert not loop.has_work and loop.scheduler.active_lcm_blocks() == 0
            loop.close()


def without_fence(name: str) -> type[LocalTransfer]:
    class Without(LocalTransfer):
        def _fence(self, fence: str, event: Event) -> None:
            if fence != name:
                super()._fence(fence, event)

    return Without


class SaysSoAtLaunch(LocalTransfer):
    """A prompt is told as landed when its copy is on its stream."""

    def _is_over(self, event: Event) -> bool:
        return True


# "transfer after prefill" is in `test_local_transfer.py`: here a prompt is handed over when its
# result has reached the host, so that its forward has run.
MUTATIONS: dict[str, type[LocalTransfer]] = {
    "transfer after zeroing": without_fence("transfer after zeroing"),
    "told at launch": SaysSoAtLaunch,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_transfer_without_it_is_caught(name: str) -> None:
    assert any(_goes_wrong(seed, transfer_type=MUTATIONS[name]) for seed in SEEDS)


def test_two_engines_that_zero_nothing_are_caught() -> None:
    assert any(_goes_wrong(seed, executor_type=NothingZeroed) for seed in SEEDS)


def _goes_wrong(seed: int, **mutation: Callable[..., object]) -> bool:
    try:
        play_split(draw(seed), **mutation)  # type: ignore[arg-type]
    except (AssertionError, IndexError, ValueError):
        return True
    return False
