"""A client and an engine that draw at random and look at nothing but the plans: played on mirrored
schedulers, it makes the same calls as long as they make the same plans."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenspeed.scheduler import (
    PD,
    Cache,
    CacheGroupConfig,
    CacheRetention,
    EventError,
    ExecutionEvent,
    ExecutionPlan,
    Forward,
    ForwardEvent,
    RequestError,
    RequestSpec,
    Scheduler,
    SchedulerConfig,
)


def tiny() -> SchedulerConfig:
    """24 parents for two groups, and as many on the Host: prompts evict and retract each other."""
    return SchedulerConfig(
        prefix_granularity=4,
        num_device_pages=25,
        num_host_pages=25,
        max_scheduled_tokens=24,
        max_batch_size=8,
        decode_input_tokens=2,
        overlap_schedule_depth=1,
        enable_mixed_prefill_decode=True,
        cache_groups=[
            CacheGroupConfig("full", 4, 49, cache_blocks_per_lcm_block=2),
            CacheGroupConfig(
                "sliding",
                2,
                25,
                retention=CacheRetention.SlidingWindow,
                sliding_window_tokens=5,
            ),
        ],
    )


class Client:
    """Plays rounds on one scheduler. Nothing is asked of it but plans."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.scheduler = scheduler
        self.events = 0
        """Reported so far: requests, results, acknowledgements, ends."""
        self.refused = 0
        """Calls of these that were refused."""
        self._random = random.Random(seed)
        self._submitted = 0
        self._unseen: set[str] = set()
        self._resident: list[str] = []
        self._owed: list[Any] = []

    def rounds(self, events: int) -> Iterator[ExecutionPlan]:
        """Plays until so many events have been reported; gives every plan."""
        while self.events < events:
            self._submit()
            plan = self.scheduler.next_execution_plan()
            self._note(plan)
            yield plan
            self._report()

    def _submit(self) -> None:
        r = self._random
        if len(self._unseen) < 6 and r.random() < 0.6:
            family = [100 * r.randrange(3) + at for at in range(16)]
            prompt = family[: r.randrange(17)] + [r.randrange(1000) for _ in range(r.randrange(14))]
            self._submitted += 1
            # Every now and then an empty prompt, which is refused.
            name = f"r{self._submitted}"
            if prompt:
                self._unseen.add(name)
            spec = RequestSpec(name, prompt, r.choice((0, 0, 4, 24)))
            self._call(1, RequestError, self.scheduler.submit_requests, [spec])
        if r.random() < 0.01:
            self.scheduler.clear_cache()
        if r.random() < 0.01:
            self.scheduler.clear_l1_cache()

    def _note(self, plan: ExecutionPlan) -> None:
        for op in plan.cache:
            for op_id in op.op_ids:
                stores = isinstance(op, Cache.WriteBackOp)
                done = Cache.WriteBackDoneEvent(op_id) if stores else None
                self._owed.append(done or Cache.LoadBackDoneEvent(op_id, True))
        ended = {notice.request_id for notice in plan.aborts}
        self._resident = [name for name in self._resident if name not in ended]
        if plan.batch is not None:
            names = plan.batch.request_ids
            self._unseen.difference_update(names)
            self._resident += [name for name in names if name not in self._resident]
            self._owed.append(plan.batch)

    def _report(self) -> None:
        """Some of what is owed, in order among results; now and then something out of place."""
        r = self._random
        late: list[Any] = []
        for owed in self._owed:
            if r.random() < 0.3 or any(isinstance(other, Forward.Batch) for other in late):
                late.append(owed)
            elif isinstance(owed, Forward.Batch):
                self._results(owed)
            else:
                self._tell(owed)
        self._owed = late
        if self._resident and r.random() < 0.15:
            name = self._resident.pop(r.randrange(len(self._resident)))
            ends = (ForwardEvent.Finish, ForwardEvent.Abort, ForwardEvent.Retract)
            self._tell(r.choice(ends)(name))
        if r.random() < 0.02:
            self._tell(
                r.choice(
                    (
                        ForwardEvent.ExtendResult(f"r{self._submitted}", [1, 2, 3, 4, 5]),
                        ForwardEvent.UpdateReserveNumTokens(f"r{self._submitted}", 4),
                        PD.BootstrappedEvent(f"r{self._submitted}"),
                        PD.RemotePrefillDoneEvent(f"r{self._submitted}", 7),
                    )
                )
            )

    def _results(self, batch: Forward.Batch) -> None:
        r = self._random
        tokens, offsets = [], [0]
        for at in range(len(batch)):
            if at >= batch.num_extends():
                sampled = 1 + r.randrange(batch.input_lengths[at])
            else:
                end = batch.extend_prefix_lens[at] + batch.input_lengths[at]
                sampled = int(end == batch.prefill_lengths[at])
            tokens += [r.randrange(1000) for _ in range(sampled)]
            offsets.append(len(tokens))
        if r.random() < 0.5:
            results = (batch.handles, np.array(tokens, dtype=np.int32), np.array(offsets))
            self._call(len(batch), EventError, self.scheduler.advance_results, *results)
        else:
            events = ExecutionEvent()
            for at, name in enumerate(batch.request_ids):
                events.add_event(
                    ForwardEvent.ExtendResult(name, tokens[offsets[at] : offsets[at + 1]])
                )
            self._call(len(batch), EventError, self.scheduler.advance, events)

    def _tell(self, event: Any) -> None:
        self._call(1, EventError, self.scheduler.advance, ExecutionEvent([event]))

    def _call(self, events: int, refusal: type[Exception], call: Any, *arguments: Any) -> None:
        self.events += events
        try:
            call(*arguments)
        except refusal:
            self.refused += 1
