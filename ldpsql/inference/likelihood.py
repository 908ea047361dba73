"""The likelihood of counts of reports under a channel.

The log-likelihood per report is f(theta) = sum_z q_z log(theta . a_z) with report shares q and columns a_z of the channel. All
methods take groups along the first axis, so one call serves a GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Ends, Floats, Operator, Ranges, stacked

# How much the weights of rows change the variances of estimates, as sums of squared weights say.
#
# An estimate is locally linear: report z moves it by w_z c_z over the sum of weights, so its variance is that of n reports of
# equal weight, n Kish's number, times sum_z r_z (c_z - c)^2 / sum_z q_z (c_z - c)^2. Here q are the shares of the reports by
# weight, r those by squared weight, and c is the mean of c_z. The factor is one if weights and values are independent.
# Source: Skinner, "Domain means, regression and multivariate analysis", in "Analysis of complex surveys", 1989.

MOST_VALUES = 1024  # for which the contributions of reports are computed
_MOST_CONTRIBUTIONS = 1 << 24  # contributions at a time
_LEAST = 1e-3  # of the factor, which is not negative but for noise


def factor_of_functionals(likelihood: Likelihood, squares: Floats, theta: Floats, c: Floats, variance: Floats) -> Floats:
    """Return by which factor weights change the variance of functionals, shape (groups, functionals).

    Args:
        likelihood: the likelihood of the weighted reports.
        squares: the shares of the reports by squared weight.
        theta: the distribution of each group at which the functionals were estimated.
        c: functionals, see `Operator.functionals`.
        variance: their variances for rows of equal weight.

    """
    each = np.broadcast_to(c, (len(theta), *c.shape[-2:]))
    out = np.empty(variance.shape)
    for i, own in enumerate(each):
        moved = contributions(likelihood.operator, likelihood.shares[i], likelihood.n[i], theta[i], own)
        if moved is None:
            both = np.concatenate([own, own**2], axis=1)
            mean, power = np.split(_centre(likelihood, likelihood.shares[i], theta[i], both), 2)
            other, other_power = np.split(_centre(likelihood, squares[i], theta[i], both), 2)
            out[i] = factor_of_moments(likelihood.n[i] * variance[i], power - mean**2, other_power - 2 * mean * other + mean**2)
        else:
            out[i] = factor_of_moved(moved, likelihood.shares[i], squares[i])
    return out


def factor_of_ranges(likelihood: Likelihood, squares: Floats, theta: Floats, ranges: Ranges, variance: Floats) -> Floats:
    """Return by which factor weights change the variance of shares of ranges, shape (groups, ranges)."""
    operator = likelihood.operator
    if operator.inputs <= MOST_VALUES:
        place = np.arange(operator.inputs)[:, None]
        first, end = (np.atleast_2d(side)[:, None, :] for side in ranges)
        inside = ((place >= first) & (place < end)).astype(np.float64)
        return factor_of_functionals(likelihood, squares, theta, inside if len(inside) > 1 else inside[0], variance)
    share, other = (operator.of_ranges(shares, likelihood.n, theta, ranges)[0] for shares in (likelihood.shares, squares))
    return factor_of_moments(likelihood.n[:, None] * variance, share - share**2, other - 2 * share * other + share**2)


def factor_of_shares(likelihood: Likelihood, squares: Floats, theta: Floats, error: Floats) -> Floats:
    """Return by which factor weights change the variance of the share of each value, shape (groups, values)."""
    operator = likelihood.operator
    if operator.votes:
        low, high = operator.votes
        of_weights, of_squares = (low + (high - low) * operator.invert(shares) for shares in (likelihood.shares, squares))
        own = of_weights * (1.0 - of_weights)
        moved = of_squares * (1.0 - 2 * of_weights) + of_weights**2
        return np.where(own > 0, np.maximum(moved / np.where(own > 0, own, 1.0), _LEAST), 1.0)
    if operator.inputs <= MOST_VALUES and operator.inputs * operator.outputs <= _MOST_CONTRIBUTIONS:
        return factor_of_functionals(likelihood, squares, theta, np.eye(operator.inputs), error**2)
    if operator.large:
        return np.ones_like(error)
    other = operator.invert(squares)
    return factor_of_moments(likelihood.n[:, None] * error**2, theta - theta**2, other - 2 * theta * other + theta**2)


def contributions(operator: Operator, shares: Floats, n: float, theta: Floats, c: Floats) -> Floats | None:
    """Return what each report of a group adds to functionals, shape (reports, functionals); None if that takes too long."""
    if operator.inputs > MOST_VALUES or operator.outputs * c.shape[1] > _MOST_CONTRIBUTIONS:
        return None
    return operator.contributions(shares, float(n), theta, c)


def factor_of_moments(of_report: Floats, sampled: Floats, weighted: Floats) -> Floats:
    """Return by how much weights change a variance, if the noise of a report does not depend on its value.

    Args:
        of_report: n times the variance for rows of equal weight: that of the noise, and of the values.
        sampled: the variance of c over the values.
        weighted: the same by squared weight, about the mean by weight.

    """
    known = np.isfinite(of_report) & (of_report > 0)
    own = np.where(known, of_report, 1.0)
    return np.where(known, np.maximum((own - sampled + weighted) / own, _LEAST), 1.0)


def factor_of_moved(moved: Floats, shares: Floats, squares: Floats) -> Floats:
    """Return by which factor weights change the variance of sums of what reports add, shape (reports, sums).

    Args:
        moved: what each report adds to each sum.
        shares: the shares of the reports by weight.
        squares: their shares by squared weight.

    """
    about = (moved - shares @ moved) ** 2
    own = shares @ about
    return np.where(own > 0, np.maximum(squares @ about / np.where(own > 0, own, 1.0), _LEAST), 1.0)


def _centre(likelihood: Likelihood, shares: Floats, theta: Floats, c: Floats) -> Floats:
    return likelihood.operator.functionals(shares[None], np.ones(1), theta[None], c)[0][0]


_CELLS = 1 << 22  # contributions of reports at a time


class Variable(NamedTuple):
    """A column of a table: its number of values, and which of them are neighbours, as the layout of a likelihood."""

    size: int
    layout: tuple[int, ...] = ()


class Weighted(NamedTuple):
    """Counts of the rows behind weighted reports, and of their squared weights, shape (groups, outputs)."""

    people: Floats
    squares: Floats


@dataclass(frozen=True)
class Likelihood:
    """Counts of reports, shape (groups, outputs), under a channel; every group holds at least one report.

    ``layout`` defines which values are neighbours: (inputs,) if they lie on a line, (rows, columns) on a grid row by row, () if
    they have no order. ``named`` is the value that each report names, if all reports are values. ``variables`` are the
    columns, the last one fastest, if the values are rows of several columns.

    If rows have weights, ``counts`` are sums of these, scaled so that they add up to Kish's number of reports of equal weight,
    and ``weights`` are not None. `interval` and the other methods with errors then use the squared weights.
    """

    operator: Operator
    counts: Floats
    layout: tuple[int, ...] = ()
    named: NDArray[np.int64] | None = None
    variables: tuple[Variable, ...] = ()
    weights: Weighted | None = None

    @cached_property
    def n(self) -> Floats:
        """Number of reports of each group."""
        total: Floats = self.counts.sum(axis=-1)
        return total

    @cached_property
    def shares(self) -> Floats:
        """Share q_z of every report in its group."""
        return self.counts / self.n[:, None]

    def log_likelihood(self, theta: Floats) -> Floats:
        """Return L(theta) = n f(theta) for each group; NaN if theta gives an observed report probability zero."""
        expected = self.operator.forward(theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(self.counts > 0, np.log(np.where(expected > 0, expected, np.nan)), 0.0)
        return np.einsum("gz,gz->g", self.counts, logs)

    def gradient(self, theta: Floats) -> Floats:
        """Return g_x = sum_z q_z a_xz / P_theta(z); one step of IBU is theta * g (ElSalamouny, Palamidessi, eq. 6)."""
        expected = self.operator.forward(theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.operator.adjoint(np.where(self.counts > 0, self.shares / expected, 0.0))

    def gap(self, theta: Floats) -> Floats:
        """Return G = max_x g_x - 1, for which max L - L(theta) <= n log(1+G), whatever theta on the simplex is.

        f is concave, so f(t) - f(theta) <= log(sum_z q_z P_t(z)/P_theta(z)) = log(t . g) <= log(max g).
        """
        gap: Floats = np.nan_to_num(self.gradient(theta).max(axis=-1) - 1.0, nan=np.inf)
        return gap

    def misfit(self, theta: Floats) -> Floats:
        """Return G^2 = 2 sum_z n_z log(q_z / P_theta(z)), the likelihood-ratio statistic against any distribution."""
        seen, ratio = self.counts > 0, np.ones_like(self.counts)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            np.divide(self.shares, self.operator.forward(theta), out=ratio, where=seen)
            np.log(ratio, out=ratio, where=seen)
        return 2.0 * np.nan_to_num(np.einsum("gz,gz->g", self.counts, ratio), nan=np.inf, posinf=np.inf)

    def named_shares(self) -> Floats | None:
        """Return the share of the reports that name each value, (groups, inputs); None if reports are not values."""
        if self.named is None:
            return None
        size = self.operator.inputs
        return np.stack([np.bincount(self.named, shares, size).astype(np.float64) for shares in self.shares])

    def group(self, i: int) -> Likelihood:
        """Return the likelihood of one group."""
        weights = None if self.weights is None else Weighted(*(part[i : i + 1] for part in self.weights))
        return replace(self, counts=self.counts[i : i + 1], weights=weights)

    @property
    def of_people(self) -> Likelihood:
        """The likelihood of the rows without their weights, which follows the law of the channel."""
        return self if self.weights is None else self.with_counts(self.weights.people)

    def with_counts(self, counts: Floats) -> Likelihood:
        """Return the likelihood of other counts, without weights, under the same channel."""
        return replace(self, counts=counts, weights=None)

    def with_operator(self, operator: Operator) -> Likelihood:
        """Return the likelihood of the same counts under another channel, whose values have no order."""
        return Likelihood(operator, self.counts)

    @cached_property
    def squares(self) -> Floats:
        """Share of every report in the squared weights of its group: its share if all weights are equal."""
        if self.weights is None:
            return self.shares
        return np.asarray(self.weights.squares / self.weights.squares.sum(axis=1, keepdims=True))

    def law(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the chances of all reports by weight and by squared weight; their shares if not all reports are listed."""
        if not self.operator.complete:
            return self.shares, self.squares
        chances, seen = self.operator.forward(theta), self.shares > 0
        return chances, chances * np.divide(self.squares, self.shares, out=np.ones_like(chances), where=seen)

    def interval(self, theta: Floats, z: float) -> Ends:
        """Return `Operator.interval`."""
        return self.widened(theta, self.operator.interval(self.shares, self.n, theta, z))

    def inverted_interval(self, theta: Floats, z: float) -> Ends:
        """Return `Operator.inverted_interval`."""
        return self.widened(theta, self.operator.inverted_interval(self.shares, self.n, theta, z))

    def widened(self, theta: Floats, ends: Ends) -> Ends:
        """Return errors and intervals of shares as the weights of the rows change them."""
        if self.weights is None:
            return ends
        error, low, high = ends
        factor = np.sqrt(factor_of_shares(self, self.squares, theta, error))
        middle, half = (low + high) / 2, (high - low) / 2 * factor
        return error * factor, middle - half, middle + half

    def functionals(self, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return `Operator.functionals`."""
        centre, variance = self.operator.functionals(self.shares, self.n, theta, c)
        if self.weights is not None:
            variance = variance * factor_of_functionals(self, self.squares, theta, c, variance)
        return centre, variance

    def inverted_variances(self, theta: Floats, c: Floats) -> Floats | None:
        """Return the variances of c'v for the inverted shares v, divided by their sum; for shapes see `Operator.functionals`.

        Returns None if `functionals` say it. With few reports the sum is noisy, and so is its ratio: of the deviations e of c'v
        and d of the sum from their expectations, e (1 - d) has the variance V(e)(1 + 3 V(d)) + 5 C(e, d)^2 to second order.

        Args:
            theta: the distribution of each group at which the errors are computed.
            c: functionals.

        """
        ones = self.operator.pulled(np.ones((self.operator.inputs, 1)))
        if ones is None:
            return None
        chances, squares = self.law(theta)
        free = self.n if self.operator.complete else self.n - 2.0  # two numbers were fitted: the mean, and the sum
        known, free = free > 0, np.where(free > 0, free, 1.0)
        out, step = np.empty((len(theta), c.shape[-1])), max(1, _CELLS // self.operator.outputs)
        for start in range(0, c.shape[-1], step):
            some = c[..., start : start + step]
            about = np.einsum("gx,gxm->gm", theta, np.broadcast_to(some, (len(theta), *some.shape[-2:])))
            pulled = np.asarray(self.operator.pulled(some))
            for i, own in enumerate(np.broadcast_to(pulled, (len(theta), *pulled.shape[-2:]))):
                moved, total = own - ones * about[i], ones - chances[i] @ ones
                moved = moved - chances[i] @ moved
                own_sum, both = squares[i] @ total**2 / free[i], squares[i] @ (total * moved) / free[i]
                out[i, start : start + step] = squares[i] @ moved**2 / free[i] * (1 + 3 * own_sum) + 5 * both**2
        return np.where(known[:, None], out, np.inf)

    def of_ranges(self, theta: Floats, ranges: Ranges) -> tuple[Floats, Floats]:
        """Return `Operator.of_ranges`."""
        centre, variance = self.operator.of_ranges(self.shares, self.n, theta, ranges)
        if self.weights is not None:
            variance = variance * factor_of_ranges(self, self.squares, theta, ranges, variance)
        return centre, variance

    def covariance(self, theta: Floats) -> Floats:
        """Return the covariance of the debiased shares of one group; see `Operator.covariance`."""
        own = self.operator.covariance(self.shares[0], theta) / float(self.n[0])
        if self.weights is None:
            return own
        factor = np.sqrt(factor_of_shares(self, self.squares, theta[None], np.sqrt(own.diagonal())[None])[0])
        return own * np.outer(factor, factor)


def joined(parts: Sequence[Likelihood]) -> Likelihood:
    """Return the likelihood of one group's reports under several channels, from those of each channel."""
    kept = [part for part in parts if part.counts.any()] or parts[:1]
    if len(kept) == 1:
        return kept[0]
    totals = np.array([level.n[0] for level in kept])
    stack = stacked([level.operator for level in kept], totals / totals.sum())
    layouts = {level.layout for level in kept}
    named = [level.named for level in kept if level.named is not None]
    return Likelihood(
        stack,
        np.concatenate([level.counts for level in kept], axis=1),
        layouts.pop() if len(layouts) == 1 else (),
        np.concatenate(named) if len(named) == len(kept) else None,
        kept[0].variables,
    )
