"""Copies between the Device and the Host tier: the plan's orders, and their acknowledgements."""

from tokenspeed.scheduler._core import (
    LoadBackDoneEvent,
    LoadBackOp,
    WriteBackDoneEvent,
    WriteBackOp,
)

__all__ = ["LoadBackDoneEvent", "LoadBackOp", "WriteBackDoneEvent", "WriteBackOp"]
