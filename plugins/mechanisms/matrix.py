"""Any finite channel, given as a table of probabilities."""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer

from ldpsql.mechanisms import (
    Channel,
    Cost,
    Domain,
    DomainField,
    Epsilon,
    EpsilonField,
    InvalidParameter,
    Mechanism,
    NoClaim,
    NotPrivate,
    PureLdp,
    UndrawnChannel,
    floor_mixing,
    hookimpl,
    log_ratio,
    over_one_denominator,
)

_LONGEST = 1000
_CELL = Cost(3e-5, 1000)
_HUGE_EXPONENT = re.compile(r"e[+-]?[0-9_]{4}", re.IGNORECASE)
_ROUNDING, _NORMAL = 1e-12, 1e-290  # relative, and above it: a fraction becomes a double with an error below 2e-16
Rows = tuple[tuple[Fraction, ...], ...]


def _exact(text: str) -> Fraction:
    """Return a probability, from its decimal text or a fraction such as '1/3'."""
    if len(text) > _LONGEST or _HUGE_EXPONENT.search(text):
        raise InvalidParameter(
            f"a probability may have at most {_LONGEST} characters, and an exponent of 3 digits", "write it as '1/3' or 0.333"
        )
    try:
        exact = Fraction(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        exact = Fraction(-1)
    if not 0 <= exact <= 1:
        raise InvalidParameter("a channel must hold probabilities between 0 and 1", "fractions such as '1/3' are exact")
    return exact


def _rows(table: Any) -> Rows:
    """Return a table of probabilities with every row scaled to sum to exactly one."""
    if not isinstance(table, list | tuple) or not all(isinstance(row, list | tuple) for row in table):
        raise InvalidParameter("a channel must be a list of rows of probabilities", "one row for each value")
    (_CELL * sum(map(len, table))).check("reading this table of probabilities", "use fewer values or reports")
    exact = cache(_exact)  # most tables hold few different numbers
    rows = [[p if type(p) is Fraction and 0 <= p <= 1 else exact(str(p)) for p in row] for row in table]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        raise InvalidParameter("the rows of a channel must have the same length, at least 2", "one column for each report")
    share = cache(Fraction)  # equal numbers are one object
    return tuple(_scaled(row, share) for row in rows)


def _scaled(row: list[Fraction], share: Callable[[int, int], Fraction]) -> tuple[Fraction, ...]:
    """Return a row scaled to sum to exactly one."""
    parts, whole = over_one_denominator(row)
    total = sum(parts)
    if abs(total - whole) * 10**9 > whole:
        raise InvalidParameter("every row of a channel must sum to 1", "within 1e-9; the rest is scaled away")
    return tuple(row) if total == whole else tuple(share(part, total) for part in parts)


def _ends(column: list[Fraction], rough: NDArray[np.float64]) -> Iterator[Fraction]:
    """Yield the numbers that may be the largest or the smallest: the others are closer to the middle than doubles err."""
    high, low = rough.max() * (1 - _ROUNDING), rough.min() * (1 + _ROUNDING)
    near = column if low < _NORMAL else [column[x] for x in np.flatnonzero((rough >= high) | (rough <= low))]
    yield from {id(p): p for p in near}.values()


RowsField = Annotated[Rows, BeforeValidator(_rows), PlainSerializer(lambda rows: [[str(p) for p in row] for row in rows])]


class Matrix(Mechanism):
    """Any finite channel: row x holds the probabilities of the reports given value x.

    Epsilon is certified from the rows; if one is declared, the rows must keep it. The rows are rounded to whole numbers by
    floor mixing, which moves a probability by less than 1e-9 at any epsilon above 1e-8.

    >>> Matrix(domain=["no", "yes"], rows=[["3/4", "1/4"], ["1/4", "3/4"]]).claim().epsilon
    Epsilon(value=Fraction(1098612288669, 1000000000000))
    """

    name = "matrix"
    sql_reports = Domain.sql_given("reports", "domain")
    domain: DomainField = Field(description="the values that may occur, in the order of the rows")
    rows: RowsField = Field(
        description="probabilities of at most 1,000 characters, one row for each value, one column for each report"
    )
    epsilon: EpsilonField | None = Field(None, description="the claim; by default the smallest that the rows keep")
    reports: DomainField | None = Field(None, description="the reports, in the order of the columns; by default the domain")

    def alphabet(self) -> Domain:
        """Return the declared reports, else the domain."""
        return self.reports or self.domain

    def claim(self) -> PureLdp:
        """Return the declared epsilon, else the smallest one that the rows keep, rounded up to 12 decimals."""
        return PureLdp(self.epsilon or self._kept)

    @cached_property
    def _kept(self) -> Epsilon:
        near = {id(p): float(p) for row in self.rows for p in row}
        rough = np.array([[near[id(p)] for p in row] for row in self.rows]).T
        ends = [list(_ends(list(column), own)) for column, own in zip(zip(*self.rows, strict=True), rough, strict=True)]
        columns = [(max(column), min(column)) for column in ends]
        if any(low == 0 < high for high, low in columns):
            raise NotPrivate("some report rules a value out: these rows keep no finite epsilon", "replace zeros")
        widest = max(high / low for high, low in columns if high)
        return Epsilon.parse(f"{log_ratio(widest) + 1e-12:.12f}")

    def channel(self) -> Channel:
        """Return the rows in whole numbers."""
        return floor_mixing(self.rows, self._kept.value)


class WithoutPrivacy(Mechanism):
    """What others drew without a claim of privacy: estimates can be made from the reports, and nothing is ever drawn.

    A published PRAM matrix, which may have zeros, or a survey with forced answers: row x holds the probabilities of the
    reports given value x. They are rounded to multiples of 2**-64; zeros stay zeros.

    Source: Gouweleeuw, Kooiman, Willenborg, de Wolf, "Post randomisation for statistical disclosure control: theory and
    implementation", Journal of Official Statistics 1998.

    >>> forced = WithoutPrivacy(domain=["no", "yes"], rows=[["5/6", "1/6"], [0, 1]])
    >>> str(forced.claim())
    'no claim of privacy: for estimates only'
    """

    name = "not_private"
    sql_reports = Domain.sql_given("reports", "domain")
    domain: DomainField = Field(description="the values that may occur, in the order of the rows")
    rows: RowsField = Field(description="probabilities, one row for each value, one column for each report; zeros are allowed")
    reports: DomainField | None = Field(None, description="the reports, in the order of the columns; by default the domain")

    def alphabet(self) -> Domain:
        """Return the declared reports, else the domain."""
        return self.reports or self.domain

    def claim(self) -> NoClaim:
        """Return that there is none."""
        return NoClaim()

    def channel(self) -> Channel:
        """Return the rows in whole numbers."""
        return UndrawnChannel.of(self.rows)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer any finite channel, and any that is only estimated from."""
    return [Matrix, WithoutPrivacy]
