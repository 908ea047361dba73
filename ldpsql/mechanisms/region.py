"""A rectangle of longitudes and latitudes, cut into cells. It is decided exactly which cell a point lies in.

Bounds are decimal numbers and points are doubles, which are binary fractions: neither is rounded. Cell (i, j) holds the points
with edge i <= longitude < edge i + 1, and latitudes likewise, so a point on an inner edge belongs to the cell east or north of
it. The outer east and north edges belong to the last column and row; only on outer edges does rounding count: the double
nearest to an outer edge lies on it. Cells are numbered row by row from 0 in the south-west.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import cached_property
from math import ceil, floor, inf, nextafter
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ldpsql.domains.columns import plain
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import InvalidParameter, InvalidSpec, OutsideDomain, WrongType
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.families import MOST_ON_MAP
from ldpsql.mechanisms.spec import EXACT, Spec, WholeField, number

Exact = Annotated[Fraction, BeforeValidator(number), EXACT]
Codes = NDArray[np.int64]
_LARGEST = np.uint64(2**63 - 1)  # unsigned numbers beyond it count as this one
_LITTLE = 1e-100  # of a cell: above 0, as is its square


class Region(Spec):
    """A grid of cells between two longitudes and two latitudes, in any unit.

    >>> thirds = Region(west=0, south=0, east="0.3", north=1, columns=3, rows=1)
    >>> thirds.cells(pa.array([0.0, 0.1, 0.3]), pa.array([0.0, 0.5, 1.0])).tolist()
    [0, 1, 2]
    """

    kind = "grid"
    name = "grid"
    west: Exact = Field(description="smallest longitude")
    south: Exact = Field(description="smallest latitude")
    east: Exact = Field(description="largest longitude")
    north: Exact = Field(description="largest latitude")
    columns: Annotated[WholeField, Field(ge=1, le=MOST_ON_MAP)] = Field(description="number of columns")
    rows: Annotated[WholeField, Field(ge=1, le=MOST_ON_MAP)] = Field(description="number of rows")

    def model_post_init(self, _: Any) -> None:
        """Check the parameters against each other."""
        if self.west >= self.east or self.south >= self.north:
            raise InvalidParameter("a grid must have its west before its east and its south before its north", self.signature())
        if not 2 <= self.columns * self.rows <= MOST_ON_MAP:
            raise InvalidParameter(f"a grid must have 2 to {MOST_ON_MAP} cells", self.signature())

    def __len__(self) -> int:
        return self.columns * self.rows

    @classmethod
    def read(cls, grid: object) -> Self:
        """Return the region that ``ldp.grid`` makes, a STRUCT in SQL."""
        if not isinstance(grid, dict) or grid.keys() != cls.model_fields.keys():
            raise InvalidSpec("this is not a grid", "make one with ldp.grid(west, south, east, north, columns, rows)")
        return cls(**grid)

    @cached_property
    def across(self) -> RegionAxis:
        """The longitudes, cut into columns."""
        return RegionAxis(self.west, self.east, self.columns)

    @cached_property
    def along(self) -> RegionAxis:
        """The latitudes, cut into rows."""
        return RegionAxis(self.south, self.north, self.rows)

    @withheld
    def cells(self, lon: pa.Array, lat: pa.Array, *, nearest: bool = False) -> Codes:
        """Return the cell of every point; with ``nearest``, points outside the rectangle go to the nearest cell.

        Args:
            lon: numbers without NULL: doubles, integers, or decimals of up to 18 digits.
            lat: likewise.
            nearest: whether the nearest cell stands for a point outside.

        Raises:
            OutsideDomain: if a point lies outside, unless ``nearest``; for NaN and infinities always.
            WrongType: if a column has another type.

        """
        across, along = (
            axis.places(plain(column), nearest=nearest)
            for axis, column in zip((self.across, self.along), (lon, lat), strict=True)
        )
        return along * self.columns + across

    def centres(self, cells: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return longitude and latitude of the centre of every cell, correctly rounded."""
        if ((cells < 0) | (cells >= len(self))).any():
            raise OutsideDomain("a number is not that of a cell of the grid", f"cells are numbered from 0 to {len(self) - 1}")
        along, across = np.divmod(cells, self.columns)
        return self.across.centres[across], self.along.centres[along]


