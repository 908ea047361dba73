"""The channel with the smallest expected loss under epsilon-LDP.

Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 2016: a linear programme finds the channel.
With an expected loss it needs no list of extreme points: reports with the same best answer can be merged into that value.
"""

from functools import cached_property
from math import exp
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from ldpsql.mechanisms import (
    CategoricalMechanism,
    Cost,
    DenseChannel,
    InvalidParameter,
    Mechanism,
    NumberField,
    PriorField,
    from_doubles,
    hookimpl,
    reduced,
)

_RARE = 2.0**-40  # below it a report is left out
_LARGEST = 16  # the solver's tolerance is 1e-7, about e^-16
_PROGRAMME = Cost(1e-4, 2000)  # for each pair of values
Floats = NDArray[np.float64]


def _square(table: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    if any(len(row) != len(table) for row in table):
        raise ValueError("must be a square table")
    if any(not 0 <= loss <= 1e12 for row in table for loss in row):
        raise ValueError("must hold numbers from 0 to 10^12")
    return table


def _rows(rows: Any) -> tuple[tuple[Any, ...], ...]:
    if not isinstance(rows, list | tuple) or not all(isinstance(row, list | tuple) for row in rows):
        raise ValueError("must be a list of rows of numbers")
    return tuple(tuple(row) for row in rows)


LossField = Annotated[
    tuple[tuple[NumberField, ...], ...],
    BeforeValidator(_rows),
    AfterValidator(_square),
    PlainSerializer(lambda table: [list(row) for row in table]),
]


class Optimal(CategoricalMechanism):
    """The epsilon-LDP channel from values to values with the smallest expected loss under a public prior.

    The loss of reporting y for x is row x, column y of ``loss``; by default it is 1 for each wrong value. A linear programme
    finds the channel. `bounds` returns its expected loss and a lower bound on that of any epsilon-LDP channel. The best channel
    often reports few of the values; then its reports cannot tell every distribution from every other, as `ldp.diagnose` shows.
    If several channels are optimal, another version of SciPy may choose another one: use the same on all machines.

    >>> optimal = Optimal(epsilon=1, domain=["a", "b"], prior=[1, 1])
    >>> optimal.channel().probabilities().round(3)[0].tolist()
    [0.731, 0.269]
    >>> [round(bound, 3) for bound in optimal.bounds()]
    [0.269, 0.269]
    """

    name = "optimal"
    prior: PriorField = Field(description="shares or counts of the values, public: for example an earlier estimate")
    loss: LossField | None = Field(None, description="loss of each report, one row for each value; by default 1 if it is wrong")

    def channel(self) -> DenseChannel:
        """Return the best channel in whole numbers."""
        best, _ = self._solved
        if np.count_nonzero(best.any(axis=0)) < 2:
            raise InvalidParameter(
                "the best channel gives the same report for every value", "use a larger epsilon, or a mechanism without a prior"
            )
        return from_doubles(best, self.epsilon.value)

    def bounds(self) -> tuple[float, float]:
        """Return the expected loss of the channel, and a lower bound of that of any channel with this epsilon."""
        return float((self._costs * self.channel().probabilities()).sum()), self._solved[1]

    @cached_property
    def _costs(self) -> Floats:
        """The loss of each report, row by value, times the share of the value."""
        size = len(self.domain)
        if len(self.prior) != size or (self.loss is not None and len(self.loss) != size):
            raise InvalidParameter("prior and loss must have one number or row for each value of the domain", self.signature())
        if self.epsilon.value > _LARGEST:
            raise InvalidParameter(
                f"optimal takes an epsilon of at most {_LARGEST}", "with more, use krr: hardly any report is wrong"
            )
        (_PROGRAMME * size**2).check("the linear programme of this mechanism", "use fewer values")
        total = sum(self.prior)
        shares = np.array([float(p / total) for p in self.prior])
        return np.asarray(shares[:, None] * (1.0 - np.eye(size) if self.loss is None else np.array(self.loss)))

    @cached_property
    def _solved(self) -> tuple[Floats, float]:
        """The best channel in doubles, and the lower bound."""
        costs, most = self._costs, exp(reduced(self.epsilon.value))
        scale = float(costs.max()) or 1.0
        least, price = programme(costs / scale, most)
        return filled(least, costs, most), scale * lower_bound(costs / scale, price, exp(self.epsilon))


def programme(costs: Floats, most: float) -> tuple[Floats, Floats]:
    """Return the least probability of each report over all values, and the dual price of each row, of the best channel.

    The variables are the least probability m(y) of each report, and what P(y|x) exceeds it by, at most (most - 1) m(y).
    """
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import
    from scipy.sparse import coo_array  # noqa: PLC0415

    size = len(costs)
    pair = np.arange(size * size)
    x, y = np.divmod(pair, size)
    above = coo_array(
        (np.repeat([1.0, 1.0 - most], len(pair)), (np.tile(pair, 2), np.concatenate([pair, len(pair) + y]))),
        shape=(len(pair), len(pair) + size),
    )
    total = coo_array(
        (np.ones(2 * len(pair)), (np.tile(x, 2), np.concatenate([pair, len(pair) + y]))), shape=(size, len(pair) + size)
    )
    solved = linprog(
        np.concatenate([costs.ravel(), costs.sum(axis=0)]),
        A_ub=above.tocsr(), b_ub=np.zeros(len(pair)), A_eq=total.tocsr(), b_eq=np.ones(size), method="highs",
    )  # fmt: skip
    if solved.x is None:
        raise InvalidParameter("the linear programme of this mechanism was not solved", "use fewer values, or another epsilon")
    return np.asarray(solved.x[len(pair) :]), np.asarray(solved.eqlin.marginals)


def filled(least: Floats, costs: Floats, most: float) -> Floats:
    """Return the cheapest channel with these least probabilities: P(y|x) lies between least(y) and most * least(y).

    Each row spends what is left of 1 on its cheapest reports, so a solver's tolerance does not reach the ratios.
    """
    least = np.where(least > _RARE, least, 0.0)
    least *= np.clip(least.sum(), 1.0 / most, 1.0) / least.sum()
    order = np.argsort(costs, axis=1, kind="stable")
    reached = np.minimum(np.cumsum((most - 1.0) * least[order], axis=1), 1.0 - least.sum())
    above = np.empty_like(costs)
    np.put_along_axis(above, order, np.diff(reached, axis=1, prepend=0.0), axis=1)
    return np.asarray(least + above)


def lower_bound(costs: Floats, price: Floats, most: float) -> float:
    """Return a bound below the cost of any channel with ratios up to ``most``, from any price of each row.

    A report of least probability m costs, beyond the prices, at least m sum_x min(r, most r) with r = costs - price. Lowering
    prices by as much as the smallest of these sums is negative makes the prices a bound, whoever computed them.
    """
    left = costs - price[:, None]
    return float(price.sum() + min(0.0, np.minimum(left, most * left).sum(axis=0).min()))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the channel with the smallest expected loss."""
    return [Optimal]
