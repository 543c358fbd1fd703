"""`tokenspeed generate` and `tokenspeed demo`, run as a shell runs them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import pytest
from tokenspeed import LLM, SamplingParams
from tokenspeed.cli import main

PROMPT = "Alice was beginning to"


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    exit_code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def tokenspeed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*arguments: str, stdin: str = "", terminal: bool = False) -> Ran:
        typed = io.StringIO(stdin)
        monkeypatch.setattr(typed, "isatty", lambda: terminal)
        monkeypatch.setattr("sys.stdin", typed)
        exit_code = 0
        try:
            main(list(arguments))
        except SystemExit as stop:
            exit_code = int(stop.code or 0)
        return Ran(exit_code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def text() -> str:
    with LLM("glassllm") as llm:
        (completion,) = llm.generate(PROMPT, SamplingParams(max_new_tokens=12))
    return completion.text


def test_generate_shows_the_text_of_one_prompt(text: str, tokenspeed: Command) -> None:
    given = tokenspeed("generate", "glassllm", "--prompt", PROMPT, "--max-new-tokens", "12")
    assert given == (0, text + "\n", "")
    piped = tokenspeed("generate", "glassllm", "--max-new-tokens", "12", stdin=PROMPT + "\n")
    assert piped == given
    typed = tokenspeed(
        "generate", "glassllm", "--max-new-tokens", "12", stdin=PROMPT + "\n", terminal=True
    )
    assert typed == (0, text + "\n", "prompt (Ctrl-D ends it):\n")


def test_generate_shows_several_prompts_with_their_texts(text: str, tokenspeed: Command) -> None:
    prompts = ["--prompt", PROMPT, "--prompt", "Tea", "--num-device-pages", "9"]
    ran = tokenspeed("generate", "glassllm", *prompts, "--max-new-tokens", "12")
    assert ran.out.startswith(f"{PROMPT}\n{text}\n\nTea\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no-such-model"], "no-such-model"),
        (["glassllm", "--temperature", "-1"], "temperature"),
        (["glassllm", "--memory", "much"], "memory"),
        (["glassllm", "--chat"], "conversation"),
        (["glassllm", "--dtype", "int3"], "'float64', 'float32', 'bfloat16', 'float16'"),
        (["glassllm", "--device", "tpu"], "'cpu', 'cuda'"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], reason: str, tokenspeed: Command) -> None:
    ran = tokenspeed("generate", *arguments, stdin="Tea")
    assert ran.exit_code == 2
    assert ran.out == ""
    assert reason in ran.err and ran.err.count("\n") == 1


def test_the_demo_retracts_and_proves_its_texts(tokenspeed: Command) -> None:
    ran = tokenspeed("demo", "glassllm", "--max-new-tokens", "40")
    assert ran.exit_code == 0, ran
    assert "RETRACT" in ran.out
    compared = ran.out.partition("comparing with each prompt alone")[2].splitlines()
    labels = ("Alice", "the Queen", "the Cat", "a table", "Rabbit", "tea")
    assert compared[1:7] == [f"same: {label}" for label in labels]
    assert "6 of 6 texts are token for token" in ran.out


def test_the_demo_checks_before_it_loads_and_before_it_takes_memory(
    tokenspeed: Command,
) -> None:
    ran = tokenspeed("demo", "no-such-model", "--max-new-tokens", "0")
    assert (ran.exit_code, ran.out) == (2, "")
    assert "max_new_tokens = 0: max_new_tokens is" in ran.err
    ran = tokenspeed("demo", "glassllm", "--max-new-tokens", "100000")
    assert ran.exit_code == 2
    assert "max_new_tokens = 100000: glassllm bears" in ran.err and ran.err.count("\n") == 1
