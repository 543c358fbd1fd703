"""The player: a trace played through the scheduler in virtual time.

A forward takes what the cost model says, a copy what the link's bandwidth says, and planning
takes no virtual time (its real latency is measured on the way). Whatever happens once a round is
done on arrays; Python walks only over what happens once a request or once a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.scheduler import (
    Cache,
    ConfigError,
    ExecutionEvent,
    RequestError,
    RequestSpec,
    Scheduler,
)
from tokenspeed.simulate.ledger import Ended, Ledger
from tokenspeed.simulate.link import Link
from tokenspeed.simulate.scenario import Scenario
from tokenspeed.simulate.trace import Trace

_ROW_BITS = np.uint64(0xFFFFFFFF)
"""The half of a handle that is the request-pool row."""

OnProgress = Callable[[int, int, float], None]
"""Called now and then with (requests done, requests in all, virtual seconds)."""


class ConfigurationRefused(ValueError):
    """The scheduler does not accept a scenario's configuration; the message is its own."""


class Standstill(RuntimeError):
    """Requests live and none gets on: the scheduler plans nothing though nothing is owed to it, or
    it plans round after round of which no token comes."""


@dataclass(frozen=True)
class _Forward:
    """A forward under way; every array has one entry a request of its batch."""

    end_s: float
    handles: NDArray[np.uint64]
    requests: NDArray[np.int64]
    """Places in the trace."""
    prefills: int
    """How many lead the batch as prefills."""
    yields: NDArray[np.bool_] | None
    """Which of the batch sample a token; None: all. An intermediate chunk does not."""


