"""Charts as SVG that fills the width of the page: positions are in percent, so neither text nor lines are stretched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ldpsql.estimates.measures import Measure
from ldpsql.inference.operators import Floats
from ldpsql.pages.axes import Axis, across, upward
from ldpsql.pages.document import Markup, joined, tag

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
