"""What an engine reports of its peer, where prefill and decode are apart."""

from tokenspeed.scheduler._core import (
    BootstrappedEvent,
    FailedEvent,
    RemotePrefillDoneEvent,
    SucceededEvent,
)

__all__ = ["BootstrappedEvent", "FailedEvent", "RemotePrefillDoneEvent", "SucceededEvent"]
