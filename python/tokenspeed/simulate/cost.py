"""What a forward costs: the clock of the replay."""

from __future__ import annotations

from dataclasses import dataclass

from tokenspeed.simulate.setting import check_settings, setting


@dataclass(frozen=True)
class CostModel:
    """A forward's duration, linear in what it computes and reads.

        round_us + prefill_token_us * prefill tokens + decode_request_us * decode requests
                 + context_token_ns * context tokens

    The defaults approximate a model of 8 billion parameters, 32 layers and 8 KV heads of 128, with
    weights and KV cache in 8 bits, on one GPU of the H200 class. What grows with the square of a
    prompt, the arithmetic of its attention, is left out: very long prompts cost more in reality.
    """

    round_us: float = setting(
        8000.0,
        "Microseconds that every forward takes, whatever it holds: reading 8 GB of weights (2 ms), "
        "launches, sampling and the engine's own work (6 ms).",
        above=0,
    )
    prefill_token_us: float = setting(
        15.0,
        "Microseconds a prompt token computed: about 15 GFLOP at 1 PFLOP/s.",
        minimum=0,
    )
    decode_request_us: float = setting(
        20.0, "Microseconds a request that decodes one token.", minimum=0
    )
    context_token_ns: float = setting(
        16.0,
        "Nanoseconds a context token read: 64 KiB at 4 TB/s. A decode reads its whole context, a "
        "prefill chunk what lies before it.",
        minimum=0,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def forward_s(self, prefill_tokens: int, decode_requests: int, context_tokens: int) -> float:
        """Seconds of one forward."""
        return 1e-6 * (
            self.round_us
            + self.prefill_token_us * prefill_tokens
            + self.decode_request_us * decode_requests
            + 1e-3 * self.context_token_ns * context_tokens
        )
