"""The page of key-value reports: how often each key occurs, and the mean of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import likelihoods
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import certify
from ldpsql.mechanisms.families import KeyValueMechanism
from ldpsql.pages.charts import Cell, Column, Row, bar_column, share_axis, share_cells, table
from ldpsql.pages.document import (
    Fact,
    Markup,
    code,
    counted,
    determined,
    document,
    folded,
    interval,
    joined,
    name,
    number,
    percent,
    tag,
)
from ldpsql.pages.groups import Part, agree, agreement, hinted, how_much, sections
from ldpsql.pages.page import MAX_BARS, titled, write_as
from ldpsql.pages.report import MOST_ROWS, first_facts, fit_of, some_of
from ldpsql.pairs import ROW, KeyValueEstimate, SetDiagnosis, estimate_key_value

if TYPE_CHECKING:
    from ldpsql.pages.figures import AnyChart

KEY = "Bars are the shares of users who have the key, the line on each its interval. The mean is that of their values."


@dataclass(frozen=True, eq=False)
class PairGroup:
    """An estimate under its title, its numbers by key (`ROW`), and the number of keys that somebody surely has."""

    title: str
    one: KeyValueEstimate
    numbers: Floats
    present: int

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The columns of `ROW` and ``name``, the most frequent key first; frequencies are named as `share_cells` reads them."""
        columns = dict(zip(ROW, self.numbers.T, strict=True))
        rows = pl.DataFrame({"name": self.mechanism.keys.texts, **columns})
        rows = rows.rename({"frequency": "estimate", "frequency_error": "std_error"})
        return rows.sort("estimate", descending=True, maintain_order=True)

    @cached_property
    def sets(self) -> SetDiagnosis:
        """What the reports say of the sizes of the sets."""
        return self.one.sets

    @property
    def mechanism(self) -> KeyValueMechanism:
        """The mechanism that drew the reports."""
        return self.one.of.mechanism

    @cached_property
    def fits(self) -> bool:
        """Whether the estimate was completed and explains the reports."""
        return agree(self.one.diagnosis)


