"""An execution plan as plain data, so that two can be compared, kept and printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Batch:
    """``Forward.Batch`` of api.md; lists run over requests unless said otherwise."""

    request_ids: list[str] = field(default_factory=list)
    request_pool_indices: list[int] = field(default_factory=list)
    input_lengths: list[int] = field(default_factory=list)
    prefill_lengths: list[int] = field(default_factory=list)
    num_extends: int = 0
    #: Over the prefills, concatenated.
    input_ids: list[int] = field(default_factory=list)
    shifted_input_ids: list[int] = field(default_factory=list)
    #: One a prefill.
    extend_prefix_lens: list[int] = field(default_factory=list)
    extend_replay_lens: list[int] = field(default_factory=list)
    #: One a decode.
    decode_input_ids: list[int] = field(default_factory=list)
    spec_candidate_ids: list[list[int]] = field(default_factory=list)
    #: Group id to one row a request; holes are 0, padding is -1.
    block_tables: dict[str, list[list[int]]] = field(default_factory=dict)

    def chunks(self) -> Iterator[tuple[str, int, int, int]]:
        """Each prefill's ``(request id, first token, end, prompt length)``; re-fed tokens are not
        among them."""
        for i in range(self.num_extends):
            begin = self.extend_prefix_lens[i]
            end = begin + self.input_lengths[i]
            yield (
                self.request_ids[i],
                begin + self.extend_replay_lens[i],
                end,
                self.prefill_lengths[i],
            )

    def decodes(self) -> list[str]:
        return self.request_ids[self.num_extends :]


@dataclass(frozen=True, repr=False)
class Copy:
    """One block of a copy between the tiers. `guard` is ``source_pinned`` of its store, or
    ``prefetch_from_storage`` of its load."""

    group: int
    content_hash: str
    offset: int
    guard: bool
    source: int
    destination: int

    def __repr__(self) -> str:
        guard = ", guard" if self.guard else ""
        page = f"{self.content_hash[:8]}+{self.offset}"
        return f"<group {self.group} {page} {self.source} -> {self.destination}{guard}>"

    def identity(self) -> tuple[int, str, int, bool]:
        return (self.group, self.content_hash, self.offset, self.guard)


@dataclass(frozen=True)
class Plan:
    """``ExecutionPlan`` of api.md."""

    batch: Batch = field(default_factory=Batch)
    #: Operations by id, in plan order; each is a list of copies.
    stores: dict[int, list[Copy]] = field(default_factory=dict)
    loads: dict[int, list[Copy]] = field(default_factory=dict)
    #: Group id to block ids; groups with none are left out.
    pages_to_zero: dict[str, list[int]] = field(default_factory=dict)
    remote_prefill: Batch | None = None
    remote_decode: Batch | None = None
    #: Requests that the scheduler itself ends, with its reason (liveness.md §1).
    ended: dict[str, str] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """True if the plan asks for nothing at all."""
        return not (
            self.batch.request_ids
            or self.stores
            or self.loads
            or self.remote_prefill
            or self.remote_decode
            or self.ended
        )

    def lines(self) -> list[str]:
        """The plan for a person, a line a fact."""
        lines: list[str] = []
        for title, batch in (
            ("", self.batch),
            ("remote prefill ", self.remote_prefill),
            ("remote decode ", self.remote_decode),
        ):
            lines.extend(_batch_lines(title, batch))
        for title, operations in (("store", self.stores), ("load", self.loads)):
            for op_id, copies in operations.items():
                for c in copies:
                    guard = {
                        ("store", True): "pinned",
                        ("store", False): "stream-ordered",
                        ("load", True): "from storage",
                    }.get((title, c.guard), "")
                    lines.append(
                        f"{title} {op_id}: group {c.group} {c.content_hash[:8]}+{c.offset} "
                        f"{c.source} -> {c.destination} {guard}".rstrip()
                    )
        if self.pages_to_zero:
            lines.append(f"zero {self.pages_to_zero}")
        lines.extend(f"ended {name}: {reason}" for name, reason in self.ended.items())
        return lines or ["nothing"]


def _batch_lines(title: str, batch: Batch | None) -> Iterator[str]:
    if batch is None:
        return
    for i, name in enumerate(batch.request_ids):
        tables = "  ".join(
            f"{group} {' '.join('·' if b == 0 else str(b) for b in rows[i] if b >= 0)}"
            for group, rows in batch.block_tables.items()
        )
        if i < batch.num_extends:
            begin, replay = batch.extend_prefix_lens[i], batch.extend_replay_lens[i]
            end = begin + batch.input_lengths[i]
            what = f"prefill [{begin}, {end}) of {batch.prefill_lengths[i]}"
            what += f", {replay} re-fed" if replay else ""
        else:
            what = f"decode {batch.input_lengths[i]}"
        yield f"{title}{name} row {batch.request_pool_indices[i]}: {what}  [{tables}]"


def read_plan(plan: Any) -> Plan:
    """Copies an ``ExecutionPlan`` of either implementation."""
    stores: dict[int, list[Copy]] = {}
    loads: dict[int, list[Copy]] = {}
    for op in plan.cache:
        is_store = hasattr(op, "source_pinned")
        target = stores if is_store else loads
        guards = op.source_pinned if is_store else op.prefetch_from_storage
        for i, op_id in enumerate(op.op_ids):
            guard = guards[i]
            count = len(op.group_ids[i])
            # The reference names neither page nor offset of what it loads from the Host tier.
            named = [is_store or bool(guard[j]) for j in range(count)]
            target[int(op_id)] = [
                Copy(
                    group=int(op.group_ids[i][j]),
                    content_hash=str(op.content_hashes[i][j]) if named[j] else "",
                    offset=int(op.page_offsets[i][j]) if named[j] else 0,
                    guard=bool(guard[j] if isinstance(guard, (list, tuple)) else guard),
                    source=int(op.src_pages[i][j]),
                    destination=int(op.dst_pages[i][j]),
                )
                for j in range(count)
            ]
    return Plan(
        batch=read_batch(plan.forward[0]) if plan.forward else Batch(),
        stores=stores,
        loads=loads,
        pages_to_zero={
            str(group): [int(b) for b in ids] for group, ids in plan.pages_to_zero.items() if ids
        },
        remote_prefill=read_batch(plan.remote_prefill) if plan.remote_prefill else None,
        remote_decode=read_batch(plan.remote_decode) if plan.remote_decode else None,
        ended=read_ended(plan),
    )


def read_batch(batch: Any) -> Batch:
    """Copies a ``Forward.Batch`` of either implementation."""
    return Batch(
        request_ids=[str(name) for name in batch.request_ids],
        request_pool_indices=_ints(batch.request_pool_indices),
        input_lengths=_ints(batch.input_lengths),
        prefill_lengths=_ints(batch.prefill_lengths),
        num_extends=int(batch.num_extends()),
        input_ids=_ints(batch.input_ids),
        shifted_input_ids=_ints(batch.shifted_input_ids),
        extend_prefix_lens=_ints(batch.extend_prefix_lens),
        extend_replay_lens=_ints(batch.extend_replay_lens),
        decode_input_ids=_ints(batch.decode_input_ids),
        spec_candidate_ids=[_ints(row) for row in batch.spec_candidate_ids],
        block_tables={
            str(group): [_ints(row) for row in rows]
            for group, rows in sorted(batch.block_tables.items())
        },
    )


def read_ended(plan: Any) -> dict[str, str]:
    """The requests that the plan ends. The surface of the reference has no such field."""
    return {str(item.request_id): str(item.reason) for item in getattr(plan, "aborts", ())}


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]
