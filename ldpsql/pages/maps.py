"""Tables of numbers as coloured cells: distributions over grids, and channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, radians

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.estimate import Estimate
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.region import Region
from ldpsql.pages.document import Markup, number, percent, short, tag
from ldpsql.pages.plots import Axis

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


# Cells of a grid on a page: a map, with longitudes and latitudes if the region is given.


@dataclass(frozen=True)
class Places:
    """The cells of a grid, row by row from the south-west, and the region they cover if it is given."""

    rows: int
    columns: int
    region: Region | None = None

    def __post_init__(self) -> None:
        if self.region and (self.rows, self.columns) != (self.region.rows, self.region.columns):
            raise InvalidParameter("the region must have as many rows and columns as the mechanism")

    @classmethod
    def of(cls, one: Estimate, region: Region | None) -> Places | None:
        """Return the cells of an estimate, None if its values are not cells."""
        layout = one.of.likelihood.layout
        return cls(*layout, region) if len(layout) == 2 else None

    @property
    def title(self) -> str:
        """What the names of the cells are."""
        return "Longitude, latitude" if self.region else "Cell"

    def names(self) -> list[str]:
        """Return a name for each cell: the place of its centre, or its column and row."""
        if self.region:
            centres = self.region.centres(np.arange(self.rows * self.columns))
            steps = [
                (high - low) / count / 10 for (_, low, high), count in zip(self.ends(), (self.columns, self.rows), strict=True)
            ]
            return [f"{number(lon, steps[0])}, {number(lat, steps[1])}" for lon, lat in zip(*centres, strict=True)]
        return [f"column {i % self.columns + 1}, row {i // self.columns + 1}" for i in range(self.rows * self.columns)]

    def ends(self) -> list[tuple[str, float, float]]:
        """Return what lies along the lower and the left side, and where each side begins and ends."""
        r = self.region
        if not r:
            return [("column", 0.5, self.columns + 0.5), ("row", 0.5, self.rows + 0.5)]
        return [("longitude", float(r.west), float(r.east)), ("latitude", float(r.south), float(r.north))]

    def sides(self) -> list[Side]:
        """Return what to write below and on the left."""
        if not self.region:
            counts = [("column", self.columns), ("row", self.rows)]
            return [Side.of_names(title, [str(i + 1) for i in range(count)]) for title, count in counts]
        return [Side(title, [(at / 100, text) for at, text in Axis(low, high).ticks()]) for title, low, high in self.ends()]

    def shape(self) -> float:
        """Return the height of the map over its width: true to scale if the region is one of degrees."""
        if not self.region:
            return self.rows / self.columns
        (_, west, east), (_, south, north) = self.ends()
        degrees = -90 < south < north < 90 and -180 <= west < east <= 360
        return (north - south) / (east - west) / (cos(radians((north + south) / 2)) if degrees else 1.0)


def maps(places: Places, shares: Mapping[str, Floats]) -> Markup:
    """Return a map for each named distribution over the cells, all in the same colours."""
    top = max(float(share.max()) for share in shares.values())
    drawn = (tag("figure", tag("figcaption", name), _map(places, share, top, name)) for name, share in shares.items())
    return tag("div", tag("div", *drawn, class_="maps"), scale_of_colours(top), class_="chart")


def _map(places: Places, share: Floats, top: float, name: str) -> Markup:
    names, (across, up) = places.names(), places.sides()
    north_up = share.reshape(places.rows, places.columns)[::-1]

    def tip(row: int, column: int) -> str:
        cell = (places.rows - 1 - row) * places.columns + column
        return f"{names[cell]}: {percent(float(share[cell]), top / 1000)}"

    return heat(Heat(north_up, top, across, up, tip, f"map of the shares: {name}", places.shape()))
