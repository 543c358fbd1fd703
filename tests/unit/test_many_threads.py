"""Eight threads on the same objects at once, with a GIL or without: nothing is lost or torn."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from tokenspeed.scheduler import (
    ExecutionEvent,
    ExecutionPlan,
    ForwardEvent,
    RequestSpec,
    Scheduler,
    SchedulerConfig,
)

from .engine import config, results

THREADS = 8
BLOCKS = 256
NEW_TOKENS = 6
"""Output of a request, in tokens; one that is aborted may have less."""
BUSY_S = 1.0


def together(work: Callable[[int], None]) -> None:
    """Runs `work` with the numbers of eight threads, which start at once; raises what it raises."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> None:
        barrier.wait(timeout=60)
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for job in [pool.submit(run, number) for number in range(THREADS)]:
            job.result(timeout=60)


def test_a_shared_event_loses_nothing_while_it_is_carried_out() -> None:
    scheduler, event, each = Scheduler(config()), ExecutionEvent(), 1000

    def work(number: int) -> None:
        for i in range(each):
            assert event.add_event(ForwardEvent.Finish(f"{number}.{i}")) is event
            if i % 20 == number:
                scheduler.advance(event)  # nobody has these names, so all of them are ignored

    together(work)
    assert len(event) == THREADS * each
    assert f"{THREADS * each} in all" in repr(event)


def test_a_shared_spec_is_read_as_one_thread_wrote_it() -> None:
    spec = RequestSpec("0", np.full(512, 0, dtype=np.int32))
    configs = [config(), SchedulerConfig()]

    def work(number: int) -> None:
        mine = np.full(512, number, dtype=np.int32)
        for i in range(200):
            if number % 2:
                spec.tokens, spec.request_id = mine, str(number)
                configs[1].cache_groups = configs[i % 2].cache_groups
                configs[0].max_batch_size = number
            else:
                assert len(set(spec.tokens)) == 1
                assert spec.request_id in "01357"
                assert len(configs[1].cache_groups) <= 1
                assert 1 <= configs[0].max_batch_size <= THREADS
                assert repr(spec) and repr(configs[1])

    together(work)
    assert spec.tokens == [int(spec.tokens[0])] * 512


class Round(NamedTuple):
    """A plan, and copies of what its views showed when it was made."""

    plan: ExecutionPlan
    request_ids: list[str]
    handles: list[int]
    input_ids: list[int]

    def check(self) -> None:
        """The plan says what it said."""
        batch = self.plan.batch
        assert batch is not None
        assert batch.request_ids == self.request_ids
        assert batch.handles.tolist() == self.handles
        assert batch.input_ids_array.tolist() == self.input_ids
        prompts = batch.input_lengths_array[: batch.num_extends()]
        assert prompts.sum() == len(self.input_ids)


class Shared:
    """A scheduler that many threads submit to and abort on; one at a time plays a round."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(
            config(blocks=BLOCKS, max_batch_size=32, max_scheduled_tokens=256)
        )
        self.rounds: deque[Round] = deque(maxlen=64)
        self.latest: Round | None = None
        self.aborts = [ExecutionEvent()]
        """The last is in use; each may be carried out again and again."""
        self.sampled: Counter[str] = Counter()
        self.submitted: list[list[str]] = [[] for _ in range(THREADS)]
        self.aborted: list[set[str]] = [set() for _ in range(THREADS)]
        self._turn = threading.Lock()

    def submit(self, number: int, prompt: np.ndarray) -> None:
        mine = self.submitted[number]
        request_id = f"{number}.{len(mine)}"
        self.scheduler.submit_requests([RequestSpec(request_id, prompt)])
        mine.append(request_id)
        if len(mine) % 3 == 0:
            self.aborted[number].add(request_id)
            self.aborts[-1].add_event(ForwardEvent.Abort(request_id))

    def advance(self) -> None:
        event = self.aborts[-1]
        self.scheduler.advance(event)
        if len(event) > 64:
            self.aborts.append(ExecutionEvent())

    def play(self) -> bool:
        """Plays a round unless another thread does; whether there was anything to play."""
        if not self._turn.acquire(blocking=False):
            return True
        try:
            plan = self.scheduler.next_execution_plan()
            batch = plan.batch
            if batch is None:
                return False
            ids = batch.request_ids
            inputs = batch.input_ids_array.tolist()
            self.latest = Round(plan, ids, batch.handles.tolist(), inputs)
            self.rounds.append(self.latest)
            handles, tokens, offsets = results(batch)
            self.scheduler.advance_results(handles, tokens, offsets)
            self.sampled.update(dict(zip(ids, np.diff(offsets).tolist())))
            done = [self.sampled[request_id] == NEW_TOKENS for request_id in ids]
            self.scheduler.finish(handles[done])
            return True
        finally:
            self._turn.release()


@pytest.mark.parametrize("schedulers", [1, 3])
def test_schedulers_that_threads_share_answer_every_request(schedulers: int) -> None:
    shared = [Shared() for _ in range(schedulers)]
    until = time.monotonic() + BUSY_S

    def work(number: int) -> None:
        turn = 0
        while time.monotonic() < until:
            turn += 1
            one = shared[(number + turn) % schedulers]
            if one.scheduler.waiting_size() < 64:
                one.submit(number, np.full(5 + turn % 40, number * 1000 + turn, dtype=np.int32))
            one.play()
            if turn % 5 == 0:
                one.advance()
            assert 0 <= one.scheduler.decoding_size() <= 32
            assert one.scheduler.block_table("full").min() >= 0
            if one.latest is not None:
                one.latest.check()

    together(work)
    for one in shared:
        # A thread may have added to an event that another had just carried out for the last time.
        for event in one.aborts:
            one.scheduler.advance(event)
        while one.play():
            pass
        submitted = {request_id for mine in one.submitted for request_id in mine}
        aborted = {request_id for mine in one.aborted for request_id in mine}
        assert len(submitted - aborted) > THREADS
        assert all(one.sampled[request_id] == NEW_TOKENS for request_id in submitted - aborted)
        assert all(one.sampled[request_id] <= NEW_TOKENS for request_id in aborted)
        assert one.sampled.keys() <= submitted
        assert one.scheduler.waiting_size() == one.scheduler.decoding_size() == 0
        assert one.scheduler.available_lcm_blocks() == BLOCKS
        for round_ in one.rounds:
            round_.check()
