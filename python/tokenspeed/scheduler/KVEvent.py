"""What entered and left the Device's prefix cache, for a cache-aware router."""

from tokenspeed.scheduler._core import BlockRemoved, BlockStored

__all__ = ["BlockRemoved", "BlockStored"]
