"""The loop: who may wait where, failures that fail their requests, and clean ends."""

from __future__ import annotations

import ast
import inspect
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenspeed import runtime
from tokenspeed.runtime.cpu import CpuDevice
from tokenspeed.runtime.drafter import PromptLookup
from tokenspeed.runtime.errors import (
    DeviceFault,
    EngineClosed,
    ErrorCode,
    ForwardFault,
    SyncForbidden,
)
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Output, Request
from tokenspeed.runtime.runner import ForwardInput, ForwardOutput
from tokenspeed.runtime.simulated import SimulatedDevice
from tokenspeed.scheduler import RequestError, UnsupportedError

from .engine import Engine
from .toy import Toy, ToyLayer, alone

PROMPT = list(range(1, 10))
ROOT = Path(runtime.__file__).parent


def plain(toy: Toy, device: Any = None, **settings: Any) -> EngineLoop:
    given = {"num_device_pages": 40, "max_scheduled_tokens": 64, "max_batch_size": 8, **settings}
    return EngineLoop(toy.recipe().scheduler_config(**given), toy, device or CpuDevice())


def drain(loop: EngineLoop) -> list[Output]:
    outputs = []
    while loop.has_work:
        outputs += loop.step()
    return outputs


def calls(name: str) -> list[tuple[str, str]]:
    """Module and function of every call of a method of that name in the runtime."""
    found = []
    for path in sorted(ROOT.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    called = node.func if isinstance(node, ast.Call) else None
                    if isinstance(called, ast.Attribute) and called.attr == name:
                        found.append((path.stem, function.name))
    return found


def test_advance_has_two_sites_at_the_head_and_the_tail_of_a_round() -> None:
    assert calls("advance") == [("loop", "step")] * 2
    source = inspect.getsource(EngineLoop.step)
    order = [source.index(part) for part in (".advance(", "next_execution_plan", "_commit")]
    assert order == sorted(order) and source.rindex(".advance(") > order[-1]


def test_the_control_side_waits_in_the_commit_only() -> None:
    waits = {*calls("wait_for_results"), *calls("wait_for_copies")}
    # `_fail` is part of taking results: nothing may be under way when a cache is cleared.
    assert {name for module, name in waits if module == "loop"} == {"_commit", "_fail"}


@pytest.mark.parametrize("make", [CpuDevice, lambda: SimulatedDevice(0)])
def test_a_model_that_waits_for_the_device_fails(make: Any) -> None:
    """On the forward thread's round, whoever waits is told."""

    class Waits(Toy):
        def bind(self, arena: Any, device: Any) -> None:
            super().bind(arena, device)
            self.event = device.stream("x").record()

        def forward(self, batch: ForwardInput) -> ForwardOutput:
            self.event.wait()
            return super().forward(batch)

    device = make()
    loop = plain(Waits([ToyLayer("full")], 2), device)
    loop.submit(Request("a", PROMPT, 3))
    outputs = drain(loop)
    loop.close()
    if isinstance(device, CpuDevice):
        (output,) = outputs
        assert isinstance(output.error, ForwardFault)
        assert isinstance(output.error.__cause__, SyncForbidden)
    else:
        assert (
            outputs[-1].finish_reason == "length"
        )  # runs when its turn comes: nothing to wait for
    with device.forbid_sync(), pytest.raises(SyncForbidden):
        device.stream("x").record().wait()
    device.stream("x").record().wait()


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("early", [True, False])
def test_a_failed_forward_fails_its_requests_and_not_the_engine(depth: int, early: bool) -> None:
    toy = Toy([ToyLayer("full")], 2)
    toy.raises, toy.raises_early = {"bad": 2}, early
    loop = plain(toy, overlap_schedule_depth=depth, num_host_pages=40)
    loop.submit(Request("bad", PROMPT, 9))
    loop.submit(Request("beside", [5, 6, 7], 9))
    failed = [output for output in drain(loop) if output.finish_reason == "error"]
    assert sorted(output.request_id for output in failed) == ["bad", "beside"]
    for output in failed:
        assert output.error is not None and output.error.code is ErrorCode.FORWARD
        assert isinstance(output.error.__cause__, ArithmeticError)
    loop.submit(Request("next", PROMPT, 5))
    said = [token for output in drain(loop) for token in output.tokens]
    assert said == alone(toy, PROMPT, 5).generated
    assert loop.scheduler.active_lcm_blocks() == 0
    loop.close()


def test_who_was_planned_behind_a_failure_starts_over_and_ends_right() -> None:
    """Depth 1: `late` is admitted while the failing forward is out, and meets what it published."""
    for fails_after in range(3):
        engine = Engine(
            [Request("bad", [*PROMPT, 1], 9), Request("late", PROMPT, 9)],
            num_device_pages=60,
            num_host_pages=60,
            overlap_schedule_depth=1,
            max_scheduled_tokens=8,
        )
        engine.toy.raises = {"bad": fails_after}
        engine.submit("bad")
        for _ in range(fails_after + 1):
            engine.step()
        if "bad" not in engine.reasons:
            engine.submit("late")
            engine.run()
            assert engine.reasons["bad"] == "error"
            if engine.reasons["late"] == "length":
                assert engine.said["late"] == engine.stories["late"].generated
        engine.close()


def test_a_close_with_work_in_flight() -> None:
    for depth in (0, 1):
        device = SimulatedDevice(depth)
        toy = Toy([ToyLayer("full")], 2)
        loop = plain(toy, device, overlap_schedule_depth=depth, num_host_pages=40)
        loop.submit(Request("a", PROMPT, 9))
        loop.submit(Request("b", [4, 5], 9))
        for _ in range(4):
            loop.step()
        ends = loop.close()
        assert sorted((end.request_id, end.finish_reason) for end in ends) == [
            ("a", "abort"),
            ("b", "abort"),
        ]
        assert all(end.error is not None and end.error.code is ErrorCode.CLOSED for end in ends)
        assert loop.close() == []
        with pytest.raises(EngineClosed):
            loop.step()
        with pytest.raises(EngineClosed):
            loop.submit(Request("c", PROMPT, 1))
        assert not any("tokenspeed-forward" in thread.name for thread in threading.enumerate())


def test_an_end_that_is_asked_for_too_late_is_not_the_next_requests() -> None:
    """Who asks means the request that had the name, and a client may use it again."""
    loop = plain(Toy([ToyLayer("full")], 2))
    for end in (loop.abort, loop.finish):
        loop.submit(Request("a", PROMPT, 3))
        assert drain(loop)[-1].finish_reason == "length"
        end("a")
        loop.submit(Request("a", PROMPT, 3))
        assert drain(loop)[-1].finish_reason == "length"
    loop.close()


def test_requests_that_cannot_be_taken() -> None:
    loop = plain(Toy([ToyLayer("full")], 2))
    loop.submit(Request("a", PROMPT, 3))
    wrong = [
        Request("a", PROMPT, 3),
        Request("b", [], 3),
        Request("c", PROMPT, 0),
        Request("d", PROMPT, 10**6),
    ]
    for request in wrong:
        with pytest.raises(RequestError, match=repr(request.request_id)):
            loop.submit(request)
    with pytest.raises(RequestError, match="request 'e': declared_new_tokens = -5: it is "):
        loop.submit(Request("e", PROMPT, 3, declared_new_tokens=-5))
    assert drain(loop)[-1].request_id == "a"
    loop.close()


def test_what_crosses_to_the_forward_thread_is_frozen() -> None:
    rounds = []

    class Keeps(RoundExecutor):
        def carry_out(self, round_: Any) -> Any:
            rounds.append(round_)
            return super().carry_out(round_)

    engine = Engine([Request("a", PROMPT, 6)], num_device_pages=20, executor_type=Keeps)
    engine.submit()
    engine.run()
    batches = [round_.batch for round_ in rounds if round_.batch is not None]
    assert len(batches) == 6
    with pytest.raises(AttributeError):
        batches[0].width = 2
    lengths = [batch.query_start.tolist() for batch in batches]
    assert lengths == [[0, len(PROMPT)], *[[0, 1]] * 5]  # not what the scheduler has come to since


def test_a_device_that_breaks_reaches_the_caller_and_the_engine_closes() -> None:
    class Breaks(RoundExecutor):
        def carry_out(self, round_: Any) -> Any:
            if round_.number == 2:
                raise DeviceFault("unplugged")
            return super().carry_out(round_)

    for inline in (True, False):
        toy = Toy([ToyLayer("full")], 2)
        config = toy.recipe().scheduler_config(
            num_device_pages=40, max_scheduled_tokens=64, max_batch_size=8
        )
        loop = EngineLoop(config, toy, CpuDevice(), inline=inline, executor_type=Breaks)
        loop.submit(Request("a", PROMPT, 9))
        with pytest.raises(DeviceFault, match="unplugged"):
            drain(loop)
        assert [end.request_id for end in loop.close()] == ["a"]


def test_an_external_store_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="enable_l3_storage"):
        plain(Toy([ToyLayer("full")], 2), enable_l3_storage=True, num_host_pages=40)