class RegionAxis:
    """One direction of a region: an interval cut evenly."""

    def __init__(self, low: Fraction, high: Fraction, parts: int) -> None:
        self.edges = [low + (high - low) * i / parts for i in range(parts + 1)]
        self.centres = np.array([float((a + b) / 2) for a, b in zip(self.edges, self.edges[1:], strict=False)])

    def covered(self, low: Fraction | None, high: Fraction | None) -> NDArray[np.float64]:
        """Return which part of each part lies between two numbers, exactly 1 or 0 if all or nothing; None means no bound."""
        low = self.edges[0] if low is None else max(low, self.edges[0])
        high = self.edges[-1] if high is None else min(high, self.edges[-1])
        out = np.zeros(len(self.centres))
        if low < high:
            first, last = bisect_right(self.edges, low) - 1, bisect_left(self.edges, high) - 1
            out[first : last + 1] = 1.0
            for cut in {first, last}:
                start, end = self.edges[cut], self.edges[cut + 1]
                if start < low or high < end:
                    inside = (min(high, end) - max(low, start)) / (end - start)
                    out[cut] = min(max(float(inside), _LITTLE), nextafter(1.0, 0.0))
        return out

    def places(self, column: pa.Array, *, nearest: bool) -> Codes:
        """Return the part that each number lies in."""
        points, inner, low, high = self._comparable(column)
        if not nearest and ((points < low) | (points > high)).any():
            raise OutsideDomain(
                "a point lies outside the grid",
                "longitude comes before latitude; enlarge the grid, or take the nearest cell: outside := 'nearest', --nearest",
            )
        return np.searchsorted(inner, points, side="right").astype(np.int64)

    def _comparable(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[Any], Any, Any]:
        """Return the numbers, the inner edges, each as the smallest number of that type not below it, and the outer edges."""
        if pa.types.is_decimal(column.type) and column.type.precision <= 18:
            scale = 10**column.type.scale
            whole = np.frombuffer(column.cast(pa.decimal128(18, column.type.scale)).buffers()[1], np.int64)[::2]
            points = whole[column.offset : column.offset + len(column)]
        elif pa.types.is_integer(column.type):
            scale, points = 1, _signed(column.to_numpy())
        elif pa.types.is_float32(column.type) or pa.types.is_float64(column.type):
            points = column.cast(pa.float64()).to_numpy()
            if not np.isfinite(points).all():
                raise OutsideDomain("a longitude or latitude is not a finite number", "leave such rows out, or make them NULL")
            inner = np.array([_double_above(edge) for edge in self.edges[1:-1]])
            return points, inner, float(self.edges[0]), float(self.edges[-1])
        else:
            kind = shown_type(column.type)
            raise WrongType(f"longitudes and latitudes must be numbers, not {kind}", "cast them to DOUBLE or DECIMAL(18, 9)")
        above = [_within(ceil(edge * scale)) for edge in self.edges[:-1]]
        return points, np.array(above[1:], dtype=np.int64), above[0], _within(floor(self.edges[-1] * scale))


def _signed(points: NDArray[Any]) -> Codes:
    return (np.minimum(points, _LARGEST) if points.dtype.kind == "u" else points).astype(np.int64)


def _double_above(edge: Fraction) -> float:
    """Return the smallest double that is not below a number."""
    near = float(edge)
    return near if Fraction(near) >= edge else nextafter(near, inf)


def _within(edge: int) -> int:
    """Return a whole number, or the end of the 64-bit range beyond which it lies."""
    return max(-(2**63) + 1, min(2**63 - 1, edge))
