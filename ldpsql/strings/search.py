"""The search for frequent strings: step by step, the continuations of the prefixes that were kept.

A string is *complete* at the first level whose prefix is the whole string. The reports of this level and of all later ones have
its hash, whatever the other strings are, so the number of those that support it is binomial. Which strings are counted at a
level depends only on the reports of the levels before: so intervals for all of them hold whichever are chosen in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Letters, Prefixes
from ldpsql.domains.strings import Strings
from ldpsql.inference.operators import Floats
from ldpsql.strings.supports import LevelReports, supporters

_BY_CHANCE = 8.0  # prefixes that nobody has and that are expected to be kept at each level


@dataclass(frozen=True, eq=False)
class Counted:
    """The best of the strings that are complete at a level.

    Args:
        level: the level, counted from 1.
        letters: the letters of these strings, shape (strings, length).
        supporters: how many reports support each of them.
        reports: the number of reports of this level and later ones.
        tried: how many strings were counted, these among them.

    """

    level: int
    letters: Letters
    supporters: Floats
    reports: int
    tried: int


@dataclass(frozen=True, eq=False)
class Continuations:
    """All letters with which a level continues a prefix, by number; which of them end a string, and which go on."""

    letters: Letters
    complete: NDArray[np.int64]
    open: NDArray[np.int64]

    @staticmethod
    @lru_cache(maxsize=16)
    def of(channel: Prefixes, level: int) -> Continuations:
        """Return the step to a level, counted from 0."""
        size, base = channel.ends[level] - (channel.ends[level - 1] if level else 0), channel.letters + 1
        numbers = np.arange(base**size)
        letters = (numbers[:, None] // base ** np.arange(size - 1, -1, -1) % base).astype(np.uint8)
        ended = letters == 0
        possible = ~(ended[:, :-1] & ~ended[:, 1:]).any(axis=1)
        last = level == channel.levels - 1
        whole = ended.any(axis=1) | last
        return Continuations(letters, np.flatnonzero(possible & whole), np.flatnonzero(possible & ~whole))


def search(channel: Prefixes, strings: Strings, levels: list[LevelReports], kept: int, top: int) -> Iterator[Counted]:
    """Yield the strings with most supporters that are complete at each level.

    Args:
        channel: the channel of the reports.
        strings: the strings that can occur.
        levels: the reports of each level.
        kept: the largest number of prefixes that are continued.
        top: how many strings are yielded at each level, at most.

    """
    prefixes = np.zeros((1, channel.length), dtype=np.uint8)
    for level in range(channel.levels):
        own, later = levels[level], levels[level + 1 :]
        step = Continuations.of(channel, level)
        whole, going = _Best(top), _Best(kept)
        ahead = supporters(channel, prefixes, level, later) if later else None
        for row, counts in enumerate(supporters(channel, prefixes, level, [own])):
            pooled = counts[step.complete] + (next(ahead)[step.complete] if ahead else 0)
            whole.add(row, step.complete, pooled)
            going.add(row, step.open, counts[step.open])
        reports = own.total + sum(other.total for other in later)
        tried = len(prefixes) * len(step.complete)
        yield Counted(level + 1, *_extended(channel, prefixes, step, level, whole), reports, tried)
        going.above(_threshold(channel, own.total, len(prefixes) * len(step.open)))
        letters, _ = _extended(channel, prefixes, step, level, going)
        prefixes = letters[[strings.begins(prefix) for prefix in letters]]
        if not len(prefixes):
            return


def _threshold(channel: Prefixes, reports: int, tried: int) -> float:
    """Return the number of supporters above which few of the prefixes that nobody has are expected."""
    from scipy.stats import binom  # noqa: PLC0415  # slow to import

    return float(binom.isf(_BY_CHANCE / max(tried, 2 * _BY_CHANCE), reports, float(channel.miss)))


def _extended(channel: Prefixes, prefixes: Letters, step: Continuations, level: int, best: _Best) -> tuple[Letters, Floats]:
    """Return the letters of the best continuations, and their supporters."""
    letters = prefixes[best.rows].copy()
    start = channel.ends[level - 1] if level else 0
    letters[:, start : channel.ends[level]] = step.letters[best.numbers]
    return letters, best.supporters


class _Best:
    """The continuations with most supporters, of all prefixes together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows, self.numbers, self.supporters = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)

    def add(self, row: int, numbers: NDArray[np.int64], supporters: Floats) -> None:
        """Add continuations of the prefix in a row."""
        if len(self.supporters) == self._most:
            enough = supporters > self.supporters[-1]
            numbers, supporters = numbers[enough], supporters[enough]
        self.rows = np.concatenate([self.rows, np.full(len(numbers), row)])
        self.numbers = np.concatenate([self.numbers, numbers])
        self.supporters = np.concatenate([self.supporters, supporters])
        order = np.argsort(-self.supporters, kind="stable")[: self._most]
        self.rows, self.numbers, self.supporters = self.rows[order], self.numbers[order], self.supporters[order]

    def above(self, limit: float) -> None:
        """Leave out continuations with at most so many supporters."""
        count = int((self.supporters > limit).sum())
        self.rows, self.numbers, self.supporters = self.rows[:count], self.numbers[:count], self.supporters[:count]
