"""`tokenspeed generate` and `tokenspeed demo`, run as a shell runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tokenspeed import LLM, SamplingParams

PROMPT = "Alice was beginning to"


def tokenspeed(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokenspeed.cli", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def text() -> str:
    with LLM("glassllm") as llm:
        (completion,) = llm.generate(PROMPT, SamplingParams(max_new_tokens=12))
    return completion.text


def test_generate_shows_the_text_of_one_prompt(text: str) -> None:
    given = tokenspeed("generate", "glassllm", "--prompt", PROMPT, "--max-new-tokens", "12")
    assert (given.returncode, given.stdout, given.stderr) == (0, text + "\n", "")
    piped = tokenspeed("generate", "glassllm", "--max-new-tokens", "12", stdin=PROMPT + "\n")
    assert piped.stdout == given.stdout


def test_generate_shows_several_prompts_with_their_texts(text: str) -> None:
    prompts = ["--prompt", PROMPT, "--prompt", "Tea", "--num-device-pages", "9"]
    ran = tokenspeed("generate", "glassllm", *prompts, "--max-new-tokens", "12")
    assert ran.stdout.startswith(f"{PROMPT}\n{text}\n\nTea\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no-such-model"], "no-such-model"),
        (["glassllm", "--temperature", "-1"], "temperature"),
        (["glassllm", "--memory", "much"], "memory"),
        (["glassllm", "--chat"], "conversation"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], reason: str) -> None:
    ran = tokenspeed("generate", *arguments, stdin="Tea")
    assert ran.returncode != 0
    assert ran.stdout == ""
    assert reason in ran.stderr and ran.stderr.count("\n") == 1


def test_the_demo_retracts_and_proves_its_texts() -> None:
    ran = tokenspeed("demo", "glassllm", "--max-new-tokens", "40")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "RETRACT" in ran.stdout
    assert "6 of 6 texts are token for token" in ran.stdout
