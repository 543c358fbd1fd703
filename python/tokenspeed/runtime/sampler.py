"""The sampler that needs no parameters."""

from __future__ import annotations

from typing import Any

from tokenspeed.runtime.runner import ForwardInput


class GreedySampler:
    """Takes the likeliest token, the lowest of equals."""

    def sample(self, batch: ForwardInput, logits: Any, positions: Any) -> Any:
        return logits.argmax(-1)
