"""`tokenspeed demo`: several prompts in a pool that is far too small for them."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import torch
from rich.console import Console
from rich.live import Live

from tokenspeed.engine.board import Board
from tokenspeed.engine.llm import LLM, Generation
from tokenspeed.engine.prompts import PretrainedTokenizer, encode
from tokenspeed.engine.sampling import SamplingParams
from tokenspeed.models import CheckpointError, Loaded, load

_QUESTIONS = {
    "gravity": "What is gravity? Answer in two sentences.",
    "the sea": "Write two lines of a poem about the sea.",
    "bread": "How is bread made? Be brief.",
    "a joke": "Tell me a short joke about a cat.",
    "Rome": "In which country is Rome, and what is it known for?",
    "sleep": "Why do people sleep?",
}
_BEGINNINGS = {
    "Alice": "Alice was beginning to",
    "the Queen": "“Off with her head!” said the Queen",
    "the Cat": "The Cat only grinned when it saw Alice",
    "a table": "There was a table set out under a tree",
    "Rabbit": "The White Rabbit put on his spectacles and",
    "tea": "Take some more tea, the March Hare said",
}
_PAGES_A_REQUEST = 2.2
"""The pool holds so many of the longest requests."""


def run(name: str | None, max_new_tokens: int, plain: bool) -> bool:
    """Shows it; whether all texts came out as those generated alone. Raises `ValueError` for more
    new tokens than the model bears, and as `load` and `LLM` do."""
    params = SamplingParams(max_new_tokens=max_new_tokens)
    console = Console()
    live = console.is_terminal and not plain
    loaded, name = _load(name, console)
    tokenizer = loaded.tokenizer
    chat = getattr(tokenizer, "chat_template", None) is not None
    if hasattr(tokenizer, "apply_chat_template"):
        tokenizer = PretrainedTokenizer(tokenizer)
    asked: dict[str, Any] = dict(_BEGINNINGS)
    if chat:
        asked = {label: [{"role": "user", "content": text}] for label, text in _QUESTIONS.items()}
    prompts = {label: encode(tokenizer, prompt) for label, prompt in asked.items()}
    longest_prompt = max(map(len, prompts.values()))
    longest = longest_prompt + max_new_tokens
    if longest > loaded.context_tokens:
        raise ValueError(
            f"max_new_tokens = {max_new_tokens}: {name} bears {loaded.context_tokens} tokens, so "
            f"that {loaded.context_tokens - longest_prompt} can follow these prompts"
        )
    untouched = deepcopy(loaded.model)
    pages = 1 + round(_PAGES_A_REQUEST * -(-(longest + 2) // 16))
    board = Board(pages - 1)
    llm = LLM(
        loaded,
        num_device_pages=pages,
        num_host_pages=4 * pages,
        max_batch_size=len(prompts),
        max_request_tokens=longest,
        on_round=board.on_round,
    )
    console.print(
        f"[bold]{name}[/bold]: {len(prompts)} prompts of up to {longest_prompt} tokens, "
        f"{max_new_tokens} to generate for each, in a pool of {(pages - 1) * 16} tokens"
    )
    began = time.perf_counter()
    with llm:
        texts = _watch(llm, prompts, params, board, console, live)
    took_s = time.perf_counter() - began
    tokens = sum(len(ids) for ids in texts.values())
    console.print(
        f"{tokens} tokens in {board.rounds} rounds, {took_s:.1f} s; {board.retractions} "
        f"retractions, {board.stored_blocks} blocks stored on the host and "
        f"{board.loaded_blocks} loaded back; {board.most_used} of {pages - 1} pages used at most"
    )
    return _compare(untouched, prompts, texts, loaded, max_new_tokens, console, live)


def _load(name: str | None, console: Console) -> tuple[Loaded, str]:
    candidates = [name] if name else ["smollm2", "glassllm"]
    for candidate in candidates:
        try:
            with console.status(f"loading {candidate} (a GGUF file takes half a minute)"):
                return load(candidate, torch.float32), candidate
        except CheckpointError as error:
            failure = error
    raise failure


def _watch(
    llm: LLM,
    prompts: dict[str, list[int]],
    params: SamplingParams,
    board: Board,
    console: Console,
    live: bool,
) -> dict[str, tuple[int, ...]]:
    """Runs all prompts and shows the rounds until the last one ends."""
    started: dict[str, Generation] = {}
    got: dict[str, tuple[int, ...]] = dict.fromkeys(prompts, ())

    def read(label: str, generation: Generation) -> None:
        for delta in generation:
            got[label] += delta.token_ids
            ended = delta.finish_reason is not None
            board.took(generation.request_id, delta.text, len(delta.token_ids), ended)

    readers = []
    for label, tokens in prompts.items():
        started[label] = llm.submit(tokens, params)
        board.label(started[label].request_id, label)
        readers.append(threading.Thread(target=read, args=(label, started[label]), daemon=True))
        readers[-1].start()
    try:
        if live:
            with Live(board, console=console, refresh_per_second=12):
                for reader in readers:
                    reader.join()
        else:
            _print_rounds(readers, board, console)
    finally:
        for generation in started.values():
            generation.cancel()
    return got


def _print_rounds(readers: list[threading.Thread], board: Board, console: Console) -> None:
    shown = 0
    while shown < len(board.lines) or any(reader.is_alive() for reader in readers):
        for line in board.lines[shown:]:
            shown += 1
            console.print(line, highlight=False, soft_wrap=True)
        time.sleep(0.02)


def _compare(
    model: Any,
    prompts: dict[str, list[int]],
    got: dict[str, tuple[int, ...]],
    loaded: Loaded,
    max_new_tokens: int,
    console: Console,
    live: bool,
) -> bool:
    """Generates each prompt alone, by transformers itself, and compares token for token."""
    same = 0
    task = "each prompt alone, by transformers' own generate"
    with console.status(task) if live else nullcontext():
        if not live:
            console.print(f"comparing with {task}:")
        for label, tokens in prompts.items():
            out = model.generate(
                torch.tensor([tokens]),
                attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                eos_token_id=sorted(loaded.eos_token_ids),
                pad_token_id=0,
            )
            alone = tuple(out[0, len(tokens) :].tolist())
            same += alone == got[label]
            if alone != got[label]:
                console.print(f"[red]differs:[/red] {label}: {got[label]}, alone {alone}")
            elif not live:
                console.print(f"same: {label}")
    mark = "[bold green]same[/bold green]" if same == len(prompts) else "[bold red]NOT[/bold red]"
    console.print(
        f"{same} of {len(prompts)} texts are token for token those that transformers generates for "
        f"the prompt alone: {mark}"
    )
    return same == len(prompts)
