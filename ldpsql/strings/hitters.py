"""The most frequent strings behind reports of their prefixes, with intervals that hold together for whichever are returned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.errors import InvalidParameter, OutOfTime
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.deadline import check, soonest, until
from ldpsql.inference.score_intervals import exact_ends
from ldpsql.mechanisms.base import CertifiedStrings, Mechanism, certify
from ldpsql.mechanisms.spec import Spec, WholeField
from ldpsql.strings.search import Counted, search
from ldpsql.strings.supports import by_level

_KEPT = 64
_SPARE = 64  # strings of a level that may turn out not to be text


class HeavyHitters(Spec):
    """What to search for, and how long."""

    kind = "search"
    name = "heavy_hitters"
    top: Annotated[WholeField, Field(ge=1, le=10_000)] = Field(20, description="most strings to return")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        0.95, description="probability that all intervals of a group hold together, whichever strings are returned"
    )
    certain: bool = Field(
        default=True, description="only strings whose interval does not hold 0; false: up to `top` strings in any case"
    )
    kept: Annotated[WholeField, Field(ge=1, le=100_000)] | None = Field(
        None, description="most prefixes that are continued at each level; NULL: three times `top`, at least 64"
    )
    deadline: Annotated[float, Field(gt=0)] | None = Field(
        None, description="time limit in seconds for all groups; NULL: an error after 60 and one for each group"
    )


@dataclass(frozen=True)
class HeavyHitter:
    """A string, its share with an interval, and how it was found.

    ``level`` is the first level whose prefix is the whole string; ``reports`` is the number of reports of this level and later
    ones, which are those that estimate the share.
    """

    value: str
    estimate: float
    std_error: float
    low: float
    high: float
    level: int
    reports: int


def strings_of(mechanism: Mechanism) -> CertifiedStrings:
    """Return the certified mechanism, which must be one over strings that are not listed.

    Raises:
        InvalidParameter: if it is another one.

    """
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedStrings):
        raise InvalidParameter(f"{mechanism.name} does not perturb strings that are not listed", certified.remedy)
    return certified


def heavy_hitters(
    mechanism: Mechanism, counts: GroupedCounts, options: HeavyHitters
) -> Iterator[tuple[int, list[HeavyHitter]]]:
    """Yield each group, as ``counts.groups`` numbers it, with its most frequent strings, the most frequent first.

    Raises:
        InvalidParameter: if the mechanism is not over strings that are not listed.
        ImpossibleReport: if a report cannot occur.
        OutOfTime: if the deadline passes.

    """
    certified = strings_of(mechanism)
    words = certified.reports.read(counts.reports)
    with until(soonest(options.deadline)):
        for group, rows in zip(counts.groups.tolist(), counts.rows_of_groups(), strict=True):
            levels = by_level(words[rows], counts.numbers[rows], certified.channel.levels)
            kept = options.kept or max(_KEPT, 3 * options.top)
            try:
                check()
                tables = list(search(certified.channel, certified.values, levels, kept, options.top + _SPARE))
            except OutOfTime:
                raise OutOfTime("the deadline passed during the search", "raise deadline, or lower kept") from None
            yield group, _chosen(certified, tables, options)


def _chosen(certified: CertifiedStrings, tables: list[Counted], options: HeavyHitters) -> list[HeavyHitter]:
    """Return the most frequent of the strings that were counted at all levels."""
    hitters = [hitter for table in tables if table.reports for hitter in _hitters(certified, table, options)]
    hitters.sort(key=lambda hitter: (-hitter.estimate, hitter.value))
    return hitters[: options.top]


def _hitters(certified: CertifiedStrings, table: Counted, options: HeavyHitters) -> Iterator[HeavyHitter]:
    """Yield the strings of one level, unless they are not text, or not certain if they must be.

    Each level has the same part of the probability that an interval fails, and so has each string that was tried at a level.
    """
    hit, miss, reports = float(certified.channel.hit), float(certified.channel.miss), table.reports
    inverted = (table.supporters / reports - miss) / (hit - miss)
    failure = (1 - options.confidence) / certified.channel.levels / table.tried
    low, high = np.clip(exact_ends(inverted, reports, (miss, hit), 1 - failure), 0.0, 1.0)
    shares = np.clip(inverted, 0.0, 1.0)
    chances = miss + shares * (hit - miss)
    errors = np.sqrt(chances * (1 - chances) / reports) / (hit - miss)
    for row, letters in enumerate(table.letters):
        value = certified.values.text(letters)
        if value is not None and (low[row] > 0 or not options.certain):
            share, error, below, above = (float(column[row]) for column in (shares, errors, low, high))
            yield HeavyHitter(value, share, error, below, above, table.level, reports)
