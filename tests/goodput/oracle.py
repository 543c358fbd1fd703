"""The least rounds in which any schedule gets through a small world, found by search.

A world is one full group, all requests there at once, mixed rounds of ample budget. To compute a
prompt again costs a round nothing then, so a state is how far each request is, and a round is any
set of requests whose blocks fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Asked = tuple[int, int]
"""Tokens of a prompt, and of its output."""


def least_rounds(requests: Sequence[Asked], page_tokens: int, blocks: int, rows: int) -> int:
    """Rounds of the best schedule. Requests must each fit the pool alone."""
    start = tuple(0 for _ in requests)
    goal = tuple(output for _, output in requests)
    reached, rounds = {start}, 0
    while goal not in reached:
        rounds += 1
        reached = {
            state
            for before in reached
            for state in _rounds_from(before, requests, page_tokens, blocks, rows)
        }
    return rounds


def _rounds_from(
    before: tuple[int, ...],
    requests: Sequence[Asked],
    page_tokens: int,
    blocks: int,
    rows: int,
) -> set[tuple[int, ...]]:
    """States that a round leads to; only sets that no other request fits beside are tried."""
    alive = [at for at, (_, output) in enumerate(requests) if before[at] < output]
    need = {at: -(-(requests[at][0] + before[at]) // page_tokens) for at in alive}
    fitting: list[set[int]] = []
    for count in range(min(rows, len(alive)), 0, -1):
        for chosen in combinations(alive, count):
            fits = sum(need[at] for at in chosen) <= blocks
            if fits and not any(set(chosen) < larger for larger in fitting):
                fitting.append(set(chosen))
    return {tuple(g + (at in run) for at, g in enumerate(before)) for run in fitting}
