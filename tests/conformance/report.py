"""What a person reads: tables of verdicts and coverage, and the story of one world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from .coverage import features_of
from .deviations import DEVIATIONS
from .play import FINISHES, Outcome

#: Lines of a story that are printed for one world.
STORY_LINES = 60


class Tally:
    """Counts outcomes; keeps the failed ones."""

    def __init__(self, role: str, family: str) -> None:
        self._role, self._family = role, family
        self.worlds = 0
        self.verdicts: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
        self.features: Counter[str] = Counter()
        self.rounds_compared = 0
        self.rounds_exact = 0
        self.failed: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.worlds += 1
        self.verdicts[outcome.verdict] += 1
        self.ours[_kind(outcome.ours)] += 1
        self.features.update(outcome.features)
        self.rounds_compared += outcome.rounds_compared
        self.rounds_exact += outcome.rounds_exact
        if not outcome.passed:
            self.failed.append(outcome)

    def tables(self, seconds: float) -> Group:
        """The summary."""
        worlds = max(1, self.worlds)
        verdicts = Table("verdict", "worlds", title=f"{self.worlds} worlds in {seconds:.1f} s")
        for verdict, count in self.verdicts.most_common():
            verdicts.add_row(verdict, str(count))
        ours = Table("our side", "worlds")
        for kind, count in self.ours.most_common():
            ours.add_row(kind, str(count))
        coverage = Table("worlds with", "count", "share", title="coverage while both sides agree")
        for feature in features_of(self._role, self._family):
            count = self.features[feature]
            coverage.add_row(feature, str(count), f"{count / worlds:.0%}")
        exact = self.rounds_exact / max(1, self.rounds_compared)
        footer = (
            f"{self.rounds_compared} rounds compared, {exact:.2%} equal to the last block id, "
            "the rest up to a renaming of blocks"
        )
        return Group(verdicts, ours, coverage, footer, *self._deviations())

    def _deviations(self) -> Iterator[Table]:
        used = [d for d in DEVIATIONS if self.verdicts[f"deviation: {d.name}"]]
        if used:
            table = Table("deviation", "worlds", "rule", "why", title="where we do otherwise")
            for d in used:
                table.add_row(d.name, str(self.verdicts[f"deviation: {d.name}"]), d.rule, d.why)
            yield table


def story(outcome: Outcome) -> str:
    """One world's outcome as plain text: the world, the differences, the last rounds."""
    world = outcome.world
    lines = [
        f"world {world.timing}: {outcome.verdict} in round {outcome.round};"
        f" our side {outcome.ours}",
        world.literal(),
        *[f"  {difference}" for difference in outcome.differences],
        *outcome.story[:STORY_LINES],
    ]
    return "\n".join(lines)


def print_failure(console: Console, outcome: Outcome) -> None:
    """Prints a failed world under a rule; lines are not wrapped, so that they can be pasted."""
    console.rule(f"seed {outcome.world.timing}")
    console.print(escape(story(outcome)), highlight=False, soft_wrap=True)


def _kind(ours: str) -> str:
    return ours if ours == FINISHES else ours.split(":")[0].split("(")[0]
