"""What estimators learn from all groups of a run before they estimate one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.bulk.groups.cells import CELLS_AT_ONCE
from ldpsql.bulk.groups.runs import GroupRun
from ldpsql.bulk.meter import Progress
from ldpsql.engine.groups import GROUPS_SEEN, in_order, learnt_of, learnt_of_order
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counts import GroupedCounts
from ldpsql.mechanisms.base import Mechanism


def _none() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Learned:
    """The estimators that have seen all groups, and which of these each group has; ``groups`` rise. By default, the first."""

    estimators: list[Estimator]
    groups: NDArray[np.int64] = field(default_factory=_none)
    runs: NDArray[np.int64] = field(default_factory=_none)

    @classmethod
    def of(cls, run: GroupRun, drew: Mechanism, method: Estimator, at_once: int, progress: Progress | None) -> Learned:
        """Return the estimator with what groups have in common; of very many groups it sees a part, and all reports."""
        if not method.needs_groups:
            return cls([method])
        at_once = min(at_once, GROUPS_SEEN)
        seen = _few(run.cells.groups(run.cursor, 0, run.size, at_once), progress)
        if run.groups <= GROUPS_SEEN and in_order(run.cells.last_key(run.cursor)):
            order = run.cells.in_order(run.cursor)
            ranked = np.argsort(order)
            runs, estimators = learnt_of_order(drew, GroupedCounts.joined(list(seen)).in_order(order), method)
            return cls(estimators, order[ranked], runs[ranked])
        total = run.cells.pooled(run.cursor, CELLS_AT_ONCE)
        if total is None:
            some = GroupedCounts.joined(list(seen))
            total = GroupedCounts.of(some.reports, pa.array(some.numbers))
            seen = _few(run.cells.groups(run.cursor, 0, run.size, at_once), progress)
        return cls([learnt_of(drew, total, seen, method)])

    def parts(self, counts: GroupedCounts) -> Iterator[tuple[GroupedCounts, Estimator]]:
        """Yield the counts of the groups that have the same estimator, and it."""
        if len(self.estimators) == 1:
            yield counts, self.estimators[0]
            return
        runs = self.runs[np.searchsorted(self.groups, counts.groups)][counts.group]
        yield from ((counts.select(np.flatnonzero(runs == run)), self.estimators[run]) for run in np.unique(runs))


def _few(groups: Iterator[tuple[int, GroupedCounts]], progress: Progress | None) -> Iterator[GroupedCounts]:
    """Yield the counts of the first `GROUPS_SEEN` groups, and the rest of the part that has the last of them."""
    seen = 0
    for _, counts in groups:
        seen += len(counts.groups)
        if progress:
            progress(seen, None)
        yield counts
        if seen >= GROUPS_SEEN:
            return
