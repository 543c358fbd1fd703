"""What the engine is to run in a round."""

from tokenspeed.scheduler._core import Batch

__all__ = ["Batch"]
