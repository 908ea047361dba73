"""One group of a report: its estimate as facts, charts, a map, and a table of every value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from ldpsql.estimates.diagnosis import Diagnosis, Learnt
from ldpsql.estimates.estimate import Estimate
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Status
from ldpsql.pages.document import (
    WIDTH,
    Fact,
    Markup,
    cards,
    counted,
    determined,
    interval,
    joined,
    percent,
    points,
    tag,
    width,
)
from ldpsql.pages.maps import Places, maps
from ldpsql.pages.numbers import FEW, Distributions, bin_names, number_charts, number_facts
from ldpsql.pages.tables import Cell, Column, Row, share_table, table
from ldpsql.pairs import SetDiagnosis

MOST_OF_MAP = 500  # rows in the table of a large map
DOUBTFUL = 1e-6  # honest reports have a smaller p-value once in a million groups


@dataclass(frozen=True, eq=False)
class Group:
    """An estimate under its title, with ``numbers`` if its values lie on a line and ``places`` if they are cells."""

    title: str
    one: Estimate
    truth: Floats | None = None
    numbers: Distributions | None = None
    places: Places | None = None

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """How far the estimate can be trusted."""
        return self.one.diagnosis

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The estimates of all values: those on a line in their order, others by size."""
        values = self.one.values
        called = self.places.names() if self.places else bin_names(values) if self.numbers else values.texts
        columns = {"value": values.texts, "name": called, "estimate": self.one.estimate, "std_error": self.one.std_error}
        columns |= {"low": self.one.low, "high": self.one.high}
        rows = pl.DataFrame(columns | ({} if self.truth is None else {"truth": self.truth}))
        return rows if self.numbers else rows.sort("estimate", descending=True, maintain_order=True)

    @property
    def error(self) -> float:
        """The typical standard error of a share: the middle one of all values."""
        return float(np.median(self.one.std_error))

    @property
    def off(self) -> float:
        """The largest difference of a share and the truth; 0 if that is not known."""
        return 0.0 if self.truth is None else float(np.abs(self.one.estimate - self.truth).max())

    @property
    def fits(self) -> bool:
        """Whether the estimate explains the reports, and nothing needs to be done about it."""
        return agree(self.diagnosis) and bool(np.isfinite(self.one.std_error).all())


def agree(diagnosis: Diagnosis) -> bool:
    """Return whether an estimate was completed and explains the reports."""
    done = diagnosis.status not in (Status.OUT_OF_STEPS.value, Status.OUT_OF_TIME.value, Status.BASELINE.value)
    return done and diagnosis.fit_p_value >= DOUBTFUL


def result_facts(group: Group) -> list[Fact]:
    """Return the two or three facts about the values of a group."""
    if group.numbers:
        return number_facts(group.numbers, group.one.group)
    first = group.rows.row(int(group.rows["estimate"].arg_max() or 0), named=True)
    ends = interval(first["low"], first["high"]) if determined(first["std_error"]) else "unknown"
    return [Fact("Largest share", f"{first['name']}: {ends}", f"estimate {percent(first['estimate'])}")]


def trust_facts(group: Group) -> list[Fact]:
    """Return how precise the estimate of a group is, and whether the reports agree with it."""
    diagnosis = group.diagnosis
    facts = [] if group.numbers else [Fact("Width of an interval", width(group.error), _worth(group))]
    if group.truth is not None:
        facts.append(Fact("Furthest from the truth", points(group.off), "of all values"))
    return [*facts, how_much(group.one.learnt), agreement(diagnosis, fits=group.fits)]


def how_much(learnt: Learnt) -> Fact:
    """Return how much was learnt about the shares, and what to do if it is little."""
    return Fact("How much was learnt", learnt.verdict.words, learnt.advice or "most people have values whose shares are known")


def agreement(diagnosis: Diagnosis, *, fits: bool) -> Fact:
    """Return whether the reports and the estimate of a group agree, and what to do if they do not."""
    note = f"{diagnosis.status}, p-value {diagnosis.fit_p_value:.2g}" if fits else diagnosis.remedy
    return Fact("Reports and estimate", "agree" if fits else "look closer", note)


def _worth(group: Group) -> str:
    """Return how many values without noise would determine the shares as well, in words."""
    worth = round(group.diagnosis.effective_reports)
    if not determined(group.error) or not worth:
        return "the reports do not determine these shares"
    return f"standard error {points(group.error)}, as from {counted(worth, 'value')} without noise"


