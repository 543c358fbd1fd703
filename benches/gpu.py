"""What the runtime reaches on a GPU, against that same GPU; `python benches/gpu.py --help`."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from tokenspeed.runtime import cuda
from tokenspeed.runtime.arena import Arena
from tokenspeed.runtime.executor import RoundExecutor
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.recipe import Field, LayerCache, Recipe
from tokenspeed.runtime.request import Request
from tokenspeed.runtime.runner import ForwardInput, ForwardOutput

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- benches/gpu.py: begin -->", "<!-- benches/gpu.py: end -->"

BLOCKS = (32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)
IN_FLIGHT = (128 * KIB, 512 * KIB, MIB, 4 * MIB)


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    total: int = GIB
    blocks: tuple[int, ...] = BLOCKS
    turns: int = 7
    forward_copies: int = 40
    """Of `total` inside the device: what stands for a forward."""
    victim: int = 256 * MIB
    decodes: int = 256
    rounds: int = 300


TINY = Sizes(4 * MIB, (32 * KIB, MIB), 2, 2, MIB, 4, 8)


@dataclass
class Row:
    """A line of the result."""

    what: str
    value: float
    unit: str
    of: float | None = None
    """What it is compared with, in the same unit."""
    goal: str = ""
    met: bool | None = None
    notes: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.of is None else self.value / self.of


@dataclass
class Result:
    """A session on one card."""

    card: str
    details: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.rows.append(Row(*args, **kwargs))


class Bench:
    """The measurements; each adds its rows to `result`."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.device = cuda.CudaDevice()
        self.cupy = self.device.xp
        self.main = self.device.stream("forward")
        self.raw = self.main.raw
        runtime = self.cupy.cuda.runtime
        properties = runtime.getDeviceProperties(0)
        name = properties["name"]
        self.result = Result(
            name.decode() if isinstance(name, bytes) else str(name),
            {
                "cupy": self.cupy.__version__,
                "cuda driver": runtime.driverGetVersion(),
                "cuda runtime": runtime.runtimeGetVersion(),
                "date": time.strftime("%Y-%m-%d"),
            },
        )

    def arena(self, nbytes: int, on_host: bool) -> Arena:
        """An arena of `nbytes` and a null parent; what its blocks are is decided by who copies."""
        layout = Recipe([LayerCache("full", {"k": Field((1 * MIB,), "uint8")})], 1).layout
        parents = -(-nbytes // layout.parent_bytes) + 1
        make = self.device.alloc_host if on_host else self.device.alloc_device
        return Arena(layout, parents, make(parents * layout.parent_bytes))

    def offsets(self, block: int, total: int | None = None) -> np.ndarray:
        """Offsets of all blocks of an arena, in random order: no two belong together."""
        count = (total or self.sizes.total) // block
        return np.random.default_rng(count).permutation(count).astype(np.int64) * block

    def seconds(self, work: Callable[[], None]) -> float:
        """What `work` takes on the forward's stream, as the device sees it."""
        return self.in_turns(work)[0]

    def in_turns(self, *works: Callable[[], None]) -> list[float]:
        """The median time of each, played in turn, so that all meet the same moments."""
        times: list[list[float]] = [[] for _ in works]
        for turn in range(self.sizes.turns + 1):
            for at, work in enumerate(works):
                start, end = (self.cupy.cuda.Event() for _ in range(2))
                start.record(self.raw)
                work()
                end.record(self.raw)
                end.synchronize()
                if turn:  # the first one warms up
                    times[at].append(self.cupy.cuda.get_elapsed_time(start, end) / 1000)
        return [statistics.median(each) for each in times]

    def plain_copy(self, target: int, source: int, nbytes: int) -> None:
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDefault, self.raw.ptr)

    def bus(self) -> None:
        """Stores and loads in blocks, beside one large pinned copy."""
        total = self.sizes.total
        near, far = self.arena(total, on_host=False), self.arena(total, on_host=True)
        ends = {"store": (far, near), "load": (near, far)}
        for name, (target, source) in ends.items():
            to, at = _address(target), _address(source)

            def whole(to: int = to, at: int = at) -> None:
                self.plain_copy(to, at, total)

            for block in self.sizes.blocks:
                targets, sources = self.offsets(block), self.offsets(block)[::-1].copy()
                for path, bar in (("kernel", 1 << 62), ("copy engine", 1)):

                    def blocks(
                        target: Arena = target,
                        source: Arena = source,
                        targets: np.ndarray = targets,
                        sources: np.ndarray = sources,
                        block: int = block,
                    ) -> None:
                        self.device.copy_blocks(self.main, target, source, targets, sources, block)

                    with _setting(cuda, "COPY_ENGINE_BYTES", bar):
                        in_blocks, in_one = self.in_turns(blocks, whole)
                    chosen = (path == "kernel") == (block < cuda.COPY_ENGINE_BYTES)
                    self.result.add(
                        f"{name}, blocks of {_size(block)}, {path}",
                        total / in_blocks / 1e9,
                        "GB/s",
                        total / in_one / 1e9,
                        "90 %" if chosen else "",
                        in_one / in_blocks >= 0.9 if chosen else None,
                        "as the runtime does it" if chosen else "the way not taken",
                    )
            self._in_flight(name, target, source)

    def _in_flight(self, name: str, target: Arena, source: Arena) -> None:
        """How much a kernel has to have under way to fill the bus."""
        from tokenspeed.runtime.launcher import BUS_BYTES_IN_FLIGHT  # needs CuPy

        block = self.sizes.blocks[1]
        count = self.sizes.total // block
        where = self.cupy.asarray(self.offsets(block))
        self.device.synchronize()
        for in_flight in IN_FLIGHT:

            def blocks(in_flight: int = in_flight) -> None:
                self.device.launcher.copy_blocks(
                    self.raw, _address(target), _address(source), where.data.ptr, where.data.ptr,
                    count, block, True, in_flight,
                )  # fmt: skip

            (taken,) = self.in_turns(blocks)
            notes = "as the runtime does it" if in_flight == BUS_BYTES_IN_FLIGHT else ""
            rate = self.sizes.total / taken / 1e9
            what = f"{name}, {_size(block)}, {_size(in_flight)} under way"
            self.result.add(what, rate, "GB/s", notes=notes)

    def zeroing(self) -> None:
        """Zeroing in blocks, beside a copy inside the device; in bytes that the memory moves."""
        total = self.sizes.total
        first, second = (self.arena(total, on_host=False) for _ in range(2))
        for block in self.sizes.blocks:
            offsets = self.offsets(block)
            zeroed, copied = self.in_turns(
                lambda offsets=offsets, block=block: self.device.zero_blocks(
                    self.main, first, offsets, block
                ),
                lambda: self.plain_copy(_address(second), _address(first), total),
            )
            rate, bandwidth = total / zeroed / 1e9, 2 * total / copied / 1e9
            what = f"zeroing, blocks of {_size(block)}"
            self.result.add(what, rate, "GB/s", bandwidth, "80 %", rate >= 0.8 * bandwidth)

    def retraction(self) -> None:
        """Two forwards with an ordered store and the zeroing of what it freed between them, beside
        the same two without, and beside the store alone."""
        total, victim = self.sizes.total, self.sizes.victim
        near, far = self.arena(total, on_host=False), self.arena(victim, on_host=True)
        scratch = self.arena(total, on_host=False)
        block = self.sizes.blocks[1]
        offsets = self.offsets(block, victim)
        ordered = self.device.stream("ordered stores")

        def forward() -> None:
            for _ in range(self.sizes.forward_copies):
                self.plain_copy(_address(scratch), _address(near), total)

        def store(stream: Any) -> None:
            self.device.copy_blocks(stream, far, near, offsets, offsets, block)

        def without() -> None:
            forward()
            self.device.zero_blocks(self.main, near, offsets, block)
            forward()

        def with_store() -> None:
            forward()
            ordered.wait(self.main.record())
            store(ordered)
            self.main.wait(ordered.record())
            self.device.zero_blocks(self.main, near, offsets, block)
            forward()

        plain, retracting, alone = self.in_turns(without, with_store, lambda: store(self.main))
        added = (retracting - plain) * 1000
        self.result.add(
            f"an ordered store of {_size(victim)}, added between two forwards",
            added,
            "ms",
            alone * 1000,
            "100 %",
            added <= alone * 1000 * 1.03,
            f"forwards and zeroing: {plain * 1000:.2f} ms; 3 % for the clock",
        )

    def overhead(self) -> None:
        """What the host spends on a round of decodes, with a model that does nothing."""
        sizes = self.sizes
        model = _NoModel()
        config = model.recipe().scheduler_config(
            num_device_pages=sizes.decodes * 20 + 2,
            max_scheduled_tokens=max(2048, 8 * sizes.decodes),
            max_batch_size=sizes.decodes,
            overlap_schedule_depth=1,
        )
        model.device = self.device
        loop = EngineLoop(config, model, self.device, inline=True, executor_type=_TimedExecutor)
        timed: Any = _TimedScheduler(loop.scheduler)
        loop.scheduler = timed
        tokens = sizes.rounds + 20
        for at in range(sizes.decodes):
            loop.submit(Request(str(at), [at + 1] * 8, tokens))
        spans: dict[str, list[float]] = {"plan": [], "launch": [], "all": []}
        for round_ in range(sizes.rounds):
            loop.step()
            if model.decodes == sizes.decodes and round_ > sizes.rounds // 4:
                spans["plan"].append(timed.planned - timed.asked)
                spans["launch"].append(model.called - timed.planned)
                spans["all"].append(_TimedExecutor.left - timed.planned)
        plan, launch, whole = (statistics.median(each) * 1e6 for each in spans.values())
        self.device.synchronize()
        who = f"{sizes.decodes} decodes"
        self.result.add(f"plan, {who}", plan, "µs")
        self.result.add(
            f"plan to the model's call, {who}", launch, "µs", goal="< 200 µs", met=launch < 200
        )
        self.result.add(f"plan to the round's last launch, {who}", whole, "µs")


