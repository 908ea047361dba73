"""Points in any number of dimensions, as a parameter of mechanisms."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from ldpsql.mechanisms.families import numbers
from ldpsql.mechanisms.spec import decimal_text


def _points(rows: Any) -> tuple[tuple[Fraction, ...], ...]:
    if not isinstance(rows, list | tuple):
        raise ValueError("must be a list of points, each a list of numbers")
    points = tuple(tuple(numbers(row)) for row in rows)
    if len(set(points)) < len(points) or len({len(point) for point in points}) != 1 or not points[0]:
        raise ValueError("must hold different points with equally many numbers each")
    return points


PointsField = Annotated[
    tuple[tuple[Fraction, ...], ...],
    BeforeValidator(_points),
    PlainSerializer(lambda points: [[decimal_text(at) for at in point] for point in points]),
]
