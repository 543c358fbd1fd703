"""Random pools and requests, played by an engine loop; transformers generates alone."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from models.tiny import VOCABULARY, plain, tiny
from tokenspeed.engine.watch import RoundView
from tokenspeed.models.runner import TransformersRunner
from tokenspeed.runtime.cpu import CpuDevice
from tokenspeed.runtime.drafter import PromptLookup
from tokenspeed.runtime.loop import EngineLoop
from tokenspeed.runtime.request import Request

PAGE = 4


@cache
def alone(family: str, prompt: tuple[int, ...], new_tokens: int) -> tuple[int, ...]:
    """What transformers generates, greedily, with a cache of its own: the independent oracle."""
    out = plain(family).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(out[0, len(prompt) :].tolist())


@dataclass
class Seen:
    """What happened in a world, so that a test can tell that it tested something."""

    retractions: int = 0
    loaded_blocks: int = 0
    hit_tokens: int = 0
    chunks: int = 0
    mixed_rounds: int = 0
    accepted: int = 0
    """Tokens beyond the first of a step."""
    finished: int = 0
    aborted: int = 0


@dataclass
class World:
    """One engine and its requests, all of it drawn by a seed."""

    family: str
    seed: int
    depth: int = 0
    host: bool = False
    width: int = 1
    seen: Seen = field(default_factory=Seen)

    def play(self) -> None:
        """Runs it to its end. Raises AssertionError at the first token that differs."""
        rng = np.random.default_rng([self.seed, self.depth, self.host, self.width])
        runner = TransformersRunner(tiny(self.family), PAGE)
        recipe = runner.recipe()
        settings = {
            "max_scheduled_tokens": int(rng.integers(12, 40)),
            "decode_input_tokens": self.width,
            "overlap_schedule_depth": self.depth,
            "enable_mixed_prefill_decode": bool(rng.integers(2)),
        }
        # Room for one request of the longest kind, and little more.
        longest = 44
        least = recipe.pages_for(1, longest, **settings)
        config = recipe.scheduler_config(
            num_device_pages=least + int(rng.integers(0, 3)),
            num_host_pages=int(rng.integers(4, 3 * least)) if self.host else 0,
            max_batch_size=int(rng.integers(2, 6)),
            **settings,
        )
        loop = EngineLoop(
            config,
            runner,
            CpuDevice(),
            drafter=PromptLookup(1) if self.width > 1 else None,
            inline=True,
            on_plan=lambda plan: self._on_round(RoundView.of(loop, plan)),
        )
        try:
            self._run(loop, rng, min(longest, loop.context_tokens))
        finally:
            loop.close()

    def _run(self, loop: EngineLoop, rng: np.random.Generator, longest: int) -> None:
        shared = rng.integers(4, VOCABULARY, longest).tolist()
        pending = []
        for number in range(6):
            new = int(rng.integers(6, 24))
            length = int(rng.integers(2, longest - new))
            common = int(rng.integers(0, length)) if rng.random() < 0.6 else 0
            own = rng.integers(4, VOCABULARY, length - common).tolist()
            prompt = tuple(shared[:common] + own)
            pending.append((int(rng.integers(0, 12)), f"r{number}", prompt, new))
        wanted = {name: alone(self.family, prompt, new) for _, name, prompt, new in pending}
        abort = (str(rng.choice(list(wanted))), int(rng.integers(2, 20)))
        abort = abort if rng.random() < 0.3 else ("", -1)
        got: dict[str, list[int]] = {name: [] for name in wanted}
        ended: dict[str, str] = {}
        step = 0
        while pending or loop.has_work:
            for arrival in [one for one in pending if one[0] <= step]:
                pending.remove(arrival)
                _, name, prompt, new = arrival
                # A declared budget is reserved and never retracted; here most are not.
                declared = None if rng.random() < 0.2 else 0
                loop.submit(Request(name, prompt, new, declared_new_tokens=declared))
            if step == abort[1]:
                loop.abort(abort[0])
            for output in loop.step():
                assert output.error is None, output.error
                got[output.request_id] += output.tokens
                self.seen.accepted += max(0, len(output.tokens) - 1)
                if output.finish_reason:
                    ended[output.request_id] = output.finish_reason
            step += 1
            assert step < 2000, "no end"
        for name, tokens in wanted.items():
            reason = ended[name]
            self.seen.finished += reason == "length"
            self.seen.aborted += reason == "abort"
            assert tuple(got[name]) == tokens[: len(got[name])], (self, name)
            assert reason == "abort" or len(got[name]) == len(tokens), (self, name)

    def _on_round(self, view: RoundView) -> None:
        self.seen.retractions += len(view.retracted)
        self.seen.loaded_blocks += view.loaded_blocks
        self.seen.hit_tokens += view.hit_tokens
        self.seen.chunks += view.partial
        self.seen.mixed_rounds += bool(view.prefills and view.decodes)


def main() -> None:
    """Plays many worlds, from `tests`: `python -m engine.worlds falcon_h1 --seeds 0:200`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("family")
    parser.add_argument("--seeds", default="0:20", metavar="FIRST:END")
    parser.add_argument("--width", type=int, default=1)
    given = parser.parse_args()
    seen = Seen()
    for seed in range(*map(int, given.seeds.split(":"))):
        for depth, host in itertools.product((0, 1), (False, True)):
            World(given.family, seed, depth, host, given.width, seen).play()
    print(seen)


if __name__ == "__main__":
    main()
