"""A test of whether two columns of a table are independent of each other, and their mutual information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidParameter, NotApplicable
from ldpsql.estimates.conditions import columns_named, groups_of
from ldpsql.estimates.measures import TableFunctional
from ldpsql.estimators.tables import mutual_information
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import normalised, simplex_projection

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

MOST_CELLS = 1500  # as many as an operator computes a covariance for
_NONE = 1e-9  # of the largest eigenvalue: a direction that the reports say nothing about


class Independence(NamedTuple):
    """The tests of some groups, each of shape (groups,).

    Args:
        mutual_information: of the estimated table, in bits; noise alone makes it positive.
        statistic: how far the table is from the product of its margins, in units of its errors.
        degrees: the statistic's expectation if the columns are independent; 0 if the reports say nothing about them together,
            and then the statistic and the p-value are NaN.
        p_value: the chance of a statistic as large as this if they are.

    """

    mutual_information: Floats
    statistic: Floats
    degrees: Floats
    p_value: Floats


@dataclass(frozen=True)
class Columns(TableFunctional):
    """Two columns of a table, by their places.

    Raises:
        InvalidParameter: unless there are two.

    """

    places: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.places) != 2:
            raise InvalidParameter("a test of independence needs two columns", "columns := ['city', 'age']")

    @property
    def touched(self) -> frozenset[int]:
        return frozenset(self.places)

    def among(self, places: Sequence[int]) -> Self:
        return replace(self, places=tuple(map(places.index, self.places)))

    def margin(self, values: Domain) -> tuple[Floats, tuple[int, int]]:
        """Return which cell of the two columns' table each cell belongs to, shape (cells, cells of the two), and its shape."""
        both, own = groups_of(values, self.places)
        first, second = both.shape
        return (own[:, None] == np.arange(len(both))).astype(np.float64), (first, second)

    def measure(self, estimates: Estimates) -> Independence:  # type: ignore[override]  # several numbers
        """Return the test of every group.

        The table of the two columns is debiased one step from the distribution in which they are independent, and its distance
        from the product of its margins is measured in the errors of that distribution: the score test. Its law is a chi-square
        with the statistic's own mean and variance, of which the second counts reports that are rare.

        Raises:
            NotApplicable: if the table has too many cells.

        """
        operator = estimates.likelihood.operator
        if operator.inputs > MOST_CELLS:
            raise NotApplicable(
                f"a test of independence takes at most {MOST_CELLS:,} cells, and this table has {operator.inputs:,}",
                "test reports of the two columns only: {city: report.city, age: report.age}, with a row mechanism of their own",
            )
        gathered, shape = self.margin(estimates.values)
        tests = [_tested(estimates, group, gathered, shape) for group in range(len(estimates.fit.theta))]
        return Independence(*np.array(tests).T)


def two_columns(values: Domain, names: object) -> Columns:
    """Return two columns by their names; None stands for both of a table of two."""
    both = names is None and isinstance(values, Product)
    return Columns(tuple(range(len(values.names))) if both else columns_named(values, names))  # type: ignore[attr-defined]


def _tested(estimates: Estimates, group: int, gathered: Floats, shape: tuple[int, int]) -> tuple[float, ...]:
    likelihood, theta = estimates.likelihood.group(group), simplex_projection(estimates.fit.theta[group])
    if likelihood.weights is not None:
        raise NotApplicable("rows with weights cannot be tested for independence", "leave out weight")
    operator, n = likelihood.operator, float(likelihood.n[0])
    null = _independent(theta, gathered, shape)
    covariance = operator.covariance(likelihood.shares[0], null)
    information = max(0.0, mutual_information(normalised(theta @ gathered).reshape(shape)) / np.log(2))
    if not np.isfinite(covariance).all():
        return information, np.nan, 0, np.nan
    chances = np.maximum(operator.forward(null[None])[0], 1e-300)
    scores = operator.matrix() / chances - 1.0  # of each report, shape (cells, reports)
    table = null @ gathered  # now the derivative of its distance from the product of its margins
    rows, columns = table.reshape(shape).sum(axis=1), table.reshape(shape).sum(axis=0)
    first = np.kron(np.eye(shape[0]), np.outer(columns, np.ones(shape[1])))
    second = np.kron(np.outer(rows, np.ones(shape[0])), np.eye(shape[1]))
    direction = np.asarray(np.eye(len(table)) - first - second) @ gathered.T
    tangent = direction @ covariance
    spread = tangent @ direction.T
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    kept = values > _NONE * max(values[-1], 1e-300)
    whitened = (vectors[:, kept] / np.sqrt(values[kept])).T @ tangent @ scores
    weights = chances if operator.complete else likelihood.shares[0]
    return _judged(information, whitened, likelihood.shares[0], weights, n)


def _judged(information: float, whitened: Floats, shares: Floats, weights: Floats, n: float) -> tuple[float, ...]:
    """Return the test from the whitened scores of reports, shape (degrees, reports)."""
    from scipy.special import chdtrc  # noqa: PLC0415  # slow to import

    degrees = len(whitened)
    if not degrees:
        return information, np.nan, 0, np.nan
    statistic = n * float(((whitened @ shares) ** 2).sum())
    fourth = float((weights / weights.sum()) @ (whitened**2).sum(axis=0) ** 2)
    variance = max(2 * degrees + (fourth - degrees**2 - 2 * degrees) / n, degrees / 2)
    scale = variance / (2 * degrees)
    return information, statistic, degrees, float(chdtrc(degrees / scale, statistic / scale))


def _independent(theta: Floats, gathered: Floats, shape: tuple[int, int]) -> Floats:
    """Return the distribution with the same margins in which the two columns are independent, others as they are given them."""
    table = theta @ gathered
    product = np.outer(table.reshape(shape).sum(axis=1), table.reshape(shape).sum(axis=0)).ravel()
    rest = np.divide(1.0, table, out=np.zeros_like(table), where=table > 0)
    own = theta * (gathered @ (product * rest))
    empty = (table <= 0) & (product > 0)
    if empty.any():  # nothing is known of the other columns there: they are as in any cell
        own += gathered @ np.where(empty, product / gathered.sum(axis=0), 0.0)
    return np.asarray(own / own.sum())
