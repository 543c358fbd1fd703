"""What an engine reports of its requests."""

from tokenspeed.scheduler._core import Abort, ExtendResult, Finish, Retract, UpdateReserveNumTokens

__all__ = ["Abort", "ExtendResult", "Finish", "Retract", "UpdateReserveNumTokens"]
