"""The report: what a replay says, in numbers that a person or a program can read."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenspeed.simulate.ledger import Ledger, Table
from tokenspeed.simulate.scenario import PARTS, Scenario

SCHEMA = "tokenspeed.replay/1"
"""Name and version of the JSON form. A field may be added within a version, never changed."""

SERIES_POINTS = 240
"""Points of a series."""

WINDOW_POINTS = 12
"""Points that a rate or an average of a series looks back: a twentieth of the replay."""


@dataclass(frozen=True)
class Distribution:
    """Order statistics of some values, in the unit that the owner's field names.

    A percentile between two values is interpolated linearly: of n sorted values, the p-th
    percentile lies at position (n - 1) * p / 100, counted from 0. Of no values all are None.
    """

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None
    percentiles: list[float]
    """The 0th, 1st ... 100th percentile; empty of no values."""

    @classmethod
    def of(cls, values: NDArray[Any]) -> Distribution:
        """The distribution of `values`; NaNs are left out."""
        values = np.asarray(values, dtype=np.float64)
        values = values[~np.isnan(values)]
        if not len(values):
            return cls(0, None, None, None, None, None, [])
        grid = np.percentile(values, np.arange(101)).tolist()
        return cls(len(values), float(values.mean()), grid[50], grid[90], grid[99], grid[100], grid)


@dataclass(frozen=True)
class TraceSummary:
    """What was asked of the engine."""

    name: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    span_s: float
    """From the first arrival to the last."""


@dataclass(frozen=True)
class Outcome:
    """How the requests ended, and how fast the work was done."""

    finished_requests: int
    refused_requests: int
    aborted_requests: int
    duration_s: float
    """From the first arrival to the end of the last forward, in virtual time; so all below."""
    requests_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    """Tokens of the prompts answered, whether computed or found in the cache."""
    busy_fraction: float
    """Share of the duration in which a forward runs."""


@dataclass(frozen=True)
class Latency:
    """What a client waits for, over the finished requests, in seconds of virtual time."""

    time_to_first_token_s: Distribution
    """From arrival to the first token."""
    time_per_output_token_s: Distribution
    """(last token - first token) / (tokens - 1), over requests of two tokens or more."""
    end_to_end_s: Distribution
    """From arrival to the last token."""
    passed_over_s: Distribution
    """How much later than first in, first out: by which the first token came behind the earliest
    one of a later arrival; 0 where none came before."""


@dataclass(frozen=True)
class CacheUse:
    """What the prefix cache saved, and what the pool's limits cost."""

    admitted_prompt_tokens: int
    device_hit_tokens: int
    host_hit_tokens: int
    device_hit_rate: float
    """Share of the admitted prompts' tokens found on the device, at a request's first admission."""
    host_hit_rate: float
    """Likewise, those found on the host only and loaded back."""
    prefilled_tokens: int
    """Tokens that prefills computed, recomputed and replayed ones included."""
    recomputed_tokens: int
    """Tokens computed again after a retraction."""
    recomputed_rate: float
    """Their share of the prefilled tokens."""
    replayed_tokens: int
    """Tokens fed again behind a hit."""
    write_back_bytes: int
    """Copied from the device to the host."""
    load_back_bytes: int
    """Copied from the host to the device."""
    retractions: int
    retracted_requests: int
    retractions_max: int
    """The most that any one request was retracted."""


@dataclass(frozen=True)
class Pool:
    """The device pool over time."""

    usable_pages: int
    page_bytes: int
    active_pages_mean: float
    """Pages held by requests, averaged over the samples."""
    active_pages_max: int


@dataclass(frozen=True)
class Planning:
    """The scheduler's own work, on the machine that played the trace."""

    plans: int
    forwards: int
    requests_per_forward: float
    """The mean batch."""
    plan_build_us: Distribution
    """Real microseconds of a call of next_execution_plan."""
    replay_s: float
    """Real seconds of the whole replay."""


@dataclass(frozen=True)
class Series:
    """The replay over time: one entry a point, at equal distances of virtual time."""

    at_s: list[float]
    active_pages: list[int]
    """Held by requests."""
    cached_pages: list[int]
    """Held by the prefix cache alone; evictable."""
    empty_pages: list[int]
    waiting_requests: list[int]
    running_requests: list[int]
    decodes_per_forward: list[float]
    """Averaged over the last twentieth of the replay, as all below."""
    prefill_tokens_per_s: list[float]
    write_back_bytes_per_s: list[float]
    load_back_bytes_per_s: list[float]
    device_hit_rate: list[float | None]
    """Of the prompts admitted in that time; None: none was."""
    host_hit_rate: list[float | None]