def test_a_request_as_long_as_the_pool_can_hold() -> None:
    """At each width, with nothing accepted but what is sampled: the tables have room."""
    layers = [ToyLayer("full"), ToyLayer("state"), ToyLayer("sliding", 3)]
    for width in (1, 3):
        toy = Toy(layers, 2)
        loop = plain(toy, num_device_pages=24, decode_input_tokens=width, max_batch_size=1)
        new_tokens = loop.context_tokens - len(PROMPT) - width
        for declared in (None, 0):
            loop.submit(Request("a", PROMPT, new_tokens, declared_new_tokens=declared))
            outputs = drain(loop)
            said = [token for output in outputs for token in output.tokens]
            if outputs[-1].finish_reason == "length":
                assert said == alone(toy, PROMPT, new_tokens).generated
            else:  # without a budget it may outgrow the pool, and is told
                assert declared == 0 and outputs[-1].error is not None
        loop.close()


@pytest.mark.parametrize("depth", [0, 1])
def test_as_many_rounds_are_ahead_as_the_depth_says(depth: int) -> None:
    order: list[str] = []

    class Notes(RoundExecutor):
        def carry_out(self, round_: Any) -> Any:
            order.append(f"launch {round_.number}")
            return super().carry_out(round_)

    engine = Engine(
        [Request("a", PROMPT, 3)],
        num_device_pages=20,
        overlap_schedule_depth=depth,
        executor_type=Notes,
    )
    land = engine.loop._land

    def noted(submission: Any, *rest: Any) -> Any:
        order.append(f"land {submission.round.number}")
        return land(submission, *rest)

    engine.loop._land = noted  # type: ignore[assignment, method-assign]
    engine.submit()
    engine.run()
    inside = "launch 0, land 0, launch 1, land 1, launch 2, land 2"
    ahead = "launch 0, launch 1, land 0, launch 2, land 1"
    assert ", ".join(order).startswith((inside, ahead)[depth])