class Player:
    """Plays one scenario of one trace, once."""

    def __init__(
        self,
        trace: Trace,
        scenario: Scenario,
        *,
        sample_s: float | None = None,
        on_progress: OnProgress | None = None,
        scheduler: Any = None,
    ) -> None:
        """`sample_s`: virtual seconds between samples of the gauges; None: a 1000th of the trace.
        `scheduler`: another one to play, with the calls that are made here; None: the scenario's.

        May raise `ConfigurationRefused`.
        """
        self._trace = trace = scenario.load.of(trace)
        self._scenario = scenario
        self._sample_s = trace.span_s / 1000 if sample_s is None else sample_s
        self._on_progress = on_progress
        self._ledger = Ledger(trace)
        self._scheduler = _scheduler_of(scenario) if scheduler is None else scheduler
        self._depth = scenario.engine.overlap_schedule_depth

        bytes_per_s = scenario.link.host_link_gb_per_s * 1e9
        self._to_host, self._to_device = Link(bytes_per_s), Link(bytes_per_s)
        self._forwards: deque[_Forward] = deque()
        self._now_s = 0.0
        self._device_free_s = 0.0
        self._next_sample_s = 0.0
        self._plans_without_token = 0
        longest = int(trace.prompt_tokens.max(initial=0))
        self._patience_plans = 10_000 + 10 * -(-longest // scenario.engine.max_scheduled_tokens)
        """So many plans without a token, far more than a prompt's chunks, are a standstill."""
        self._submitted = 0
        self._next_arrival_s = self._arrival_s(0)
        self._live = 0

        rows = scenario.engine.max_batch_size + 1
        self._request_of_row = np.zeros(rows, dtype=np.int64)
        self._handle_of_row = np.zeros(rows, dtype=np.uint64)
        self._context_tokens = np.zeros(len(trace), dtype=np.int64)
        """Tokens that a request's next decode reads."""
        self._computed_tokens = np.zeros(len(trace), dtype=np.int64)
        """How far prefills have computed a request."""
        self._ended = np.zeros(len(trace), dtype=np.bool_)
        self._output_token = (trace.own_token(0) + np.arange(len(trace))).astype(np.int32)
        self._offsets = np.arange(rows + 1, dtype=np.int64)

    def run(self) -> Ledger:
        """Plays to the end. `Standstill`: requests are left and nothing will move them."""
        started_s = perf_counter()
        plans = 0
        while True:
            while len(self._forwards) > self._depth:
                self._land(self._forwards.popleft())
            self._acknowledge()
            self._submit()
            if not self._plan():
                if self._forwards:
                    self._land(self._forwards.popleft())
                elif not self._wait():
                    break
            plans += 1
            if self._on_progress and plans % 256 == 0:
                self._on_progress(self._submitted - self._live, len(self._trace), self._now_s)
        self._sample()
        self._ledger.end_s = self._device_free_s
        self._ledger.wall_s = perf_counter() - started_s
        if self._on_progress:
            self._on_progress(self._submitted, len(self._trace), self._now_s)
        return self._ledger

    def _submit(self) -> None:
        """Submits what has arrived; a refusal is counted with its reason."""
        while self._next_arrival_s <= self._now_s:
            request = self._submitted
            self._submitted += 1
            self._next_arrival_s = self._arrival_s(self._submitted)
            spec = RequestSpec(
                request_id=str(request),
                tokens=self._trace.tokens(request),
                max_new_tokens=self._scenario.load.declared_tokens(
                    int(self._trace.output_tokens[request])
                ),
            )
            try:
                self._scheduler.submit_requests([spec])
            except RequestError as error:
                self._ledger.refused.append(Ended(request, self._now_s, str(error)))
            else:
                self._live += 1

    def _arrival_s(self, request: int) -> float:
        """When a request arrives; infinity past the last."""
        arrivals = self._trace.arrival_s
        return float(arrivals[request]) if request < len(arrivals) else float("inf")

    def _acknowledge(self) -> None:
        """Tells the scheduler which copies are done by now."""
        written = self._to_host.take_done(self._now_s)
        loaded = self._to_device.take_done(self._now_s)
        if written or loaded:
            event = ExecutionEvent()
            for op_id in written:
                event.add_event(Cache.WriteBackDoneEvent(op_id))
            for op_id in loaded:
                event.add_event(Cache.LoadBackDoneEvent(op_id, True))
            self._scheduler.advance(event)

    def _plan(self) -> bool:
        """Plans a round and launches it; false if nothing changed and nothing was scheduled."""
        if self._live:
            self._plans_without_token += 1
            if self._plans_without_token > self._patience_plans:
                raise Standstill(self._standstill("it plans rounds, but no token comes of them"))
        before_ns = perf_counter_ns()
        plan = self._scheduler.next_execution_plan()
        self._ledger.plan_ns.append(perf_counter_ns() - before_ns)

        aborts = plan.aborts
        if aborts:
            self._record_aborts(aborts)
        if plan.num_retractions:
            self._record_retractions(plan.retracted)
        start_s = max(self._now_s, self._device_free_s)
        loaded_s = 0.0
        if plan.num_write_back_blocks or plan.num_load_back_blocks:
            start_s, loaded_s = self._copy(plan, start_s)
        batch = plan.batch
        if batch is not None:
            self._launch(batch, start_s, loaded_s)
        if self._now_s >= self._next_sample_s:
            self._sample()
        return batch is not None or bool(aborts) or plan.num_retractions > 0

    def _copy(self, plan: Any, start_s: float) -> tuple[float, float]:
        """Puts the plan's copies on the link.

        Returns when the forward may start (after a stream-ordered write-back, whose pages it
        reuses) and when it can end at the earliest (once the last layer's pages are loaded).
        """
        ledger, page_bytes = self._ledger, self._scenario.page_bytes
        loaded_s = 0.0
        for op in plan.cache:
            stores = isinstance(op, Cache.WriteBackOp)
            link = self._to_host if stores else self._to_device
            pages = 0
            begin_s = done_s = max(self._now_s, link.free_at_s)
            for i, (op_id, sources) in enumerate(zip(op.op_ids, op.src_pages)):
                done_s = link.copy(op_id, len(sources) * page_bytes, self._now_s)
                pages += len(sources)
                if stores and not op.source_pinned[i]:
                    start_s = max(start_s, done_s)
            if stores:
                ledger.write_back_bytes += pages * page_bytes
                ledger.write_backs.append((begin_s, done_s, pages))
            else:
                ledger.load_back_bytes += pages * page_bytes
                ledger.load_backs.append((begin_s, done_s, pages))
                loaded_s = done_s
        return start_s, loaded_s

    def _launch(self, batch: Any, start_s: float, loaded_s: float) -> None:
        """Starts the forward of a batch at `start_s`; it ends no sooner than `loaded_s`."""
        rows = batch.request_pool_indices_array
        handles = batch.handles
        prefills = batch.num_extends()
        prefill_tokens = prefill_context = 0
        yields = None
        if prefills:
            self._name_rows(batch, rows[:prefills], handles[:prefills])
        requests = self._request_of_row[rows]
        decoding = requests
        if prefills:
            decoding = requests[prefills:]
            prefill_tokens, prefill_context, completes = self._prefill(batch, requests[:prefills])
            if not completes.all():
                yields = np.ones(len(rows), dtype=np.bool_)
                yields[:prefills] = completes
        contexts = self._context_tokens[decoding]
        context_tokens = prefill_context + int(contexts.sum())
        self._context_tokens[decoding] = contexts + 1

        cost_s = self._scenario.cost.forward_s(prefill_tokens, len(decoding), context_tokens)
        end_s = max(start_s + cost_s, loaded_s)
        self._device_free_s = end_s
        self._forwards.append(_Forward(end_s, handles, requests, prefills, yields))
        self._ledger.rounds.append(
            (start_s, end_s, prefills, len(decoding), prefill_tokens, context_tokens)
        )

    def _name_rows(self, batch: Any, rows: NDArray[Any], handles: NDArray[Any]) -> None:
        """Learns which requests hold the rows of a batch's prefills since their admission."""
        admitted = np.flatnonzero(self._handle_of_row[rows] != handles)
        if len(admitted):
            names = batch.request_ids
            self._request_of_row[rows[admitted]] = [int(names[i]) for i in admitted]
            self._handle_of_row[rows[admitted]] = handles[admitted]

    def _prefill(self, batch: Any, requests: NDArray[Any]) -> tuple[int, int, NDArray[np.bool_]]:
        """Accounts for a batch's chunks.

        Returns the rows that they feed, the context tokens that they read, and which of them
        complete their prompt.
        """
        ledger = self._ledger
        count = len(requests)
        fed = batch.input_lengths_array[:count]
        fed_from = batch.extend_prefix_lens_array
        end = fed_from + fed
        prompt = batch.prefill_lengths_array[:count]
        completes = end >= prompt

        first = np.isnan(ledger.admitted_s[requests])
        if first.any():
            newcomers = requests[first]
            ledger.admitted_s[newcomers] = self._now_s
            ledger.device_hit_tokens[newcomers] = batch.device_hit_tokens_array[:count][first]
            ledger.host_hit_tokens[newcomers] = batch.host_hit_tokens_array[:count][first]
        self._context_tokens[requests] = prompt + 1

        # A retracted request's prompt covers what it has generated, all computed but the last.
        known = self._computed_tokens[requests]
        if ledger.retractions[requests].any():
            generated = self._trace.output_tokens[requests] - ledger.remaining_tokens[requests]
            decoded = self._trace.prompt_tokens[requests] + generated - 1
            known = np.where(generated > 0, np.maximum(known, decoded), known)
            begin = fed_from + batch.extend_replay_lens_array
            ledger.recomputed_tokens += int(np.maximum(np.minimum(end, known) - begin, 0).sum())
        self._computed_tokens[requests] = np.maximum(known, end)

        prefill_tokens = int(fed.sum())
        ledger.prefilled_tokens += prefill_tokens
        ledger.replayed_tokens += int(batch.extend_replay_lens_array.sum())
        return prefill_tokens, int(fed_from.sum()), completes

    def _land(self, forward: _Forward) -> None:
        """Brings a forward's tokens in and finishes the requests that have theirs all."""
        self._now_s = forward.end_s
        ledger, requests, yields = self._ledger, forward.requests, forward.yields
        left = ledger.remaining_tokens[requests]
        tokens = self._output_token[requests]
        if yields is None:
            offsets = self._offsets[: len(requests) + 1]
            left -= 1
        else:
            offsets = np.concatenate(([0], np.cumsum(yields)))
            tokens = tokens[yields]
            left -= yields
        # Below zero: the request ended while this forward, planned ahead, was under way.
        np.maximum(left, 0, out=left)
        ledger.remaining_tokens[requests] = left
        self._scheduler.advance_results(forward.handles, tokens, offsets)
        if len(tokens):
            self._plans_without_token = 0

        if forward.prefills:
            prefilled = requests[: forward.prefills]
            if yields is not None:
                prefilled = prefilled[yields[: forward.prefills]]
            fresh = prefilled[np.isnan(ledger.first_token_s[prefilled])]
            ledger.first_token_s[fresh] = self._now_s
        if not left.all():
            done = (left == 0) & ~self._ended[requests]
            finished = requests[done]
            ledger.finished_s[finished] = self._now_s
            self._ended[finished] = True
            self._live -= len(finished)
            self._scheduler.finish(forward.handles[done])

    def _record_aborts(self, aborts: list[Any]) -> None:
        """Notes the requests that the scheduler ended by itself."""
        for abort in aborts:
            request = int(abort.request_id)
            reason = f"{abort.reason}: {abort.text}"
            self._ledger.aborted.append(Ended(request, self._now_s, reason))
            self._ended[request] = True
            self._live -= 1

    def _record_retractions(self, handles: NDArray[np.uint64]) -> None:
        """Notes the requests that gave up their rows in this plan, before the rows go on."""
        requests = self._request_of_row[(handles & _ROW_BITS).astype(np.int64)]
        np.add.at(self._ledger.retractions, requests, 1)
        for request in requests.tolist():
            self._ledger.retracted.append((self._now_s, request))

    def _wait(self) -> bool:
        """Moves the clock to the next arrival or copy done; false if none is to come."""
        next_s = min(self._to_host.next_done_s(), self._to_device.next_done_s())
        if next_s == float("inf") and self._live:
            nothing = "it plans nothing, though all results and acknowledgements were given"
            raise Standstill(self._standstill(nothing))
        next_s = min(next_s, self._next_arrival_s)
        if next_s == float("inf"):
            return False
        self._now_s = max(self._now_s, next_s)
        return True

    def _standstill(self, what: str) -> str:
        scheduler = self._scheduler
        return (
            f"the scheduler stands still at {self._now_s:.3f} s: {what}. {self._live} requests are "
            f"unfinished ({scheduler.waiting_size()} waiting, {scheduler.prefilling_size()} "
            f"prefilling, {scheduler.decoding_size()} decoding), {len(self._ledger.retracted)} "
            f"were retracted so far, {scheduler.available_lcm_blocks()} of "
            f"{self._scenario.engine.num_device_pages - 1} pages are available. This is a fault of "
            "the scheduler: please report it with this command; a larger --num-device-pages may "
            "avoid it"
        )

    def _sample(self) -> None:
        """Reads the gauges."""
        scheduler, ledger = self._scheduler, self._ledger
        waiting = scheduler.waiting_size()
        ledger.gauges.append(
            (
                self._now_s,
                scheduler.active_lcm_blocks(),
                scheduler.available_lcm_blocks(),
                scheduler.empty_lcm_blocks(),
                waiting,
                self._live - waiting,
            )
        )
        self._next_sample_s = self._now_s + self._sample_s


def _scheduler_of(scenario: Scenario) -> Scheduler:
    try:
        scheduler = Scheduler(scenario.engine.scheduler_config())
    except ConfigError as error:
        raise ConfigurationRefused(str(error)) from error
    scheduler.use_persistent_tables(True)  # no forward reads the plans' block tables
    return scheduler
