"""Finite metrics: exact distances of values, or exact lower bounds of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import NotApplicable

MOST_LISTED = 8192  # cells of which all distances are listed
_ROOT_DIGITS = 10**30


@lru_cache(maxsize=1 << 16)
def root_below(n: int) -> Fraction:
    """Return a rational lower bound of the square root of a whole number, correct to 30 digits."""
    return Fraction(isqrt(n * _ROOT_DIGITS**2), _ROOT_DIGITS)


class Metric(ABC):
    """Distances between the values of a domain, by their positions."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def below(self, x: int, other: int) -> Fraction:
        """Return the distance of two values, or a lower bound of it."""

    @abstractmethod
    def nearest(self) -> Fraction:
        """Return the smallest distance of two different values."""

    @abstractmethod
    def matrix(self) -> NDArray[np.float64]:
        """Return all distances in double precision, one row for each value."""


@dataclass(frozen=True)
class Line(Metric):
    """Values in a row, one unit apart: it is enough to compare neighbours."""

    count: int

    def __len__(self) -> int:
        return self.count

    def below(self, x: int, other: int) -> Fraction:
        """Return the number of units between two values."""
        return Fraction(abs(x - other))

    def nearest(self) -> Fraction:
        """Return the distance of neighbours."""
        return Fraction(1)

    def matrix(self) -> NDArray[np.float64]:
        """Return all distances."""
        at = np.arange(len(self))
        return np.abs(at[:, None] - at).astype(np.float64)


@dataclass(frozen=True)
class Grid(Metric):
    """Square cells, numbered row by row; the distance is the Euclidean one between their centres."""

    columns: int
    rows: int
    side: Fraction

    def __len__(self) -> int:
        return self.columns * self.rows

    def below(self, x: int, other: int) -> Fraction:
        """Return a lower bound of the distance, correct to 30 digits."""
        (row, column), (to_row, to_column) = divmod(x, self.columns), divmod(other, self.columns)
        return self.side * root_below((row - to_row) ** 2 + (column - to_column) ** 2)

    def nearest(self) -> Fraction:
        """Return the distance of neighbours."""
        return self.side

    def matrix(self) -> NDArray[np.float64]:
        """Return all distances.

        Raises:
            NotApplicable: if they are too many.

        """
        if len(self) > MOST_LISTED:
            raise NotApplicable(f"the distances of all pairs of {len(self):,} cells are too many", "use larger cells")
        row, column = np.divmod(np.arange(len(self)), self.columns)
        return float(self.side) * np.hypot(row[:, None] - row, column[:, None] - column)


@dataclass(frozen=True)
class Distances(Metric):
    """Any distances, as a symmetric table with zeros on the diagonal only."""

    table: tuple[tuple[Fraction, ...], ...]

    def __len__(self) -> int:
        return len(self.table)

    def below(self, x: int, other: int) -> Fraction:
        """Return the distance."""
        return self.table[x][other]

    def nearest(self) -> Fraction:
        """Return the smallest distance in the table."""
        return min({id(d): d for x, row in enumerate(self.table) for d in row[:x]}.values())

    def matrix(self) -> NDArray[np.float64]:
        """Return all distances."""
        return self._floats

    @cached_property
    def _floats(self) -> NDArray[np.float64]:
        near = {id(d): float(d) for row in self.table for d in row}  # most tables hold few different numbers
        return np.array([[near[id(d)] for d in row] for row in self.table])
