"""One group of a report: its estimate as facts, charts, a map, numbers with their errors; and the cycles of a PRIVIC run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from ldpsql.domains.columns import family
from ldpsql.domains.domain import Domain
from ldpsql.estimates.conditions import scale_of
from ldpsql.estimates.diagnosis import Diagnosis, Learnt
from ldpsql.estimates.estimate import Estimate, Estimates
from ldpsql.estimates.functionals import Measure
from ldpsql.estimates.spans import shares_of_sets
from ldpsql.estimates.tables import Mean, Quantile
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Status
from ldpsql.mechanisms.base import certify
from ldpsql.pages.charts import (
    MOST,
    Axis,
    Cell,
    Column,
    Histogram,
    Places,
    Row,
    bars,
    blocks,
    curve,
    figure,
    legend,
    maps,
    share_table,
    shares,
    table,
)
from ldpsql.pages.document import (
    ALL,
    WIDTH,
    Fact,
    Markup,
    cards,
    counted,
    determined,
    document,
    interval,
    joined,
    number,
    percent,
    points,
    tag,
    width,
)
from ldpsql.pairs import SetDiagnosis

if TYPE_CHECKING:
    from ldpsql.privic import Cycle

UNKNOWN = "The reports do not determine the share of a single bar: fewer bins or a larger epsilon would. Means do better."
FEW = 24  # values that are easier to read as a list than as a histogram
BARS = 64
UP = Axis(0.0, 1.0, percent)
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False)
class Distributions:
    """The distributions of several groups over an ordered domain; each measure has one entry, or one row, per group."""

    estimates: Estimates

    @property
    def values(self) -> Domain:
        """The values of the domain."""
        return self.estimates.values

    @cached_property
    def parts(self) -> list[slice]:
        """The values that go to each bar."""
        return blocks(len(self.values), BARS)

    @cached_property
    def edges(self) -> Floats:
        """The ends of the bars: halfway between values."""
        scale = scale_of(self.values)
        middle = (scale[1:] + scale[:-1]) / 2
        ends = np.concatenate([[2 * scale[0] - middle[0]], middle, [2 * scale[-1] - middle[-1]]])
        return ends[[0, *(part.stop for part in self.parts)]]

    @cached_property
    def mean(self) -> Measure:
        """The mean of every group."""
        return Mean().measure(self.estimates)

    @cached_property
    def quartiles(self) -> list[Measure]:
        """The three quartiles of every group, as positions in the domain."""
        return [Quantile(q=q).measure(self.estimates) for q in QUARTILES]

    @cached_property
    def bars(self) -> Measure:
        """The share of every bar."""
        return shares_of_sets(self.estimates, self.in_bars)

    @cached_property
    def in_bars(self) -> Floats:
        """Which values each bar holds, shape (values, bars)."""
        held = np.zeros((len(self.values), len(self.parts)))
        for bar, part in enumerate(self.parts):
            held[part, bar] = 1.0
        return held

    @cached_property
    def cumulative(self) -> Measure:
        """The share of all values up to the end of every bar."""
        return shares_of_sets(self.estimates, self.in_bars.cumsum(axis=1))

    @cached_property
    def step(self) -> float:
        """How precisely numbers of this domain are written: by a hundredth of a bar."""
        return float(np.diff(self.edges).min()) / 100

    def text(self, value: float, step: float | None = None) -> str:
        """Return a number on the scale of the values as people read it."""
        kind = family(self.values.values.type)
        if kind == "number" or not np.isfinite(value):
            return number(value, step or self.step)
        if kind == "date":
            return str(np.datetime64(round(value), "D"))
        return str(np.datetime64(round(value), "s")).replace("T", " ")


def ordered(one: Estimate) -> bool:
    """Return whether the values of an estimate are numbers, dates or times that lie on a line."""
    return one.of.likelihood.layout == (len(one.values),)


def bin_names(values: Domain) -> list[str]:
    """Return the names of the values: the ends of a bin, any other value itself."""
    if not values.rounding or not pa.types.is_floating(values.values.type):
        return values.texts
    centres = scale_of(values)
    step = values.rounding / 5
    return [f"{number(c - values.rounding, step)} to {number(c + values.rounding, step)}" for c in centres]


def axis_names(values: Domain) -> list[str]:
    """Return the names of the values on an axis: decimal numbers without the digits that rounding leaves."""
    if not pa.types.is_floating(values.values.type):
        return values.texts
    scale = scale_of(values)
    return [number(value, float(np.ptp(scale)) / 1000) for value in scale]


def number_facts(numbers: Distributions, group: int) -> list[Fact]:
    """Return mean and quartiles of a group, with their intervals."""
    mean = numbers.mean
    low, middle, high = numbers.quartiles
    width = float(mean.high[group] - mean.low[group]) / 20
    ends = " to ".join(numbers.text(float(end[group]), width) for end in (mean.low, mean.high))
    half = f"{_quantile(numbers, low, group)} to {_quantile(numbers, high, group)}"
    return [
        Fact("Mean", ends, f"estimate {numbers.text(float(mean.estimate[group]), width)}"),
        Fact("Median", _quantile_interval(numbers, middle, group), f"estimate {_quantile(numbers, middle, group)}"),
        Fact("Middle half", half, "a quarter lies below, a quarter above"),
    ]


def _quantile(numbers: Distributions, measure: Measure, group: int) -> str:
    scale = scale_of(numbers.values)
    return numbers.text(float(scale[int(measure.estimate[group])]), _spacing(scale, measure))


def _quantile_interval(numbers: Distributions, measure: Measure, group: int) -> str:
    scale = scale_of(numbers.values)
    low, high = (float(scale[int(end[group])]) for end in (measure.low, measure.high))
    ends = low - measure.rounding, high + measure.rounding
    return " to ".join(numbers.text(end, _spacing(scale, measure)) for end in ends)


def _spacing(scale: Floats, measure: Measure) -> float:
    """Return how close two ends of quantiles can be: the distance of values, or how far these are from the centres of bins."""
    return min([float(np.diff(scale).min()), *([measure.rounding] if measure.rounding else [])])


def number_charts(numbers: Distributions, group: int, truth: Floats | None) -> Markup:
    """Return the histogram and the cumulative curve of a group."""
    drawn = joined(_histogram(numbers, group, truth), _cumulative(numbers, group, truth))
    return drawn if _banded(_of_group(numbers.bars, group)) else joined(drawn, tag("p", UNKNOWN, class_="hint"))


def _histogram(numbers: Distributions, group: int, truth: Floats | None) -> Markup:
    edges, one = numbers.edges, _of_group(numbers.bars, group)
    banded = _banded(one)
    widths = np.diff(edges)
    one_width = one.scaled(widths.max() / widths)  # a narrower bar is as high as a full one of the same density
    true = None if truth is None else (truth @ numbers.in_bars) * widths.max() / widths
    top = float(np.max([*one_width.estimate, *([] if true is None else true)]))
    certain = one.std_error < ALL
    up = shares(float(one.estimate.min()), min(MOST * top, float(np.max(one_width.high[certain], initial=top))))
    tips = [f"{numbers.text(edges[i])} to {numbers.text(edges[i + 1])}: {_share(one, i)}" for i in range(len(widths))]
    plot = bars(Histogram(edges, one_width, tips, true, banded), _axis(numbers), up, "histogram of the values")
    return figure("Share of the values in each bar", plot, "value", _legend(truth, "bar", band=banded))


def _cumulative(numbers: Distributions, group: int, truth: Floats | None) -> Markup:
    edges, one = numbers.edges, _of_group(numbers.cumulative, group)
    banded = _banded(one)
    tips = [f"up to {numbers.text(edges[i + 1])}: {_share(one, i)}" for i in range(len(edges) - 1)]
    true = None if truth is None else (truth @ numbers.in_bars).cumsum()
    plot = curve(Histogram(edges, one, tips, true, banded), _axis(numbers), UP, "cumulative curve")
    return figure("Share of the values up to each number", plot, "value", _legend(truth, "line", band=banded))


def _of_group(measure: Measure, group: int) -> Measure:
    rows = (field[group] for field in (measure.estimate, measure.std_error, measure.low, measure.high))
    return Measure(*rows)


def _share(one: Measure, at: int) -> str:
    if not determined(float(one.std_error[at])):
        return f"{percent(float(one.estimate[at]))} (error unknown)"
    return f"{percent(float(one.estimate[at]))} ({interval(float(one.low[at]), float(one.high[at]))})"


def _axis(numbers: Distributions) -> Axis:
    return Axis(float(numbers.edges[0]), float(numbers.edges[-1]), numbers.text)


def _legend(truth: Floats | None, kind: str, *, band: bool) -> Markup:
    marks = [
        (kind, "estimate"),
        *([("band", "its interval")] if band else []),
        *([] if truth is None else [("truth", "truth")]),
    ]
    return legend(marks)


def _banded(one: Measure) -> bool:
    """Return whether the intervals determine most of the shares."""
    return determined(float(np.median(one.std_error)))


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


def cycles_page(cycles: Sequence[Cycle], places: Places) -> str:
    """Return the page for finished cycles over the cells of a grid."""
    lead = "Each cycle's reports gave the estimate below, and the estimate the mechanism of the next cycle."
    spent = sum(certify(cycle.mechanism).epsilon for cycle in cycles)
    last = cycles[-1].summary
    facts = [
        Fact("Cycles", f"{len(cycles):,}", f"{last.reports:,} reports in the last one"),
        Fact("Spent by a user's reports of all cycles", f"epsilon {number(spent)}", "for cells at distance 1"),
        Fact("The next mechanism", f"epsilon {number(last.realised_epsilon)}", f"moves {_in_cells(last.average_distortion)}"),
    ]
    return document("PRIVIC", lead, facts, joined(*(_of_cycle(cycle, places) for cycle in reversed(cycles))))


def _of_cycle(cycle: Cycle, places: Places) -> Markup:
    summary, title = cycle.summary, f"Cycle {cycle.number}"
    facts = [
        Fact("Reports", f"{summary.reports:,}"),
        Fact("Estimate", summary.status),
        Fact("Next epsilon", number(summary.realised_epsilon), "per cell"),
        Fact("Next mutual information", number(summary.mutual_information), "nats"),
        Fact("Next distortion", number(summary.average_distortion), _in_cells(summary.average_distortion)),
    ]
    inside = joined(cards(facts, "facts small"), maps(places, {"Estimate": cycle.theta}))
    return tag("section", tag("h2", title), inside, **marked(cycle.number, title))


def _in_cells(distance: float) -> str:
    return f"a location by {number(distance)} cells on average"
