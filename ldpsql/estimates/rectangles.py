"""Shares of rectangles of a map, as the cells of a grid say about longitudes and latitudes.

A rectangle holds its west and south sides but not its east and north ones, like the cells, so rectangles that share a side
share no point; the outer sides of the grid belong to it. A side may cut cells: all or nothing of such a cell may lie in the
rectangle, and the interval allows for both. The estimate takes the part of the cell by its area.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ldpsql.domains.columns import finite_or_null, python_value
from ldpsql.errors import InvalidDomain, InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.conditions import scale_of
from ldpsql.estimates.estimate import Estimate, Estimates
from ldpsql.estimates.functionals import FIELDS, Functional, Measure, cut_to, linear
from ldpsql.estimates.spans import widened
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import normalised
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.mechanisms.region import Region
from ldpsql.mechanisms.spec import number

_SIDES = ("west", "south", "east", "north")


class Rectangle(NamedTuple):
    """The sides of a rectangle; None means no bound."""

    west: Fraction | None
    south: Fraction | None
    east: Fraction | None
    north: Fraction | None

    @classmethod
    def of(cls, sides: Iterable[Any]) -> Rectangle:
        """Return the rectangle with these sides: west, south, east and north, numbers or None."""
        try:
            rectangle = cls(*(None if side is None else number(side) for side in sides))
        except (TypeError, ValueError):
            raise InvalidParameter(
                "the sides of a rectangle must be four numbers or NULL: west, south, east and north"
            ) from None
        for low, high in ((rectangle.west, rectangle.east), (rectangle.south, rectangle.north)):
            if low is not None and high is not None and low >= high:
                raise InvalidParameter(
                    "a rectangle must have its west before its east and its south before its north",
                    "the south-west corner comes first",
                )
        return rectangle


@dataclass(frozen=True)
class RectangleShares(Functional):
    """The shares of several rectangles of a region whose cells are the values, numbered row by row."""

    region: Region
    rectangles: tuple[Rectangle, ...]

    def __post_init__(self) -> None:
        """Refuse rectangles that hold nothing of any cell: their share would be zero, without an error."""
        if not all(self._covered(one).any() for one in self.rectangles):
            raise InvalidParameter(
                "a rectangle lies outside the grid", "longitude comes before latitude; the sides are in the unit of the grid"
            )

    @classmethod
    def between(cls, southwest: Sequence[pa.Scalar], northeast: Sequence[pa.Scalar], grid: pa.Scalar) -> RectangleShares:
        """Return the shares of the rectangles between pairs of corners, points of a grid as SQL passes them.

        Raises:
            InvalidSpec: if there is no grid.
            InvalidParameter: if a corner is not a point, two are not the corners of a rectangle, or it lies outside the grid.

        """
        region = Region.read(python_value(grid))
        corners = zip(map(_point, southwest), map(_point, northeast), strict=True)
        return cls(region, tuple(Rectangle.of((*low, *high)) for low, high in corners))

    def measure(self, estimates: Estimates) -> Measure:
        part = np.stack([self._covered(one) for one in self.rectangles], axis=1)
        certain, possible = (sets.astype(np.float64) for sets in (part == 1.0, part > 0.0))
        share = _shares(estimates, part, certain.min(axis=0), possible.max(axis=0))
        if np.array_equal(certain, possible):
            return share
        least, most = (_shares(estimates, sets, sets.min(axis=0), sets.max(axis=0)) for sets in (certain, possible))
        return widened(share, least, most)

    def _covered(self, rectangle: Rectangle) -> Floats:
        """Return the part of each cell that lies in a rectangle."""
        west, south, east, north = rectangle
        across, along = self.region.across.covered(west, east), self.region.along.covered(south, north)
        return (along[:, None] * across).ravel()


def _shares(estimates: Estimates, c: Floats, least: Floats, most: Floats) -> Measure:
    bounds = linear(estimates, c)
    measure = Measure(normalised(estimates.fit.theta) @ c, bounds.std_error, bounds.low, bounds.high)
    return cut_to(measure, least, most, estimates.fit.regularised[:, None])


def _point(corner: pa.Scalar) -> tuple[Any, Any]:
    """Return longitude and latitude of a corner; NULL means no bound."""
    point = python_value(corner)
    if point is None:
        return None, None
    if not isinstance(point, dict) or point.keys() != {"lon", "lat"}:
        raise InvalidParameter(
            "the corners of a rectangle must be points", "{'lon': -122.45, 'lat': 37.72}, or NULL for no bound"
        )
    return point["lon"], point["lat"]


def check_grid(source: Mechanism | ReportSource, grid: pa.Scalar) -> None:
    """Check that the values behind reports are the cells of a grid, as SQL passes it; see `check_cells`."""
    if not isinstance(source, Mechanism):
        raise InvalidParameter(
            "rectangles are asked of the reports of one mechanism", "estimate the reports of each by themselves"
        )
    check_cells(source, Region.read(python_value(grid)))


def check_cells(mechanism: Mechanism, region: Region) -> None:
    """Check that the values of a mechanism are the cells of a region."""
    certified = certify_values(mechanism)
    size, layout = len(certified.values), certified.layout
    shape = (region.rows, region.columns)
    if len(layout) == 2 and layout != shape:
        raise InvalidDomain(
            f"the mechanism has {layout[1]} columns and {layout[0]} rows of cells, the grid {shape[1]} and {shape[0]}",
            "use the grid that the cells were numbered with",
        )
    if size != len(region) or not np.array_equal(scale_of(certified.values), np.arange(size)):
        raise InvalidDomain("the values of the mechanism are not the cells of the grid", "its domain must be ldp.cells(grid)")


def region_of(mechanism: Mechanism, edges: Sequence[Any]) -> Region:
    """Return the region that the cells of a mechanism cover."""
    layout = certify_values(mechanism).layout
    if len(layout) != 2:
        raise InvalidParameter("only the cells of a grid lie in a region", "leave out --bounds")
    sides = tuple(edges) if isinstance(edges, Iterable) else ()
    if len(sides) != len(_SIDES):
        raise InvalidParameter("the bounds of a grid must be four numbers", "west, south, east and north")
    return Region(**dict(zip(_SIDES, sides, strict=True)), rows=layout[0], columns=layout[1])


@withheld
def rectangle_shares(estimate: Estimate, bounds: Sequence[Any], rectangles: Iterable[Sequence[Any]]) -> pa.Table:
    """Return the shares of rectangles of a map, one row each: west, south, east, north, estimate, std_error, low, high.

    Args:
        estimate: that of a mechanism over the cells of a grid.
        bounds: west, south, east and north of the grid: numbers, or strings that hold decimal numbers.
        rectangles: the sides of each rectangle, in the same order; None means no bound.

    Raises:
        InvalidParameter: if the values are not cells, or the sides are not those of rectangles of the grid.

    """
    source = estimate.of.source
    if not isinstance(source, CertifiedValues):
        raise InvalidParameter("rectangles need reports of one mechanism over the cells of a grid")
    listed = [Rectangle.of(sides) for sides in rectangles]
    if not listed:
        raise InvalidParameter("this needs at least one rectangle", "such as (0, 0, 0.5, 0.5)")
    shares = RectangleShares(region_of(source.mechanism, bounds), tuple(listed))
    one = shares.measure(estimate.of)
    sides = [[None if side is None else float(side) for side in column] for column in zip(*listed, strict=True)]
    numbers = [finite_or_null(getattr(one, name)[estimate.group]) for name in FIELDS]
    return pa.table([*(pa.array(column, pa.float64()) for column in sides), *numbers], [*_SIDES, *FIELDS])