class _NoModel:
    """A model whose forward is a constant."""

    device: cuda.CudaDevice
    called = 0.0
    decodes = 0

    def recipe(self) -> Recipe:
        return Recipe([LayerCache("full", {"k": Field((1,), "float32")})], 64)

    def bind(self, arena: Arena, device: Any) -> None:
        self._logits = device.xp.zeros((4096, 8), dtype=np.float32)

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        self.called = time.perf_counter()
        self.decodes = batch.num_decodes
        return ForwardOutput(self._logits[: len(batch.logit_tokens)])

    def accepted(self, batch: ForwardInput, counts: Any) -> None:
        """Nothing is kept."""


class _TimedExecutor(RoundExecutor):
    left = 0.0

    def carry_out(self, round_: Any) -> Any:
        launched = super().carry_out(round_)
        _TimedExecutor.left = time.perf_counter()
        return launched


class _TimedScheduler:
    """A scheduler that notes when a plan was asked for and when it was there."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.asked = self.planned = 0.0

    def next_execution_plan(self) -> Any:
        self.asked = time.perf_counter()
        plan = self._scheduler.next_execution_plan()
        self.planned = time.perf_counter()
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


@contextmanager
def _setting(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _address(arena: Arena) -> int:
    buffer = arena.buffer
    return int(buffer.data.ptr if hasattr(buffer.data, "ptr") else buffer.ctypes.data)


def _size(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def cells(row: Row) -> list[str]:
    """A row as text: what, value, compared with, ratio, goal, verdict, notes."""
    return [
        row.what,
        f"{_number(row.value)} {row.unit}",
        "" if row.of is None else f"{_number(row.of)} {row.unit}",
        "" if row.ratio is None else f"{row.ratio:.1%}",
        row.goal,
        "" if row.met is None else "yes" if row.met else "NO",
        row.notes,
    ]


HEADINGS = ["what", "measured", "beside", "ratio", "goal", "met", ""]


def markdown(result: Result) -> str:
    """The section of `benches/README.md`."""
    details = ", ".join(f"{name} {value}" for name, value in result.details.items())
    lines = [f"{result.card}; {details}.", "", "| " + " | ".join(HEADINGS) + " |"]
    lines.append("|---" * len(HEADINGS) + "|")
    lines += ["| " + " | ".join(cells(row)) + " |" for row in result.rows]
    return "\n".join(lines)


def write(result: Result, readme: Path) -> None:
    """Puts the table in its place in the README, instead of the one before."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n{markdown(result)}\n{END}{after}", encoding="utf-8")


