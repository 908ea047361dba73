"""Tables of numbers as coloured cells: distributions over grids, and channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats
from ldpsql.pages.markup import Markup, tag
from ldpsql.pages.wording import percent, short

SHADES = 10  # colours of page.css, from 0 to the largest number
NAMES = 12  # along one side
MOST_TIPS = 8192  # cells up to which each one is an element with a text of its own


@dataclass(frozen=True)
class Side:
    """One side of a map: what it shows, and labels at places from 0 to 1."""

    title: str
    labels: Sequence[tuple[float, str]]

    @classmethod
    def of_names(cls, title: str, names: Sequence[str]) -> Side:
        """Return a side with the names of its cells in the middle of these, some left out if there are many."""
        chosen = range(0, len(names), -(-len(names) // NAMES))
        return cls(title, [((i + 0.5) / len(names), short(names[i])) for i in chosen])


@dataclass(frozen=True)
class Heat:
    """A table of numbers of at least 0 as coloured cells, its first row at the top.

    ``top`` is the number that the darkest colour stands for, ``up`` the side on the left, from the bottom to the top, ``tip``
    says what a row and a column hold, ``label`` what all of it shows, and ``shape`` is its height over its width.
    """

    table: Floats
    top: float
    across: Side
    up: Side
    tip: Callable[[int, int], str]
    label: str
    shape: float = 1.0


def heat(drawn: Heat) -> Markup:
    """Return a table as a map with its sides."""
    height = 1000 * min(max(drawn.shape, 0.25), 1.25)
    sides = (drawn.up, drawn.across)
    left = tag("svg", *(_left(1 - at, text) for at, text in drawn.up.labels), class_="names")
    below = tag("svg", *(_below(at, text) for at, text in drawn.across.labels), class_=_foot(drawn.across))
    cells = tag("svg", _cells(drawn), viewBox=f"0 0 1000 {height:.5g}", class_="map", role="img", aria_label=drawn.label)
    titles = [tag("span", side.title, class_="axis") for side in sides]
    return tag("div", titles[0], left, cells, below, titles[1], class_="heat")


def _cells(drawn: Heat) -> Markup:
    rows, columns = drawn.table.shape
    shades = np.minimum((SHADES * np.maximum(drawn.table, 0.0) / (drawn.top or 1.0)).astype(int), SHADES - 1)
    if rows * columns > MOST_TIPS:
        cells = (_area(shades == shade, drawn.top, shade) for shade in np.unique(shades).tolist())
    else:
        cells = (
            tag("rect", tag("title", drawn.tip(i, j)), class_=f"s{shades[i, j]}", x=j, y=i, width=1, height=1)
            for i in range(rows)
            for j in range(columns)
        )
    box = f"0 0 {columns} {rows}"
    return tag("svg", *cells, viewBox=box, preserveAspectRatio="none", width="100%", height="100%", class_="cells")


def _area(cells: NDArray[np.bool_], top: float, shade: int) -> Markup:
    """Return all cells of one colour as one shape, made of the stretches of them in each row."""
    ends = np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    (rows, starts), (_, stops) = np.nonzero(ends > 0), np.nonzero(ends < 0)
    stretches = zip(rows.tolist(), starts.tolist(), (stops - starts).tolist(), strict=True)
    outline = "".join(f"M{at} {row}h{width}v1h-{width}z" for row, at, width in stretches)
    low, high = (percent(top * (shade + more) / SHADES, top / 1000) for more in (0, 1))
    return tag("path", tag("title", f"{low} to {high}"), class_=f"s{shade}", d=outline)


def scale_of_colours(top: float) -> Markup:
    """Return what the colours mean."""
    shades = (tag("rect", class_=f"s{i}", x=i, width=1, height=1) for i in range(SHADES))
    colours = tag("svg", *shades, viewBox=f"0 0 {SHADES} 1", preserveAspectRatio="none")
    return tag("p", "0 %", colours, percent(top, top / 100), class_="colours")


def blocks(size: int, most: int) -> list[slice]:
    """Return the places 0 .. size - 1 cut into at most so many parts of equal size, the last one perhaps smaller."""
    width = -(-size // most)
    return [slice(start, min(start + width, size)) for start in range(0, size, width)]


def _foot(across: Side) -> str:
    return "feet slanted" if any(len(text) > 8 for _, text in across.labels) or len(across.labels) > 6 else "feet"


def _left(at: float, text: str) -> Markup:
    return tag("text", text, class_="left", x="100%", y=f"{100 * at:.5g}%", dx="-.5em", dy=".35em")


def _below(at: float, text: str) -> Markup:
    return tag("svg", tag("text", text, class_="below"), x=f"{100 * at:.5g}%", class_="foot")
