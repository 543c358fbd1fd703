"""The few ways in which a side can end a world."""

from __future__ import annotations

from enum import Enum

from tests.conformance.liveness import FOR_EVER, STILL
from tests.conformance.play import FINISHES, Outcome


class Ending(str, Enum):
    """How a side ended a world; all but the first are failures (``liveness.md``)."""

    FINISHED = "ends"
    STILL = "stands still"
    FOR_EVER = "runs for ever"
    LEAKS = "leaks"
    DIGESTS_DIFFER = "digests differ"
    RAISES = "raises"
    DIES = "ends the process"
    REFUSED = "refuses the configuration"


def ending_of(outcome: Outcome) -> Ending:
    """The ending of the side that played alone."""
    text = outcome.ours
    known = {
        FINISHES: Ending.FINISHED,
        STILL: Ending.STILL,
        FOR_EVER: Ending.FOR_EVER,
    }
    if text in known:
        return known[text]
    for mark, ending in (
        ("leaks", Ending.LEAKS),
        ("DigestsDiffer", Ending.DIGESTS_DIFFER),
        ("ends the process", Ending.DIES),
        ("refuses the configuration", Ending.REFUSED),
    ):
        if mark in text:
            return ending
    return Ending.RAISES
