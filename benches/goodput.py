"""How much of an engine a policy keeps when memory is short: rounds until all requests are done.

One world (500 requests of 1,024 + 512 tokens, 256 rows) over pools of 20 % to 120 % of what its
rows come to need, in virtual time. `docs/goodput.md` has the results.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from tokenspeed.simulate import Player, Scenario, Standstill, Trace
from tokenspeed.simulate.ledger import Ledger

REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS = 500, 1024, 512
ROWS, PAGE_TOKENS = 256, 64

HEADINGS = (
    *("pool", "budgets", "mode", "tier", "rounds", "mean batch", "retractions", "most of one"),
    *("recomputed", "GB copied", "time per token, 99th / median"),
)


def world() -> Trace:
    """The requests, all there at once; no two prompts begin alike."""
    return Trace(
        "world",
        np.zeros(REQUESTS),
        np.full(REQUESTS, PROMPT_TOKENS, dtype=np.int64),
        np.full(REQUESTS, OUTPUT_TOKENS, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.zeros(REQUESTS + 1, dtype=np.int64),
    )


def scenarios(percents: list[int], policy: str) -> Iterator[tuple[str, Scenario]]:
    """Every variant of every pool, with its label."""
    needed = ROWS * -(-(PROMPT_TOKENS + OUTPUT_TOKENS) // PAGE_TOKENS)
    for percent in percents:
        for declared in (True, False):
            for mixed in (True, False):
                for host in (False, True):
                    label = (
                        f"{percent} % | {'declared' if declared else 'undeclared'} | "
                        f"{'mixed' if mixed else 'unmixed'} | {'host' if host else 'none'}"
                    )
                    yield (
                        label,
                        Scenario.of(
                            {
                                "num_device_pages": needed * percent // 100 + 1,
                                "num_host_pages": 4 * needed if host else 0,
                                "prefix_granularity": PAGE_TOKENS,
                                "max_scheduled_tokens": 8 * PROMPT_TOKENS,
                                "max_batch_size": ROWS,
                                "enable_mixed_prefill_decode": mixed,
                                "max_new_tokens": -1 if declared else 0,
                                "pressure_policy": policy,
                            }
                        ),
                    )


def row(ledger: Ledger) -> str:
    """What became of a world, as cells."""
    rounds = ledger.rounds.table()
    generating_s = (ledger.finished_s - ledger.first_token_s) / (OUTPUT_TOKENS - 1)
    median, last = np.percentile(generating_s, [50, 99])
    return (
        f"{len(ledger.rounds):,} | {(rounds['prefills'] + rounds['decodes']).mean():.0f} | "
        f"{ledger.retractions.sum():,} | {ledger.retractions.max()} | "
        f"{ledger.recomputed_tokens / ledger.prefilled_tokens:.1%} | "
        f"{(ledger.write_back_bytes + ledger.load_back_bytes) / 1e9:.1f} | {last / median:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=("goodput", "document"), default="goodput")
    parser.add_argument("--pools", default="20,40,60,80,100,120", help="percents of need")
    arguments = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |")
    print("|---" * len(HEADINGS) + "|")
    for label, scenario in scenarios(
        [int(p) for p in arguments.pools.split(",")], arguments.policy
    ):
        try:
            cells = row(Player(world(), scenario).run())
        except Standstill as error:
            cells = f"stands still: {str(error)[:60]} | | | | | |"
        print(f"| {label} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
