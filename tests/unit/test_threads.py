"""Calls from several threads take turns, and long ones let other threads run."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tokenspeed.scheduler import ExecutionPlan, ForwardEvent, RequestSpec, Scheduler

from .engine import config, results, submit, tell


def progress_during(work: Callable[[], object]) -> int:
    """How often another Python thread got round while `work` ran."""
    counts, started, done = [0], threading.Event(), threading.Event()

    def count() -> None:
        while not done.is_set():
            counts[0] += 1
            started.set()
            time.sleep(0)  # gives the interpreter back, whatever the switch interval

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    started.wait()
    try:
        sys.setswitchinterval(100)  # nobody is asked to give the interpreter back
        before = counts[0]
        work()
        return counts[0] - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


def test_hashing_a_long_prompt_lets_other_threads_run() -> None:
    scheduler = Scheduler(config(blocks=1 << 16))
    long = RequestSpec("a", np.arange(1 << 17, dtype=np.int32))
    assert progress_during(lambda: scheduler.submit_requests([long])) > 100


def test_a_long_plan_lets_other_threads_run() -> None:
    scheduler = Scheduler(config(blocks=1 << 15, max_batch_size=512, max_scheduled_tokens=1 << 16))
    prompts = np.arange(1 << 16, dtype=np.int32).reshape(512, 128)
    scheduler.submit_requests([RequestSpec(str(i), prompt) for i, prompt in enumerate(prompts)])
    plans: list[ExecutionPlan] = []
    assert progress_during(lambda: plans.append(scheduler.next_execution_plan())) > 20
    assert len(plans[0].forward[0].request_ids) == 512


def test_a_large_batch_lets_other_threads_run() -> None:
    requests = 3000
    scheduler = Scheduler(
        config(blocks=2 * requests, max_batch_size=requests, max_scheduled_tokens=requests)
    )
    prompts = np.arange(requests, dtype=np.int32).reshape(requests, 1)
    scheduler.submit_requests([RequestSpec(str(i), prompt) for i, prompt in enumerate(prompts)])

    def play_round() -> None:
        batch = scheduler.next_execution_plan().forward[0]
        assert len(batch.handles) == requests
        scheduler.advance_results(
            batch.handles, np.zeros(requests, np.int32), np.arange(requests + 1)
        )

    play_round()
    assert scheduler.waiting_size() == 0
    # On a busy machine the other thread may not wake in time for a round.
    assert any(progress_during(play_round) > 1 for _ in range(50))


def test_calls_from_many_threads_take_turns() -> None:
    scheduler = Scheduler(config(blocks=400, max_batch_size=32, max_scheduled_tokens=128))
    clients, each = 4, 30
    lasting = threading.Event()

    def client(number: int) -> None:
        for i in range(each):
            spec = RequestSpec(f"{number}.{i}", np.full(9 + i, number * 100 + i, dtype=np.int32))
            scheduler.submit_requests([spec])
            if i % 7 == 3:
                tell(scheduler, ForwardEvent.Abort(spec.request_id))

    def watcher() -> int:
        looks = 0
        while not lasting.is_set():
            waiting, decoding = scheduler.waiting_size(), scheduler.decoding_size()
            assert 0 <= waiting <= clients * each and 0 <= decoding <= 32
            assert scheduler.block_table("full").min() >= 0
            scheduler.owed_results()
            looks += 1
        return looks

    seen: set[str] = set()

    def engine() -> None:
        is_over = False
        while not is_over:
            # Asked first: a plan that is made then has all that there will be.
            are_done = all(job.done() for job in jobs)
            batch = scheduler.next_execution_plan().batch
            if batch is None:
                is_over = are_done
                continue
            seen.update(batch.request_ids)
            handles, tokens, offsets = results(batch)
            scheduler.advance_results(handles, tokens, offsets)
            scheduler.finish(handles[np.diff(offsets) > 0])

    with ThreadPoolExecutor(clients + 2) as pool:
        watching = pool.submit(watcher)
        jobs = [pool.submit(client, number) for number in range(clients)]
        running = pool.submit(engine)
        try:
            for job in (*jobs, running):
                job.result(timeout=60)
        finally:
            lasting.set()
        assert watching.result(timeout=60) > 0
    assert scheduler.waiting_size() == scheduler.decoding_size() == 0
    assert scheduler.available_lcm_blocks() == 400
    lasted = {f"{n}.{i}" for n in range(clients) for i in range(each) if i % 7 != 3}
    assert lasted <= seen


def test_one_thread_breaks_no_other_ones_view() -> None:
    scheduler = Scheduler(config(blocks=64))
    submit(scheduler, "a", 9)
    batch = scheduler.next_execution_plan().batch
    assert batch is not None
    with ThreadPoolExecutor(4) as pool:
        copies = list(pool.map(lambda _: batch.handles.copy(), range(400)))
    assert all(copy.tolist() == [1] for copy in copies)