def conclusions(about: str, rows: pl.DataFrame, reports: int, *, fits: bool = True, numbers: Sequence[Fact] = ()) -> Markup:
    """Return what can be said from estimates, in sentences.

    Args:
        about: the title of the group, empty if it is the only one.
        rows: columns name, estimate, std_error, low and high.
        reports: how many reports they were estimated from.
        fits: whether the reports and the estimates agree.
        numbers: the mean and the median, which are said instead of shares.

    """
    first, *others = rows.sort("estimate", descending=True).iter_rows(named=True)
    said = [] if fits else ["Nothing yet: the reports and the estimate do not agree. See what to do below."]
    if fits and numbers:
        said += [f"The {fact.name.lower()} of the values behind these {reports:,} reports is {fact.value}." for fact in numbers]
    elif fits and determined(first["std_error"]):
        said.append(
            f"{interval(first['low'], first['high'])} of the values behind these {reports:,} reports are {first['name']}."
        )
        near = [row["name"] for row in others if row["high"] >= first["low"]]
        said.append(
            f"It is not known whether {first['name']} or {near[0]} is more frequent: their intervals overlap."
            if near
            else f"{first['name']} is the most frequent value: its interval lies above all others."
        )
        rare = int((rows["low"] <= 0).sum())
        said += [f"{counted(rare, 'value')} of {len(rows):,} may not occur at all: the interval begins at 0."] if rare else []
    elif fits:
        said.append("Nothing about the shares: these reports do not determine them.")
    said.append("Nothing certain about one person: a report is random.")
    meaning = f"Each interval contains the true {'number' if numbers else 'share'} in 95 of 100 collections."
    return tag(
        "section",
        tag("h2", "What you can say from this" + (f": {about}" if about else "")),
        tag("ul", *(tag("li", one) for one in said)),
        tag("p", meaning, class_="hint"),
    )


@dataclass(frozen=True)
class Part:
    """A group as a part of the page: its facts, its own cells of the overview, and what else is shown of it."""

    title: str
    diagnosis: Diagnosis | SetDiagnosis
    facts: Sequence[Fact]
    cells: Sequence[Cell | Markup]
    shown: Markup

    def row(self, number: int) -> Row:
        """Return the row of the overview, with a link to the group."""
        reports, p_value, status = self.diagnosis.reports, self.diagnosis.fit_p_value, self.diagnosis.status
        last = [Cell(f"{p_value:.2g}", (p_value,), wide=True), Cell(status, (status,), wide=True)]
        return tag("a", self.title, href=f"#group-{number}"), [Cell(f"{reports:,}", (reports,)), *self.cells, *last]


def part_of(group: Group, most: int) -> Part:
    """Return a group of estimates, with a table of at most so many values."""
    diagnosis, (result, *_) = group.diagnosis, result_facts(group)
    cells = [
        Cell(result.value, (result.value,)),
        Cell(width(group.error), (WIDTH * group.error,), wide=True),
        Cell(f"{diagnosis.gap:.2g}", (diagnosis.gap,), wide=True),
    ]
    shown = joined(_pictures(group), _table(group, most))
    return Part(group.title, diagnosis, [*result_facts(group), *trust_facts(group)], cells, shown)


def sections(columns: Sequence[Column], parts: Sequence[Part]) -> Markup:
    """Return all groups; several have their facts, and an overview before them. ``columns`` are those of their own cells."""
    if len(parts) == 1:
        return _section(0, parts[0], None)
    last = [Column("p-value", ("p_value",), wide=True), Column("Status", ("status",), wide=True)]
    all_columns = [Column("Group", ("group",)), Column("Reports", ("reports",)), *columns, *last]
    overview = table("groups", all_columns, [part.row(number) for number, part in enumerate(parts)])
    facts = (cards([Fact("Reports", f"{part.diagnosis.reports:,}"), *part.facts], "facts small") for part in parts)
    return joined(
        tag("section", tag("h2", "Groups"), overview, class_="overview"), *map(_section, range(len(parts)), parts, facts)
    )


def _section(number: int, part: Part, facts: Markup | None) -> Markup:
    return tag("section", tag("h2", part.title), facts, part.shown, **marked(number, part.title))


def marked(number: int, title: str) -> dict[str, str]:
    """Return the attributes of a section that makes it one of the groups of the page, to be chosen by its title."""
    return {"class_": "group", "id": f"group-{number}", "data_title": title}


def _pictures(group: Group) -> Markup | None:
    if group.places:
        shares = {"Estimate": group.one.estimate} | ({} if group.truth is None else {"Truth": group.truth})
        return maps(group.places, shares)
    if group.numbers and len(group.rows) > FEW:
        return number_charts(group.numbers, group.one.group, group.truth)
    return None


def _table(group: Group, most: int) -> Markup:
    rows, estimator = group.rows, group.one.of.estimator
    if group.one.likelihood.operator.large:  # the map shows the others
        most = min(most, MOST_OF_MAP)
    kept = rows if len(rows) <= most else rows.filter(pl.col("estimate").rank("ordinal", descending=True) <= most)
    left = len(rows) - len(kept)
    more = f"{counted(left, 'more value')} with smaller shares: ldpsql estimate lists them all." if left else ""
    shares = share_table(group.title, kept, estimator.pointwise(len(rows)), group.places.title if group.places else "Value")
    truth = ", the upright mark the truth" if group.truth is not None else ""
    return hinted(f"Bars are estimates, the line on each its interval{truth}.", shares, more)


def hinted(before: str, table: Markup, after: str) -> Markup:
    """Return a table between two hints; the second one may be empty."""
    return joined(tag("p", before, class_="hint"), table, tag("p", after, class_="hint") if after else None)