def measured(only: tuple[str, ...], sizes: Sizes) -> Result:
    """Runs the parts named in `only`, or all."""
    bench = Bench(sizes)
    for part in only or PARTS:
        getattr(bench, part)()
    return bench.result


PARTS = ("bus", "zeroing", "retraction", "overhead")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="A part; repeatable.")
@click.option("--json", "as_json", type=click.Path(dir_okay=False), help="Also write this file.")
@click.option("--write", "writes", is_flag=True, help="Put the table into benches/README.md.")
@click.option("--tiny", is_flag=True, help="Show that it runs; the numbers say nothing.")
def main(only: tuple[str, ...], as_json: str | None, writes: bool, tiny: bool) -> None:
    """Measures the device `cuda` on the GPU at hand, each part against what the same GPU does at
    best, in turns. Takes one or two minutes, 4 GiB of the GPU and 2 GiB of pinned memory; needs no
    network.

    \b
    bus         1 GiB stored and loaded in scattered blocks, beside one pinned copy of 1 GiB.
                Both ways to do it, the copy kernel and the copy engine, for each block size; the
                runtime takes the one marked so. Goal: 90 % of the one copy.
    zeroing     blocks zeroed, beside a copy inside the device (bytes read and written).
                Goal: 80 %.
    retraction  what an ordered store between two forwards adds to them, beside the store alone.
                Goal: no more than the store.
    overhead    what the host spends from a plan to the model's call, with 256 decodes.
                Goal: under 200 µs.

    What to do with it: where the way not taken is the faster one, change COPY_ENGINE_BYTES in
    runtime/cuda.py; where more under way gives more, BUS_BYTES_IN_FLIGHT in runtime/launcher.py.
    """
    if reason := cuda.why_missing():
        raise click.ClickException(f"nothing to measure: {reason}")
    result = measured(only, TINY if tiny else Sizes())
    table = Table(*HEADINGS, title=f"{result.card}, {result.details}", title_justify="left")
    for row in result.rows:
        table.add_row(*cells(row))
    Console().print(table)
    if as_json:
        rows = [{**asdict(row), "ratio": row.ratio} for row in result.rows]
        whole = {"card": result.card, **result.details, "rows": rows}
        Path(as_json).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    if writes:
        write(result, README)


if __name__ == "__main__":
    main()
