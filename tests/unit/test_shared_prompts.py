"""A prompt that begins as a live one is named by comparing tokens: its names are its hashes."""

from __future__ import annotations

import random

import numpy as np
from tokenspeed.scheduler import ForwardEvent, RequestSpec, Scheduler

from .engine import config, tell


def test_names_are_those_of_the_hashes() -> None:
    rng = random.Random(5)
    stems = [[rng.randrange(3) for _ in range(40)] for _ in range(3)]
    scheduler = Scheduler(config(blocks=64, max_batch_size=300))
    waiting: dict[str, list[int]] = {}
    for number in range(300):
        stem = rng.choice(stems)[: rng.randrange(1, 41)]
        waiting[f"r{number}"] = stem + [rng.randrange(3) for _ in range(rng.randrange(12))]
        tokens = np.array(waiting[f"r{number}"], dtype=np.int32)
        scheduler.submit_requests([RequestSpec(f"r{number}", tokens)])
        if number % 3 == 2:  # so that places of requests, and of pages, are used again
            gone = rng.choice(sorted(waiting))
            del waiting[gone]
            tell(scheduler, ForwardEvent.Abort(gone))
        hashes = (scheduler.prefix_hashes_for_tokens(prompt) for prompt in waiting.values())
        assert set(scheduler.waiting_prefix_hashes()) == {page for all_ in hashes for page in all_}
