"""The calls of a recording made again, up to the first that comes out otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tokenspeed.scheduler import Cache, ExecutionPlan, Forward, InternalError, Rerun, RerunStep

OnProgress = Callable[[int, int, float], None]
"""Gets the bytes of the file read so far, all of them, and 0 s: nothing tells the time."""

CALLS_BETWEEN_PROGRESS = 256


@dataclass(frozen=True)
class Played:
    """What became of a recording."""

    version: str
    """Of tokenspeed, when it was recorded."""
    calls: int
    """Calls made, the one that differs or broke off included."""
    rounds: int
    """Plans made."""
    last: RerunStep | None
    """The last call that returned; it differs unless `last.same`."""
    plan: ExecutionPlan | None
    """The last plan."""
    cut_line: int | None
    """The line in which the file ends too early."""
    broke_off: str | None
    """What the scheduler said when the call after `last` broke off."""

    @property
    def same(self) -> bool:
        """Whether every call came out as recorded."""
        return self.broke_off is None and (self.last is None or self.last.same)


def play(path: Path, until: int | None = None, on_progress: OnProgress | None = None) -> Played:
    """Makes the calls of a recording, all or until the plan of round `until`.

    Raises SchedulerError for a file that cannot be read, or whose configuration is refused.
    """
    rerun = Rerun(path)
    last, plan, broke_off = None, None, None
    while last is None or (last.same and (until is None or last.round < until)):
        try:
            step = rerun.step()
        except InternalError as error:
            broke_off = str(error)
            break
        if step is None:
            break
        last, plan = step, step.plan or plan
        if on_progress and step.number % CALLS_BETWEEN_PROGRESS == 0:
            on_progress(*rerun.progress, 0.0)
    calls = (last.number if last else 0) + (broke_off is not None)
    rounds = last.round if last else 0
    return Played(rerun.version, calls, rounds, last, plan, rerun.cut_line, broke_off)


def describe_step(step: RerunStep) -> str:
    """Where a call stands in a recording, what came of it then and now."""
    return (
        f"round {step.round:,}, call {step.number:,} (line {step.line:,}): {step.call}\n"
        f"  recorded  {step.recorded or 'nothing: the file ends here'}\n"
        f"  now       {step.now}"
    )


def describe_plan(plan: ExecutionPlan) -> str:
    """A plan as text, a line for each request, copy and list that it has."""
    return "\n".join(_lines(plan)) or "an empty plan"


def _lines(plan: ExecutionPlan) -> Iterator[str]:
    for name, batch in (
        ("", plan.batch),
        ("remote prefill, ", plan.remote_prefill),
        ("remote decode, ", plan.remote_decode),
    ):
        if batch is not None:
            yield from _batch(name, batch)
    for group, pages in plan.pages_to_zero.items():
        yield f"zero in {group}: {spans(pages)}"
    for copy in plan.cache:
        name = "write back" if isinstance(copy, Cache.WriteBackOp) else "load back"
        for op, groups, sources, targets in zip(
            copy.op_ids, copy.group_ids, copy.src_pages, copy.dst_pages
        ):
            blocks = zip(groups, sources, targets)
            yield f"{name} {op}: " + " ".join(f"{g}:{s}>{t}" for g, s, t in blocks)
    if len(plan.retracted):
        yield f"retracted: rows {' '.join(str(handle & 0xFFFFFFFF) for handle in plan.retracted)}"
    for notice in plan.aborts:
        yield f"ended {notice.request_id}: {notice.reason}, {notice.text}"


def _batch(name: str, batch: Forward.Batch) -> Iterator[str]:
    tables = batch.block_tables
    for at, request_id in enumerate(batch.request_ids):
        size, prompt = batch.input_lengths[at], batch.prefill_lengths[at]
        if at < batch.num_extends():
            begin = batch.extend_prefix_lens[at]
            what = f"prefill {begin} to {begin + size} of {prompt}"
        else:
            what = f"decode {size}, prompt {prompt}"
        slots = (f"{group} {spans(rows[at])}" for group, rows in tables.items())
        row = batch.request_pool_indices[at]
        yield f"{name}{request_id}: row {row}, {what}; " + "; ".join(slots)


def spans(blocks: list[int]) -> str:
    """Block ids with runs drawn together, as `3-7 9`; padding (-1) is left out."""
    blocks = [block for block in blocks if block >= 0]
    starts = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(blocks)) if b != a + 1), len(blocks)]
    runs = [(blocks[start], blocks[end - 1]) for start, end in pairwise(starts) if start < end]
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
