"""Exact epsilon, rigorous bounds of its exponential, metrics, and the claims that a mechanism can make.

No decision here depends on a float: an epsilon is a decimal number stored as a fraction, e^epsilon is bounded by a fraction,
and whole numbers compare a claim with a channel.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.exact import exp_below
from ldpsql.errors import InvalidEpsilon, NotApplicable, NotPrivate

# Finite metrics: exact distances of values, or exact lower bounds of them.

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
        return Fraction(1)

    def matrix(self) -> NDArray[np.float64]:
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
        return self.table[x][other]

    def nearest(self) -> Fraction:
        """Return the smallest distance in the table."""
        return min({id(d): d for x, row in enumerate(self.table) for d in row[:x]}.values())

    def matrix(self) -> NDArray[np.float64]:
        return self._floats

    @cached_property
    def _floats(self) -> NDArray[np.float64]:
        near = {id(d): float(d) for row in self.table for d in row}  # most tables hold few different numbers
        return np.array([[near[id(d)] for d in row] for row in self.table])


_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,2})(\.[0-9]{1,12})?", re.ASCII)


@dataclass(frozen=True, order=True)
class Epsilon:
    """An exact privacy parameter: a decimal number above 0 and at most 32.

    >>> Epsilon.parse("0.1").value
    Fraction(1, 10)
    """

    value: Fraction
    maximum: ClassVar[int] = 32

    @classmethod
    def parse(cls, given: object) -> Epsilon:
        """Return the epsilon of a string, an int, a Decimal or a float (by its shortest decimal text).

        Raises:
            InvalidEpsilon: unless it is a plain decimal number in (0, 32] with at most 12 decimals.

        """
        if isinstance(given, Epsilon):
            return given
        plain = isinstance(given, str | int | float | Decimal) and not isinstance(given, bool)
        text = str(given) if plain else ""
        if not _DECIMAL.fullmatch(text):
            raise InvalidEpsilon(
                "epsilon must be a plain decimal number such as 1 or 0.5",
                f"above 0, at most {cls.maximum}, no exponent, at most 12 decimals: in SQL round(ln(3), 12)",
            )
        value = Fraction(text)
        if not 0 < value <= cls.maximum:
            raise InvalidEpsilon(f"epsilon must be above 0 and at most {cls.maximum}", "1 is a common choice")
        return cls(value)

    def exp_below(self) -> Fraction:
        """Return a rational lower bound of e^epsilon."""
        return exp_below(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        whole, decimals = divmod(self.value, 1)
        digits = str(int(decimals * 10**12)).rjust(12, "0").rstrip("0")
        return f"{whole}.{digits}" if digits else str(whole)


@dataclass(frozen=True)
class PureLdp:
    """Epsilon-LDP: P(y|x) <= e^epsilon P(y|x') for all values x, x' and all reports y.

    Source: Kasiviswanathan, Lee, Nissim, Raskhodnikova, Smith, "What can we learn privately?", 2008.
    """

    epsilon: Epsilon
    delta: ClassVar[Fraction] = Fraction(0)

    @property
    def limit(self) -> Fraction:
        """The largest admissible ratio, rounded down."""
        return self.epsilon.exp_below()

    def __str__(self) -> str:
        return f"{self.epsilon}-LDP"


@dataclass(frozen=True)
class MetricLdp:
    """Metric (d_X) privacy: P(y|x) <= e^(epsilon d(x, x')) P(y|x'), epsilon per unit of distance.

    Source: Chatzikokolakis, Andres, Bordenabe, Palamidessi, "Broadening the scope of differential privacy using metrics",
    PETS 2013; on the plane it is geo-indistinguishability.
    """

    epsilon: Epsilon
    metric: Metric
    delta: ClassVar[Fraction] = Fraction(0)

    def limit(self, x: int, other: int) -> Fraction:
        """Return the largest admissible ratio of two values, rounded down."""
        return exp_below(self.epsilon.value * self.metric.below(x, other))

    def __str__(self) -> str:
        return f"{self.epsilon} per unit of distance"


@dataclass(frozen=True)
class ApproximateLdp:
    """(epsilon, delta)-LDP: P(Y in S|x) <= e^epsilon P(Y in S|x') + delta for all values and all sets S of reports."""

    epsilon: Epsilon
    delta: Fraction

    @property
    def limit(self) -> Fraction:
        """The ratio beyond which probability counts towards delta, rounded down."""
        return self.epsilon.exp_below()

    def __str__(self) -> str:
        return f"({self.epsilon}, {float(self.delta):g})-LDP"


@dataclass(frozen=True)
class NoClaim:
    """No privacy: others drew the reports, and nothing is drawn. No ledger can charge for it."""

    def __str__(self) -> str:
        return "no claim of privacy: for estimates only"


Claim: TypeAlias = PureLdp | MetricLdp | ApproximateLdp


# Copies of a mechanism's claim, made of objects of the core that nobody else holds; see also `ldpsql.mechanisms.certified`.

T = TypeVar("T")


def of_core(kind: type) -> bool:
    """Return whether a module of ldpsql defines a class; attributes of the class cannot fake it."""
    module, name = kind.__module__, kind.__name__
    if type(module) is not str or type(name) is not str or not module.startswith("ldpsql."):
        return False
    return getattr(sys.modules.get(module), name, None) is kind


def own_claim(claim: object) -> Claim | NoClaim:
    """Return a copy of a claim.

    Raises:
        NotPrivate: unless it, its epsilon and its metric have types of the core.

    """
    if type(claim) is PureLdp:
        return PureLdp(own_epsilon(claim.epsilon))
    if type(claim) is MetricLdp:
        return MetricLdp(own_epsilon(claim.epsilon), _own_metric(claim.metric))
    if type(claim) is ApproximateLdp:
        return ApproximateLdp(own_epsilon(claim.epsilon), own_fraction(claim.delta))
    if type(claim) is NoClaim:
        return NoClaim()
    raise NotPrivate("a claim must be one of the core's", "see ldpsql.privacy.claims")


def own_epsilon(epsilon: object) -> Epsilon:
    """Return a copy of an epsilon.

    Raises:
        NotPrivate: unless it is an `Epsilon` above 0 and at most the maximum.

    """
    value = own_fraction(epsilon.value) if type(epsilon) is Epsilon else Fraction(0)
    if not 0 < value <= Epsilon.maximum:
        raise NotPrivate(
            f"epsilon must be an Epsilon above 0 and at most {Epsilon.maximum}", "see ldpsql.privacy.claims.Epsilon"
        )
    return Epsilon(value)


def own_fraction(number: object) -> Fraction:
    """Return a copy of a fraction.

    Raises:
        NotPrivate: unless it is a fraction of plain whole numbers.

    """
    parts = (number.numerator, number.denominator) if type(number) is Fraction else ()
    if not parts or not all(type(part) is int for part in parts):
        raise NotPrivate("the numbers of a claim must be plain fractions", "see fractions.Fraction")
    return Fraction(*parts)


def _own_metric(metric: Metric) -> Metric:
    kind = core_type(metric, Metric, "a metric")
    if type(metric) is Distances:  # up to 16 million numbers, which are not read again after the comparison
        return Distances(_own_table(metric.table))
    return kind(**{part.name: _own_size(getattr(metric, part.name)) for part in fields(cast("Any", kind))})


def _own_size(number: object) -> int | Fraction:
    return number if type(number) is int else own_fraction(number)


def _own_table(table: object) -> tuple[tuple[Fraction, ...], ...]:
    if type(table) is not tuple or not all(type(row) is tuple and len(row) == len(table) for row in table):
        raise NotPrivate("distances must be a square table", "a tuple of tuples of fractions")
    if not all(type(d) is Fraction for row in table for d in row):
        raise NotPrivate("distances must be plain fractions", "see fractions.Fraction")
    return table


def core_type(thing: object, base: type[T], noun: str) -> type[T]:
    """Return the type of an object, which must be a class of the core derived from ``base``.

    Raises:
        NotPrivate: if it is any other class.

    """
    kind = type(thing)
    if not of_core(kind) or not issubclass(kind, base):
        raise NotPrivate(f"{noun} must have exactly a type of the core", f"no class derived from {base.__name__}")
    return kind