def key_value_page(estimates: Mapping[str, KeyValueEstimate], sql: str = "") -> str:
    """Return the page for estimates of keys by title, all under one mechanism."""
    groups = _groups(estimates)
    most = max(1, MOST_ROWS // len(groups))
    columns = [
        Column("Most frequent key", ("key",)),
        Column("Keys surely present", ("present",), wide=True),
        Column("Dummies", ("dummies",), wide=True),
    ]
    body = joined(
        sections(columns, [_part(group, most) for group in groups]),
        tag("h2", "How the estimate came about") if sql else None,
        folded("The SQL", code(sql)) if sql else None,
    )
    reports = sum(group.sets.reports for group in groups)
    lead = f"Estimated from {counted(reports, 'report')}, one for the whole set of a user. Nothing but the reports was used."
    return document("Keys and values from private reports", lead, _facts(groups), body)


def _groups(estimates: Mapping[str, KeyValueEstimate]) -> list[PairGroup]:
    """Return the groups; the numbers of all groups that were estimated together are made once."""
    together = {id(one.of): (one.of.rows(), one.of.present()) for one in estimates.values()}
    return [
        PairGroup(title, one, together[id(one.of)][0][one.group], int(together[id(one.of)][1][one.group].sum()))
        for title, one in estimates.items()
    ]


def _facts(groups: Sequence[PairGroup]) -> list[Fact]:
    """Return the summary: reports, privacy and mechanism, then what matters most about the keys."""
    facts = first_facts([group.sets.reports for group in groups], certify(groups[0].mechanism), "sets")
    if len(groups) == 1:
        return [*facts, *_result(groups[0])]
    warned = [group.title for group in groups if group.sets.warning]
    found = f"in {counted(len(warned), 'group')}" if warned else "none"
    warnings = Fact("Warnings", found, some_of(warned) or "sets fit the padding")
    return [*facts, warnings, fit_of([group.title for group in groups if not group.fits])]


def _result(group: PairGroup) -> list[Fact]:
    """Return the facts about the keys and the sets of a group."""
    first, keys = group.rows.row(0, named=True), len(group.rows)
    confidence = f"at {100 * group.one.of.symbols.estimator.confidence:.4g} % confidence for all keys together"
    ends = interval(first["low"], first["high"]) if determined(first["std_error"]) else "unknown"
    return [
        Fact("Most frequent key", _frequency(first), f"interval {ends}, mean {_mean(group, first)}"),
        Fact("Keys surely present", f"{group.present:,} of {keys:,}", confidence),
        Fact("Dummies", percent(group.sets.dummies), group.sets.warning or _sizes(group)),
        how_much(group.one.learnt),
        agreement(group.one.diagnosis, fits=group.fits),
    ]


def _frequency(row: Mapping[str, float]) -> str:
    return f"{row['name']}: {percent(row['estimate'])}"


def _sizes(group: PairGroup) -> str:
    mean = max(group.sets.mean_set_size, 0.0)
    return f"{number(mean, 0.01)} pairs in a set on average, if none is larger than the padding of {group.mechanism.padding}"


def _mean(group: PairGroup, row: Mapping[str, float]) -> str:
    return number(row["mean"], row["mean_error"] / 5) if _bounded(group, row) else "unknown"


def _bounded(group: PairGroup, row: Mapping[str, float]) -> bool:
    """Return whether the interval of a mean leaves out any part of the range."""
    inside = row["mean_low"] > group.mechanism.low or row["mean_high"] < group.mechanism.high
    return inside and isfinite(row["mean_error"])


def _part(group: PairGroup, most: int) -> Part:
    """Return a group as a part of the page, with a table of at most so many keys."""
    sets, first, left = group.sets, group.rows.row(0, named=True), len(group.rows) - most
    cells: list[Cell | Markup] = [
        tag("td", tag("data", value=first["name"]), name(_frequency(first)), class_="words"),
        Cell(f"{group.present:,}", (group.present,), wide=True),
        Cell(percent(sets.dummies), (sets.dummies,), wide=True),
    ]
    more = f"{counted(left, 'more key')} with smaller frequencies: ldp.key_value lists them all." if left > 0 else ""
    return Part(group.title, sets, _result(group), cells, hinted(KEY, _table(group, most), more))


def _table(group: PairGroup, most: int) -> Markup:
    """Return the keys as rows, with the bars of their frequencies and the means of their values."""
    kept, confidence = group.rows.head(most), f"{100 * group.one.of.symbols.estimator.confidence:.4g} % interval"
    axis = share_axis(kept)
    columns = [
        Column("Key", ("key",)),
        bar_column("Frequency", axis, wide=True),
        Column("Frequency", ("frequency",)),
        Column(confidence, ("low", "high")),
        Column("Standard error", ("frequency_error",), wide=True),
        Column("Mean", ("mean", "mean_error")),
        Column(confidence, ("mean_low", "mean_high")),
    ]
    rows: list[Row] = [
        (row["name"], [*share_cells(row, axis, wide=True), *_mean_cells(group, row)]) for row in kept.iter_rows(named=True)
    ]
    return table(group.title, columns, rows)


def _mean_cells(group: PairGroup, row: Mapping[str, float]) -> list[Cell | Markup]:
    step = row["mean_error"] / 5
    ends = f"{number(row['mean_low'], step)} to {number(row['mean_high'], step)}" if _bounded(group, row) else "unknown"
    return [
        Cell(_mean(group, row), (row["mean"], row["mean_error"])),
        Cell(ends, (row["mean_low"], row["mean_high"]), wraps=True),
    ]


def key_values(counted: pa.Table, mechanism: KeyValueMechanism, estimator: Estimator) -> dict[str, KeyValueEstimate]:
    """Estimate frequency and mean of every key in every group of a table like that of `estimates`; return them by title.

    Raises:
        NoReports: if the table is empty.
        InvalidParameter: for more groups than a page can show.

    """
    titles, counts = titled(counted)
    parts = ((groups, estimate_key_value(mechanism, some, estimator)) for groups, some in likelihoods(mechanism, counts))
    return {titles[row]: part[place] for groups, part in parts for place, row in enumerate(groups)}


def write_key_values(path: Path, estimates: Mapping[str, KeyValueEstimate], sql: str = "") -> None:
    """Write a page (.html) of estimates of keys by title, or the pictures of their frequencies alone (.svg, .png).

    Raises:
        InvalidParameter: for another ending.

    """

    def chart() -> AnyChart:
        from ldpsql.pages import figures  # noqa: PLC0415  # an extra

        return figures.stacked({title: figures.estimate_chart(_frequencies(one)) for title, one in estimates.items()})

    write_as(path, lambda: key_value_page(estimates, sql), chart)


def _frequencies(one: KeyValueEstimate) -> pl.DataFrame:
    """Return the `MAX_BARS` most frequent keys of an estimate."""
    rows = pl.DataFrame(one.to_arrow()).select(
        pl.col("key").cast(pl.String).alias("value"), "low", "high", estimate="frequency"
    )
    return rows.sort("estimate", descending=True, maintain_order=True).head(MAX_BARS)
