"""Numbers, dates and times on a page: mean, quartiles, a histogram and the cumulative curve, each with its error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ldpsql.domains.columns import family
from ldpsql.domains.domain import Domain
from ldpsql.estimates.conditions import scale_of
from ldpsql.estimates.estimate import Estimate, Estimates
from ldpsql.estimates.functionals import Measure
from ldpsql.estimates.spans import shares_of_sets
from ldpsql.estimates.tables import Mean, Quantile
from ldpsql.inference.operators import Floats
from ldpsql.pages.document import ALL, Fact, Markup, determined, interval, joined, number, percent, tag
from ldpsql.pages.maps import blocks
from ldpsql.pages.plots import Axis, Histogram, bars, curve, figure, legend, shares
from ldpsql.pages.tables import MOST

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