def test_drafts_are_taken_where_they_are_right() -> None:
    """A verify width of 4: the same output, in fewer rounds."""
    toy = Toy([ToyLayer("full"), ToyLayer("state")], 2, vocabulary=2)
    steps = {}
    for width in (1, 4):
        config = toy.recipe().scheduler_config(
            num_device_pages=120,
            max_scheduled_tokens=64,
            max_batch_size=8,
            decode_input_tokens=width,
            overlap_schedule_depth=1,
        )
        loop = EngineLoop(config, toy, CpuDevice(), drafter=PromptLookup(2))
        loop.submit(Request("a", PROMPT, 60))
        said: list[int] = []
        steps[width] = 0
        while loop.has_work:
            for output in loop.step():
                said += output.tokens
            steps[width] += 1
        assert said == alone(toy, PROMPT, 60).generated
        loop.close()
    assert steps[4] < 0.8 * steps[1]


def test_prompt_lookup_proposes_what_followed_last() -> None:
    history = np.array([[1, 2, 3, 1, 2, 9, 1, 2, 0, 0], [5, 6, 7, 8, 0, 0, 0, 0, 0, 0]], np.int32)
    lengths = np.array([8, 4], np.int32)
    drafted = PromptLookup(2).draft(np, history, lengths, 4)
    assert drafted.tolist() == [[9, 1, 2, 2], [8, 8, 8, 8]]
    assert drafted.dtype == np.int32
