"""What the engine adds to a model's own forwards: one ratio.

    OMP_NUM_THREADS=1 python benches/engine.py            SmolLM2, 8 requests, one thread
    OMP_NUM_THREADS=1 python benches/engine.py glassllm   the same of a model that costs nothing

The bare model is transformers' own loop: a batch of 8 with its own cache, one prompt forward and
then one forward a token, tokens chosen by argmax. The engine gets the same prompts, greedy, in a
pool that holds them all. Both generate the same tokens (checked). Rounds alternate, so that a busy
machine slows both. Two ratios are printed, each of the least times: of the clock, and of the
processor, which counts all threads and which other programs hardly move.
"""

from __future__ import annotations

import argparse
import sys
import time
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from tokenspeed import LLM, SamplingParams
from tokenspeed.models import load
from transformers import DynamicCache

BATCH = 8
Times = np.ndarray[tuple[int], np.dtype[np.float64]]
"""Seconds of the clock and of the processor."""


def now() -> Times:
    """Since some moment."""
    return np.array([time.perf_counter(), time.process_time()])


def bare(model: Any, prompts: torch.Tensor, new_tokens: int) -> tuple[Times, list[list[int]]]:
    """Times and tokens of the model's forwards alone."""
    with torch.inference_mode():
        began = now()
        cache = DynamicCache(config=model.config)
        tokens = prompts
        rows = []
        for _ in range(new_tokens):
            out = model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=1)
            tokens = out.logits[:, -1].argmax(-1, keepdim=True)
            rows.append(tokens)
        return now() - began, torch.cat(rows, dim=1).tolist()


def engine(llm: LLM, prompts: torch.Tensor, new_tokens: int) -> tuple[Times, list[list[int]]]:
    """Times and tokens of the engine."""
    params = SamplingParams(max_new_tokens=new_tokens, ignore_eos=True)
    began = now()
    completions = llm.generate(prompts.tolist(), params)
    return now() - began, [list(one.token_ids) for one in completions]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load(given.model)
    model = deepcopy(loaded.model)
    model.set_attn_implementation("sdpa")
    times: dict[str, list[Times]] = {"bare": [], "engine": []}
    settings = {"max_batch_size": BATCH, "max_scheduled_tokens": BATCH * given.prompt_tokens}
    longest = given.prompt_tokens + given.new_tokens
    with LLM(loaded, max_request_tokens=longest, prefix_cache=False, **settings) as llm:
        for number in range(given.rounds + 1):
            torch.manual_seed(number)
            prompts = torch.randint(4, model.config.vocab_size, (BATCH, given.prompt_tokens))
            bare_s, bare_tokens = bare(model, prompts, given.new_tokens)
            engine_s, engine_tokens = engine(llm, prompts, given.new_tokens)
            differing = sum(a != b for a, b in zip(bare_tokens, engine_tokens))
            if number == 0:
                continue  # the first one warms up
            times["bare"].append(bare_s)
            times["engine"].append(engine_s)
            clock, processor = engine_s / bare_s
            print(
                f"bare {bare_s[0]:.3f} s, engine {engine_s[0]:.3f} s: {clock:.3f} by the clock, "
                f"{processor:.3f} by the processor"
                + (f"; {differing} of {BATCH} texts differ (rounding)" if differing else ""),
                flush=True,
            )
    least = {name: np.min(taken, axis=0) for name, taken in times.items()}
    clock, processor = least["engine"] / least["bare"]
    print(
        f"{given.model}, batch {BATCH}, one thread: engine / bare = {clock:.3f} by the clock, "
        f"{processor:.3f} by the processor "
        f"(a bare forward takes {1000 * least['bare'][0] / given.new_tokens:.1f} ms)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
