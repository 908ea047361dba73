"""Rectangles of a map as options name them, and as SQL writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ldpsql.cli.options import edges_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from ldpsql.estimates.rectangles import Rectangle
    from ldpsql.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Sides:
    """Rectangles, and the bounds of the grid that they lie on: west, south, east and north."""

    bounds: Sequence[str]
    rectangles: Sequence[Rectangle]

    @classmethod
    def named(cls, bounds: str, rectangles: Sequence[str]) -> Sides:
        """Return what the options name; a side that is left out means no bound.

        Raises:
            InvalidParameter: if the bounds are missing, or one of the options does not name the sides of a rectangle.

        """
        from ldpsql.errors import InvalidParameter
        from ldpsql.estimates.rectangles import Rectangle

        if not bounds:
            raise InvalidParameter("--rectangle needs the bounds of the grid", "add --bounds=WEST,SOUTH,EAST,NORTH")
        sides = ([edge or None for edge in edges_of(one, "--rectangle")] for one in rectangles)
        return cls(edges_of(bounds), [Rectangle.of(one) for one in sides])

    def grid(self, mechanism: Mechanism) -> str:
        """Return the SQL for the grid whose cells are the values of a mechanism."""
        from ldpsql.estimates.rectangles import region_of
        from ldpsql.mechanisms.spec import sql_literal

        return f"ldp.grid({', '.join(map(sql_literal, region_of(mechanism, self.bounds).model_dump().values()))})"

    def corners(self) -> Iterator[list[str]]:
        """Yield the south-west and the north-east corners, as SQL points whose numbers are text, which is exact."""
        for at in (0, 2):
            pairs = ([_text(side) for side in one[at : at + 2]] for one in self.rectangles)
            yield [f"{{'lon': {lon}, 'lat': {lat}}}" for lon, lat in pairs]

    def listed(self) -> Iterator[str]:
        """Yield the sides of each rectangle as an SQL struct of numbers."""
        for one in self.rectangles:
            fields = (f"'{name}': {_text(side)}::DOUBLE" for name, side in one._asdict().items())
            yield f"{{{', '.join(fields)}}}"


def _text(side: Fraction | None) -> str:
    from ldpsql.mechanisms.spec import sql_literal

    return "NULL::VARCHAR" if side is None else f"'{sql_literal(side)}'"
