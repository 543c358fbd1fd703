"""From what a client gives as a prompt to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenspeed.engine.text import Tokenizer

Prompt: TypeAlias = str | Sequence[int] | NDArray[np.integer[Any]] | Sequence[Mapping[str, str]]
"""Text, token ids, or a conversation: messages with `role` and `content`."""


class PretrainedTokenizer:
    """A tokenizer of transformers behind the calls that the engine makes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str) -> list[int]:
        """Token ids, with what the model wants at the beginning."""
        return list(self.inner.encode(text))

    def decode(self, tokens: list[int]) -> str:
        """The text of `tokens`, special ones left out."""
        return str(
            self.inner.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """A conversation in the model's own template, up to where its answer begins."""
        return list(
            self.inner.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )


def encode(tokenizer: Tokenizer, prompt: Prompt, name: str = "prompt") -> list[int]:
    """Token ids of a prompt, which errors call `name`. Raises `ValueError` for an empty one, for
    what is no prompt, and for a conversation with a model that has no template for them."""
    if isinstance(prompt, str):
        tokens = tokenizer.encode(prompt)
    elif isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
        encode_chat = getattr(tokenizer, "encode_chat", None)
        if encode_chat is None:
            raise ValueError(f"{name}: this model has no template for conversations; give text")
        tokens = encode_chat(prompt)
    else:
        try:
            if isinstance(prompt, bytes):
                raise TypeError  # its items would pass as token ids
            tokens = [index(token) for token in prompt]  # type: ignore[arg-type]
        except TypeError:
            raise ValueError(
                f"{name} = {prompt!r:.80}: a prompt is text, whole numbers, or a conversation"
            ) from None
    if not tokens:
        raise ValueError(f"{name}: it is empty; give at least one token")
    return tokens