@dataclass(frozen=True)
class Report:
    """Everything that a replay reports."""

    schema: str
    trace: TraceSummary
    settings: dict[str, Any]
    """Every setting of the scenario by name."""
    outcome: Outcome
    latency: Latency
    cache: CacheUse
    pool: Pool
    planning: Planning
    refused: list[dict[str, Any]]
    """{request, at_s, reason} of each; `request` counts the trace's requests from 0."""
    aborted: list[dict[str, Any]]
    series: Series

    @classmethod
    def of(cls, ledger: Ledger, scenario: Scenario) -> Report:
        """Reads a finished replay's ledger."""
        return cls(
            schema=SCHEMA,
            trace=_trace(ledger),
            settings=settings_of(scenario),
            outcome=_outcome(ledger),
            latency=_latency(ledger),
            cache=_cache(ledger),
            pool=_pool(ledger, scenario),
            planning=_planning(ledger),
            refused=[asdict(ended) for ended in ledger.refused],
            aborted=[asdict(ended) for ended in ledger.aborted],
            series=_series(ledger, scenario.page_bytes),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists, dicts and numbers; never NaN."""
        return asdict(self)


def settings_of(scenario: Scenario) -> dict[str, Any]:
    """Every setting of a scenario by name."""
    return {
        item.name: getattr(getattr(scenario, part), item.name)
        for part, owner in PARTS.items()
        for item in fields(owner)
    }


def reasons(ended: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Kinds of reason, each as its first text with how many requests it ended; most first.

    Two texts are of one kind if they differ in their numbers only.
    """
    kinds: dict[str, tuple[str, int]] = {}
    for item in ended:
        kind = re.sub(r"\d+", "#", item["reason"])
        text, count = kinds.get(kind, (item["reason"], 0))
        kinds[kind] = (text, count + 1)
    return sorted(kinds.values(), key=lambda pair: -pair[1])


def _trace(ledger: Ledger) -> TraceSummary:
    trace = ledger.trace
    return TraceSummary(
        trace.name,
        len(trace),
        int(trace.prompt_tokens.sum()),
        int(trace.output_tokens.sum()),
        trace.span_s,
    )


def _outcome(ledger: Ledger) -> Outcome:
    finished = ~np.isnan(ledger.finished_s)
    duration_s = ledger.end_s
    generated = ledger.trace.output_tokens - ledger.remaining_tokens
    rounds = ledger.rounds.table()

    def per_s(count: Any) -> float:
        return float(count) / duration_s if duration_s else 0.0

    return Outcome(
        finished_requests=int(finished.sum()),
        refused_requests=len(ledger.refused),
        aborted_requests=len(ledger.aborted),
        duration_s=duration_s,
        requests_per_s=per_s(finished.sum()),
        output_tokens_per_s=per_s(generated.sum()),
        prompt_tokens_per_s=per_s(ledger.trace.prompt_tokens[finished].sum()),
        busy_fraction=per_s((rounds["end_s"] - rounds["start_s"]).sum()),
    )


def _latency(ledger: Ledger) -> Latency:
    arrival_s = ledger.trace.arrival_s
    gaps = ledger.trace.output_tokens - 1
    several = gaps > 0
    generating_s = (ledger.finished_s - ledger.first_token_s)[several]
    return Latency(
        Distribution.of((ledger.first_token_s - arrival_s)[~np.isnan(ledger.finished_s)]),
        Distribution.of(generating_s / gaps[several]),
        Distribution.of(ledger.finished_s - arrival_s),
        Distribution.of(_passed_over_s(ledger.first_token_s)),
    )


def _passed_over_s(first_token_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """One entry a request, in order of arrival; NaN where it got no token."""
    came_s = np.where(np.isnan(first_token_s), np.inf, first_token_s)
    earliest_behind = np.append(np.minimum.accumulate(came_s[::-1])[::-1][1:], np.inf)
    passed_s: NDArray[np.float64] = np.maximum(first_token_s - earliest_behind, 0.0)
    return passed_s


def _planning(ledger: Ledger) -> Planning:
    rounds = ledger.rounds.table()
    batches = rounds["prefills"] + rounds["decodes"]
    return Planning(
        len(ledger.plan_ns),
        len(ledger.rounds),
        float(batches.mean()) if len(batches) else 0.0,
        Distribution.of(np.array(ledger.plan_ns) / 1e3),
        ledger.wall_s,
    )


def _cache(ledger: Ledger) -> CacheUse:
    admitted = ~np.isnan(ledger.admitted_s)
    prompts = int(ledger.trace.prompt_tokens[admitted].sum())
    device, host = int(ledger.device_hit_tokens.sum()), int(ledger.host_hit_tokens.sum())
    return CacheUse(
        admitted_prompt_tokens=prompts,
        device_hit_tokens=device,
        host_hit_tokens=host,
        device_hit_rate=device / prompts if prompts else 0.0,
        host_hit_rate=host / prompts if prompts else 0.0,
        prefilled_tokens=ledger.prefilled_tokens,
        recomputed_tokens=ledger.recomputed_tokens,
        recomputed_rate=ledger.recomputed_tokens / max(ledger.prefilled_tokens, 1),
        replayed_tokens=ledger.replayed_tokens,
        write_back_bytes=ledger.write_back_bytes,
        load_back_bytes=ledger.load_back_bytes,
        retractions=int(ledger.retractions.sum()),
        retracted_requests=int((ledger.retractions > 0).sum()),
        retractions_max=int(ledger.retractions.max(initial=0)),
    )


def _pool(ledger: Ledger, scenario: Scenario) -> Pool:
    active = ledger.gauges.table()["active_pages"]
    return Pool(
        usable_pages=scenario.engine.num_device_pages - 1,
        page_bytes=scenario.page_bytes,
        active_pages_mean=float(active.mean()),
        active_pages_max=int(active.max()),
    )


def _series(ledger: Ledger, page_bytes: int) -> Series:
    edges = np.linspace(0.0, ledger.end_s, SERIES_POINTS + 1)
    at_s = edges[1:]
    gauges = ledger.gauges.table()
    # A gauge holds its value from one sample to the next.
    last = np.maximum(np.searchsorted(gauges["at_s"], at_s, side="right") - 1, 0)
    sampled = {name: column[last].astype(np.int64) for name, column in gauges.items()}

    rounds = ledger.rounds.table()
    took_s = rounds["end_s"] - rounds["start_s"]
    looked_back_s = np.maximum(_trailing(np.diff(edges)), 1e-12)
    busy_s = np.maximum(_spread(rounds, took_s, edges), 1e-12)

    def bytes_per_s(copies: Table) -> list[float]:
        rates: list[float] = (
            _spread(copies, copies["pages"] * page_bytes, edges) / looked_back_s
        ).tolist()
        return rates

    admitted = ~np.isnan(ledger.admitted_s)

    def admitted_sum(values: NDArray[Any]) -> NDArray[np.float64]:
        weights = values[admitted].astype(np.float64)
        return _trailing(np.histogram(ledger.admitted_s[admitted], bins=edges, weights=weights)[0])

    def rate(hits: NDArray[Any]) -> list[float | None]:
        pairs = zip(admitted_sum(hits).tolist(), prompts.tolist())
        return [hit / prompt if prompt else None for hit, prompt in pairs]

    prompts = admitted_sum(ledger.trace.prompt_tokens)
    return Series(
        at_s=at_s.tolist(),
        active_pages=sampled["active_pages"].tolist(),
        cached_pages=(sampled["available_pages"] - sampled["empty_pages"]).tolist(),
        empty_pages=sampled["empty_pages"].tolist(),
        waiting_requests=sampled["waiting"].tolist(),
        running_requests=sampled["running"].tolist(),
        decodes_per_forward=(_spread(rounds, took_s * rounds["decodes"], edges) / busy_s).tolist(),
        prefill_tokens_per_s=(
            _spread(rounds, rounds["prefill_tokens"], edges) / looked_back_s
        ).tolist(),
        write_back_bytes_per_s=bytes_per_s(ledger.write_backs.table()),
        load_back_bytes_per_s=bytes_per_s(ledger.load_backs.table()),
        device_hit_rate=rate(ledger.device_hit_tokens),
        host_hit_rate=rate(ledger.host_hit_tokens),
    )


def _spread(
    spans: Table, amounts: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much of `amounts`, spread evenly over each span, falls into the window behind each edge
    but the first. Spans follow one another and do not overlap."""
    if not len(amounts):
        return np.zeros(len(edges) - 1)
    times = np.stack([spans["start_s"], spans["end_s"]], axis=1).reshape(-1)
    total = np.cumsum(amounts)
    before_and_after = np.stack([total - amounts, total], axis=1).reshape(-1)
    return _trailing(np.diff(np.interp(edges, times, before_and_after)))


def _trailing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each value and the `WINDOW_POINTS - 1` before it, as far as there are any."""
    total = np.cumsum(values)
    total[WINDOW_POINTS:] -= total[:-WINDOW_POINTS].copy()
    return total
