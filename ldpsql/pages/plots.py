"""Charts as SVG that fills the width of the page: positions are in percent, so neither text nor lines are stretched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TypeAlias

import numpy as np

from ldpsql.estimates.functionals import Measure
from ldpsql.inference.operators import Floats
from ldpsql.pages.document import Markup, joined, number, percent, tag

# Axes: where a number lies along one, in percent of its length, and where its ticks are.

TICKS = 5  # at most so many, plus one: more labels would touch each other on a telephone

ROOM = 24  # characters of labels next to each other on a telephone; if there are more, every second one is left out


@dataclass(frozen=True)
class Axis:
    """The numbers from low to high along one side of a chart; ``form`` writes one, given the distance of ticks."""

    low: float
    high: float
    form: Callable[[float, float], str] = number
    log: bool = False
    marks: tuple[float, ...] = ()  # where its ticks are; by default at round numbers

    def at(self, value: float) -> float:
        """Return where a number lies, from 0 to 100; beyond an end, that end."""
        low, high, here = (_log(x) if self.log else x for x in (self.low, self.high, value))
        return float(np.clip(100 * (here - low) / ((high - low) or 1.0), 0.0, 100.0))

    def ticks(self) -> list[tuple[float, str]]:
        """Return places from 0 to 100 with their labels."""
        marks, step = (_decades(self.low, self.high), 0.0) if self.log else _round_numbers(self.low, self.high)
        marks = list(self.marks) or marks
        return [(self.at(mark), self.form(mark, step)) for mark in marks]


def shares(low: float, high: float) -> Axis:
    """Return an axis for shares that holds 0 and ends at a tick."""
    _, step = _round_numbers(min(low, 0.0), max(high, 1e-9))
    return Axis(step * floor(min(low, 0.0) / step + 1e-9), step * ceil(max(high, 1e-9) / step - 1e-9), percent)


def _round_numbers(low: float, high: float) -> tuple[list[float], float]:
    """Return multiples of 1, 2 or 5 times a power of ten, at most `TICKS` + 1 of them, and their distance."""
    rough = (high - low) / TICKS
    power = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * i for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)], step


def _decades(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten, or powers alone if these are many."""
    powers = range(floor(_log(low)), ceil(_log(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        marks = [factor * 10.0**power for power in powers for factor in factors]
        marks = [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
        if len(marks) <= TICKS + 2:
            break
    return marks


def _log(value: float) -> float:
    return log10(max(value, 1e-300))


def across(axis: Axis) -> list[Markup]:
    """Return the lines and labels of an axis along the bottom."""
    ticks = axis.ticks()
    crowded = sum(len(label) for _, label in ticks) > ROOM
    labels = [_below(at, label, sparse=crowded and i % 2 == 1) for i, (at, label) in enumerate(ticks)]
    return [*(_line(x1=at, x2=at, y1=0, y2=100) for at, _ in ticks), *labels]


def upward(axis: Axis) -> list[Markup]:
    """Return the lines and labels of an axis along the left side."""
    return [
        part for at, label in axis.ticks() for part in (_line(x1=0, x2=100, y1=100 - at, y2=100 - at), _left(100 - at, label))
    ]


def _line(**ends: float) -> Markup:
    return tag("line", class_="grid", **{name: f"{end:.5g}%" for name, end in ends.items()})


def _below(at: float, label: str, *, sparse: bool) -> Markup:
    return tag("text", label, class_="below sparse" if sparse else "below", x=f"{at:.5g}%", y="100%", dy="1.75em")


def _left(at: float, label: str) -> Markup:
    return tag("text", label, class_="left", x="0", y=f"{at:.5g}%", dx="-.5em", dy=".35em")


Points: TypeAlias = tuple[Floats, Floats]  # along the horizontal and the vertical axis

COLOURS = 8  # kinds of lines that page.css distinguishes


@dataclass(frozen=True)
class Series:
    """Points joined by a line: its name, and a sentence for each point."""

    name: str
    x: Floats
    y: Floats
    tips: Sequence[str]
    kind: str = "line"


@dataclass(frozen=True)
class Histogram:
    """Shares between neighbouring edges, their true ones if these are known, and a sentence for each.

    ``banded`` is whether their intervals are drawn, too.
    """

    edges: Floats
    shares: Measure
    tips: Sequence[str]
    truth: Floats | None
    banded: bool = True


def figure(title: str, plot: Markup, below: str, legend: Markup | None = None) -> Markup:
    """Return a chart with its title above and what its horizontal axis shows below."""
    return tag("figure", tag("figcaption", title), legend, plot, tag("p", below, class_="axis"), class_="chart")


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """Return what the marks of a chart mean, from pairs of the kind of a mark and its name."""
    entries = (tag("li", tag("i", class_=kind), name) for kind, name in names)
    return tag("ul", *entries, class_="legend")


def lines(drawn: Sequence[Series], x: Axis, y: Axis, label: str) -> Markup:
    """Return lines with a mark at each point."""
    return _plot(label, x, y, [_path(one.kind, x, y, (one.x, one.y)) for one in drawn], [_marks(x, y, one) for one in drawn])


def bars(drawn: Histogram, x: Axis, y: Axis, label: str) -> Markup:
    """Return a bar between each two edges, with the band of the intervals."""
    edges, one = drawn.edges, drawn.shares
    shapes = [_path("bar", x, y, _steps(edges, one.estimate), filled=True)]
    shapes += [_band(x, y, _steps(edges, one.low), _steps(edges, one.high))] if drawn.banded else []
    shapes += [] if drawn.truth is None else [_path("truth", x, y, _steps(edges, drawn.truth))]
    return _plot(label, x, y, shapes, [_columns(edges, x, drawn.tips)])


def curve(drawn: Histogram, x: Axis, y: Axis, label: str) -> Markup:
    """Return a curve from 0 through a share at the end of every bar, with the band of the intervals."""
    edges, one = drawn.edges, drawn.shares
    shapes = [_band(x, y, (edges, _from_zero(one.low)), (edges, _from_zero(one.high)))] if drawn.banded else []
    shapes += [_path("line", x, y, (edges, _from_zero(one.estimate)))]
    shapes += [] if drawn.truth is None else [_path("truth", x, y, (edges, _from_zero(drawn.truth)))]
    return _plot(label, x, y, shapes, [_columns(edges, x, drawn.tips)])


def _from_zero(shares: Floats) -> Floats:
    return np.concatenate([[0.0], shares])


def _plot(label: str, x: Axis, y: Axis, shapes: Sequence[Markup], marks: Sequence[Markup]) -> Markup:
    stretched = tag("svg", *shapes, viewBox="0 0 100 100", preserveAspectRatio="none", width="100%", height="100%")
    return tag("svg", *across(x), *upward(y), stretched, *marks, class_="plot", role="img", aria_label=label)


def _path(kind: str, x: Axis, y: Axis, points: Points, *, filled: bool = False) -> Markup:
    """Return a line through points, or the area between it and 0."""
    through = [f"{x.at(a):.5g} {100 - y.at(b):.5g}" for a, b in zip(*points, strict=True)]
    ends = f"V{100 - y.at(0.0):.5g}H{x.at(float(points[0][0])):.5g}Z" if filled else ""
    return tag("path", class_=kind, d="M" + "L".join(through) + ends)


def _band(x: Axis, y: Axis, low: Points, high: Points) -> Markup:
    around = tuple(np.concatenate([there, back[::-1]]) for there, back in zip(low, high, strict=True))
    return _path("band", x, y, (around[0], around[1]))


def _steps(edges: Floats, height: Floats) -> Points:
    return np.repeat(edges, 2)[1:-1], np.repeat(height, 2)


def _marks(x: Axis, y: Axis, series: Series) -> Markup:
    return joined(
        *(
            tag("circle", tag("title", tip), class_=series.kind, cx=f"{x.at(a):.5g}%", cy=f"{100 - y.at(b):.5g}%", r=4)
            for a, b, tip in zip(series.x, series.y, series.tips, strict=True)
        )
    )


def _columns(edges: Floats, x: Axis, tips: Sequence[str]) -> Markup:
    """Return invisible columns that show a tooltip."""
    ends = [x.at(float(edge)) for edge in edges]
    return joined(
        *(
            tag("rect", tag("title", tip), class_="hit", x=f"{a:.5g}%", width=f"{b - a:.5g}%", height="100%")
            for a, b, tip in zip(ends, ends[1:], tips, strict=False)
        )
    )
