"""The control side: the scheduler, its clients and the commits (runtime.md, "Two threads")."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tokenspeed.runtime.batch import Batches, remote_of
from tokenspeed.runtime.build import build_handle
from tokenspeed.runtime.device import Device
from tokenspeed.runtime.drafter import Drafter
from tokenspeed.runtime.errors import (
    EndedByScheduler,
    EngineClosed,
    ForwardFault,
    RuntimeFault,
    Standstill,
    TransferFault,
)
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.handle import Landed, Submission
from tokenspeed.runtime.remote import RemotePeer, Word
from tokenspeed.runtime.request import FinishReason, Live, Output, Request
from tokenspeed.runtime.rounds import BlockCopies, RoundBatch, freeze
from tokenspeed.runtime.runner import ModelRunner, Sampler
from tokenspeed.runtime.sampler import GreedySampler
from tokenspeed.scheduler import (
    PD,
    Cache,
    ExecutionEvent,
    ExecutionPlan,
    ForwardEvent,
    Scheduler,
    SchedulerConfig,
    UnsupportedError,
)

Role = SchedulerConfig.Role

_CONTEXT_TOKENS_MAX = 131_072
_EMPTY_ROUNDS_MAX = 3
"""Rounds in a row that plan nothing, while nothing is owed, before it counts as a standstill."""


class EngineLoop:
    """One engine. `step` plays a round; all calls but `submit`, `abort` and `finish` come from one
    thread."""

    def __init__(
        self,
        config: SchedulerConfig,
        runner: ModelRunner,
        device: Device,
        *,
        sampler: Sampler | None = None,
        drafter: Drafter | None = None,
        inline: bool = False,
        context_tokens: int | None = None,
        peer: RemotePeer | None = None,
        name: str = "",
        on_plan: Callable[[ExecutionPlan], None] | None = None,
        on_acknowledged: Callable[[BlockCopies], None] | None = None,
        executor_type: type[RoundExecutor] = RoundExecutor,
    ) -> None:
        """`config`: from `Recipe.scheduler_config`; its `overlap_schedule_depth` says how many
        rounds are planned ahead of results. `inline`: device work is launched on the caller's
        thread, for tests that repeat. `context_tokens`: of one request, prompt and output; None:
        what the pool can hold, 131,072 at most. `peer`: this end of the transfer, on a prefill or
        decode engine; `name` sets its streams apart from those of another engine on the device.
        `on_plan` is called with each plan before it is carried out, `on_acknowledged` with each
        copy that is over, before the scheduler is told; `executor_type` carries rounds out.

        Raises `ConfigError`, `UnsupportedError` for a configuration with an external store, and
        `DeviceFault` where the arenas find no room.
        """
        if config.enable_l3_storage:
            raise UnsupportedError("enable_l3_storage: the runtime reaches no external store")
        self.scheduler = Scheduler(config)
        self.scheduler.use_persistent_tables()
        self._depth = config.overlap_schedule_depth
        self._width = config.decode_input_tokens
        recipe = runner.recipe()
        keeps_state = any(recipe.kind(group_id) == "state" for group_id in recipe.group_ids)
        self._batches = Batches(
            num_rows=config.max_batch_size + 1,
            width=self._width,
            page_tokens=config.prefix_granularity if keeps_state else None,
            with_histories=drafter is not None and self._width > 1,
        )
        self._recipe, self._role, self._peer = recipe, config.role, peer
        self._on_plan, self._on_acknowledged = on_plan, on_acknowledged
        held = min(self.scheduler.max_single_request_tokens(), _CONTEXT_TOKENS_MAX)
        self.context_tokens = min(context_tokens or held, held)
        self._handle = build_handle(
            config,
            self.context_tokens,
            runner,
            device,
            sampler or GreedySampler(),
            drafter,
            inline=inline,
            peer=peer,
            name=name,
            executor_type=executor_type,
        )
        self._live: dict[str, Live] = {}
        self._to_end: deque[tuple[Live, FinishReason]] = deque()
        self._in_flight: deque[Submission] = deque()
        """Rounds whose results are out, oldest first."""
        self._copying: list[Submission] = []
        """Rounds with copies that the scheduler has not been told are over."""
        self._has_ended = False
        """Whether a request has ended since the last plan."""
        self._clears = False
        """Whether the cache has to be cleared before anything is planned."""
        self._rounds = 0
        self._empty_rounds = 0
        self._closed = False

    @property
    def has_work(self) -> bool:
        """Whether a request is live, anything is under way, or an end has yet to be planned for: a
        request that is over is stored by the plan behind it."""
        return bool(self._live or self._in_flight or self._copying or self._has_ended)

    def submit(self, request: Request) -> None:
        """Takes a request. Raises `RequestError` for one that cannot be taken, `EngineClosed`."""
        if self._closed:
            raise EngineClosed("the engine is closed")
        spec = request.spec(self.context_tokens)
        known = self._live.get(request.request_id)
        self._live.setdefault(request.request_id, Live(request))
        try:
            self.scheduler.submit_requests([spec])
        except BaseException:
            if known is None:
                del self._live[request.request_id]
            raise
        if self._peer is not None:
            self._peer.meet(request.request_id)

    def abort(self, request_id: str) -> None:
        """Ends a request at the next step; one that is gone is ignored."""
        self._end_at_next_step(request_id, "abort")

    def finish(self, request_id: str) -> None:
        """As `abort`, for a request whose client has had enough of it: the reason is `stop`, and
        what it has computed stays cached as at any end."""
        self._end_at_next_step(request_id, "stop")

    def _end_at_next_step(self, request_id: str, reason: FinishReason) -> None:
        # The request itself: another may have its name by then.
        if (live := self._live.get(request_id)) is not None:
            self._to_end.append((live, reason))

    def names_of(self, handles: Iterable[int]) -> tuple[str, ...]:
        """Live requests that ran last under any of these handles (`ExecutionPlan.retracted`)."""
        wanted = {*handles}
        # A copy: clients submit from other threads.
        return tuple(name for name, live in [*self._live.items()] if live.handle in wanted)

    def step(self) -> list[Output]:
        """Plays a round: tells the scheduler what is over, plans, launches, and takes the results
        of the round that the overlap depth says are due.

        Raises `EngineClosed`, `Standstill`, and what the device raises; such an engine is broken.
        """
        if self._closed:
            raise EngineClosed("the engine is closed")
        outputs: list[Output] = []
        over = [*self._given_up(outputs), *self._copies_over()]
        self.scheduler.advance(ExecutionEvent(over))

        plan = None
        self._clears = self._clears and not self.scheduler.clear_cache()
        if not self._clears:
            plan = self.scheduler.next_execution_plan()
            self._has_ended = False
            self._note_ends(plan, outputs)
            if self._on_plan is not None:
                self._on_plan(plan)
            self._launch(plan)

        landed = self._commit(plan)
        events = self._land(*landed, outputs) if landed else []
        events += self._words(outputs)
        self.scheduler.advance(ExecutionEvent(events))
        return outputs

    def close(self) -> list[Output]:
        """Ends all requests, waits for what is under way, and lets go of the device. Idempotent."""
        if self._closed:
            return []
        self._closed = True
        error = EngineClosed("the engine is closed")
        outputs = [self._end(name, "abort", error) for name in list(self._live)]
        self._handle.close()
        self._in_flight.clear()
        self._copying.clear()
        return outputs

    def _given_up(self, outputs: list[Output]) -> Iterable[Any]:
        """Requests that their clients have ended."""
        while self._to_end:
            live, reason = self._to_end.popleft()
            request_id = live.request.request_id
            if self._live.get(request_id) is not live:
                continue
            outputs.append(self._end(request_id, reason))
            # Without output there is nothing to finish, and a peer may still use its blocks.
            is_finished = reason == "stop" and live.generated and self._role != Role.P
            event = ForwardEvent.Finish if is_finished else ForwardEvent.Abort
            yield event(request_id)

    def _copies_over(self, *, reliable: bool = True) -> Iterable[Any]:
        """Copies that are over, so that this round's plan can use what they held; `reliable`:
        whether what they brought is."""
        for submission in self._copying:
            for acknowledgement in submission.acknowledged():
                copies = acknowledgement.copies
                if reliable and self._on_acknowledged is not None:
                    self._on_acknowledged(copies)
                if copies.is_store:
                    yield Cache.WriteBackDoneEvent(copies.op_id)
                else:
                    yield Cache.LoadBackDoneEvent(copies.op_id, True)
        self._copying = [submission for submission in self._copying if submission.owes_copies]

    def _note_ends(self, plan: ExecutionPlan, outputs: list[Output]) -> None:
        """Requests that the scheduler ended by itself."""
        for notice in plan.aborts:
            if notice.request_id in self._live:
                error = EndedByScheduler(f"{notice.reason}: {notice.text}")
                outputs.append(self._end(notice.request_id, "error", error))

    def _launch(self, plan: ExecutionPlan) -> None:
        batch = None
        if plan.batch is not None:
            batch = self._batches.batch_of(
                plan.batch, self._live, tokens_ahead=self._width * (len(self._in_flight) + 1)
            )
        remote = remote_of(plan, self._live, self._recipe, self.scheduler.block_table)
        round_ = freeze(self._rounds, plan, self._recipe.group_ids, batch, remote)
        if round_.is_empty:
            return
        self._rounds += 1
        submission = self._handle.execute(round_)
        if batch is not None:
            self._in_flight.append(submission)
        if submission.owes_copies:
            self._copying.append(submission)

    def _commit(self, plan: ExecutionPlan | None) -> tuple[Submission, Landed] | None:
        """The one place where the control side waits: for the oldest results once enough rounds
        are ahead of them, or where nothing was planned, for whatever is owed first."""
        idle = plan is None or plan.batch is None
        if self._in_flight and (idle or len(self._in_flight) > self._depth):
            submission = self._in_flight.popleft()
            return submission, submission.wait_for_results()
        if idle and self._copying:
            self._copying[0].wait_for_copies()
        elif idle and self._peer is not None:
            self._peer.wait()
        elif idle and self._live and not self._has_ended:
            self._empty_rounds += 1
            if self._empty_rounds > _EMPTY_ROUNDS_MAX:
                raise Standstill(f"{len(self._live)} requests live, and nothing is planned or owed")
            return None
        self._empty_rounds = 0
        return None

    def _land(self, submission: Submission, landed: Landed, outputs: list[Output]) -> list[Any]:
        """Takes the results of a round. Gives the events that follow from them."""
        self._empty_rounds = 0
        batch = submission.round.batch
        assert batch is not None
        if landed.failure is not None:
            return self._fail(batch, landed.failure, outputs)
        if self._role == Role.P:
            return self._land_prompts(batch, landed)
        tokens: list[int] = []
        offsets = [0]
        finished: list[int] = []
        # Once a token: each of these lines costs some 10 us with 256 decodes.
        rows = zip(
            batch.request_ids,
            batch.handles.tolist(),
            landed.counts.tolist(),
            landed.tokens.tolist(),
        )
        for request_id, handle, count, row in rows:
            live = self._live.get(request_id)
            if count and live is not None and live.handle == handle:
                taken, reason = live.take(row[:count])
                tokens += taken
                if reason is None:
                    outputs.append(Output(request_id, tuple(taken)))
                else:
                    finished.append(handle)
                    outputs.append(self._end(request_id, reason, tokens=taken))
            offsets.append(len(tokens))
        self.scheduler.advance_results(
            batch.handles, np.array(tokens, dtype=np.int32), np.array(offsets, dtype=np.int64)
        )
        self.scheduler.finish(np.array(finished, dtype=np.uint64))
        return []

    def _land_prompts(self, batch: RoundBatch, landed: Landed) -> list[Any]:
        """As `_land` on a prefill engine. The decode engine tells the client, and ends the request;
        what the drafter guesses behind the sample goes there with it."""
        events: list[Any] = []
        gone = []
        for at, (handle, count) in enumerate(zip(batch.handles.tolist(), landed.counts.tolist())):
            live = self._live.get(batch.request_ids[at])
            if live is not None and live.handle == handle:
                new = landed.tokens[at].tolist() if count else []
                live.take(new[:1])
                events.append(ForwardEvent.ExtendResult(batch.request_ids[at], new[:1], new[1:]))
            else:
                gone.append(handle)
        self.scheduler.advance_results(
            np.array(gone, dtype=np.uint64), np.zeros(0, dtype=np.int32), [0] * (len(gone) + 1)
        )
        return events

    def _fail(self, batch: RoundBatch, failure: Exception, outputs: list[Output]) -> list[Any]:
        """A forward raised: its requests end, the others go on.

        Rounds that were planned before this was known may have published what it never computed,
        and met it. Then nothing on the device can be relied on: all other residents start over,
        with what they have generated, on an empty cache. (On a prefill or decode engine they fail
        too, since their prompts came from the peer or have gone there.)
        """
        events: list[Any] = []
        for handle, request_id in zip(batch.handles.tolist(), batch.request_ids):
            live = self._live.get(request_id)
            if live is not None and live.handle == handle:
                error = ForwardFault(f"the forward of round raised {failure!r}")
                error.__cause__ = failure
                outputs.append(self._end(request_id, "error", error))
                events.append(ForwardEvent.Abort(request_id))
        if not self._in_flight:
            return events
        while self._in_flight:
            self._in_flight.popleft().wait_for_results()
        while self._copying:
            self._copying[0].wait_for_copies()
            events += self._copies_over(reliable=False)
        for request_id, live in [*self._live.items()]:
            if live.handle is None:
                continue
            if self._peer is not None:
                outputs.append(self._end(request_id, "error", ForwardFault(f"lost to {failure!r}")))
                events.append(ForwardEvent.Abort(request_id))
            else:
                live.handle = None
                events.append(ForwardEvent.Retract(request_id))
        self._clears = True
        return events

    def _words(self, outputs: list[Output]) -> Iterable[Any]:
        """What the peer says."""
        for heard in self._peer.heard() if self._peer is not None else ():
            request_id = heard.request_id
            live = self._live.get(request_id)
            if heard.word is Word.BOOTSTRAPPED:
                yield PD.BootstrappedEvent(request_id)
            elif heard.word is Word.FAILED:
                yield PD.FailedEvent(request_id)
                if live is not None:
                    error = TransferFault("the peer gave it up")
                    outputs.append(self._end(request_id, "error", error))
            elif self._role == Role.P:
                yield PD.SucceededEvent(request_id)
                if live is not None:
                    outputs.append(self._end(request_id, "handed over"))
            else:
                assert heard.token is not None, "a prompt has landed without its sample"
                yield PD.RemotePrefillDoneEvent(request_id, heard.token)
                if live is not None:
                    live.drafts = heard.drafts
                    reason = live.add(heard.token)
                    if reason is None:
                        outputs.append(Output(request_id, (heard.token,)))
                    else:
                        outputs.append(self._end(request_id, reason, tokens=(heard.token,)))
                        yield ForwardEvent.Finish(request_id)

    def _end(
        self,
        request_id: str,
        reason: FinishReason,
        error: RuntimeFault | None = None,
        tokens: Iterable[int] = (),
    ) -> Output:
        """The last output of a request."""
        del self._live[request_id]
        self._has_ended = True
        if self._peer is not None:
            self._peer.give_up(request_id)
        return Output(request_id, tuple(tokens), reason, error)
