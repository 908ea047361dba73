"""Cells of a grid on a page: a map, with longitudes and latitudes if the region is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, radians

import numpy as np

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.estimate import Estimate
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.region import Region
from ldpsql.pages.axes import Axis
from ldpsql.pages.maps import Heat, Side, heat, scale_of_colours
from ldpsql.pages.markup import Markup, tag
from ldpsql.pages.wording import number, percent


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
