"""How much the weights of rows change the variances of estimates, as sums of squared weights say.

An estimate is locally linear: report z moves it by w_z c_z over the sum of weights, so its variance is that of n reports of
equal weight, n Kish's number, times sum_z r_z (c_z - c)^2 / sum_z q_z (c_z - c)^2. Here q are the shares of the reports by
weight, r those by squared weight, and c is the mean of c_z. The factor is one if weights and values are independent.
Source: Skinner, "Domain means, regression and multivariate analysis", in "Analysis of complex surveys", 1989.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ldpsql.inference.operators import Floats, Operator, Ranges

if TYPE_CHECKING:
    from ldpsql.inference.likelihood import Likelihood

MOST_VALUES = 1024  # for which the contributions of reports are computed
_CELLS = 1 << 24  # contributions at a time
_LEAST = 1e-3  # of the factor, which is not negative but for noise


def of_functionals(likelihood: Likelihood, squares: Floats, theta: Floats, c: Floats, variance: Floats) -> Floats:
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
            out[i] = of_moments(likelihood.n[i] * variance[i], power - mean**2, other_power - 2 * mean * other + mean**2)
        else:
            out[i] = ratio(moved, likelihood.shares[i], squares[i])
    return out


def of_ranges(likelihood: Likelihood, squares: Floats, theta: Floats, ranges: Ranges, variance: Floats) -> Floats:
    """Return by which factor weights change the variance of shares of ranges, shape (groups, ranges)."""
    operator = likelihood.operator
    if operator.inputs <= MOST_VALUES:
        place = np.arange(operator.inputs)[:, None]
        first, end = (np.atleast_2d(side)[:, None, :] for side in ranges)
        inside = ((place >= first) & (place < end)).astype(np.float64)
        return of_functionals(likelihood, squares, theta, inside if len(inside) > 1 else inside[0], variance)
    share, other = (operator.of_ranges(shares, likelihood.n, theta, ranges)[0] for shares in (likelihood.shares, squares))
    return of_moments(likelihood.n[:, None] * variance, share - share**2, other - 2 * share * other + share**2)


def of_shares(likelihood: Likelihood, squares: Floats, theta: Floats, error: Floats) -> Floats:
    """Return by which factor weights change the variance of the share of each value, shape (groups, values)."""
    operator = likelihood.operator
    if operator.votes:
        low, high = operator.votes
        of_weights, of_squares = (low + (high - low) * operator.invert(shares) for shares in (likelihood.shares, squares))
        own = of_weights * (1.0 - of_weights)
        moved = of_squares * (1.0 - 2 * of_weights) + of_weights**2
        return np.where(own > 0, np.maximum(moved / np.where(own > 0, own, 1.0), _LEAST), 1.0)
    if operator.inputs <= MOST_VALUES and operator.inputs * operator.outputs <= _CELLS:
        return of_functionals(likelihood, squares, theta, np.eye(operator.inputs), error**2)
    if operator.large:
        return np.ones_like(error)
    other = operator.invert(squares)
    return of_moments(likelihood.n[:, None] * error**2, theta - theta**2, other - 2 * theta * other + theta**2)


def contributions(operator: Operator, shares: Floats, n: float, theta: Floats, c: Floats) -> Floats | None:
    """Return what each report of a group adds to functionals, shape (reports, functionals); None if that takes too long."""
    if operator.inputs > MOST_VALUES or operator.outputs * c.shape[1] > _CELLS:
        return None
    return operator.contributions(shares, float(n), theta, c)


def of_moments(of_report: Floats, sampled: Floats, weighted: Floats) -> Floats:
    """Return by how much weights change a variance, if the noise of a report does not depend on its value.

    Args:
        of_report: n times the variance for rows of equal weight: that of the noise, and of the values.
        sampled: the variance of c over the values.
        weighted: the same by squared weight, about the mean by weight.

    """
    known = np.isfinite(of_report) & (of_report > 0)
    own = np.where(known, of_report, 1.0)
    return np.where(known, np.maximum((own - sampled + weighted) / own, _LEAST), 1.0)


def ratio(moved: Floats, shares: Floats, squares: Floats) -> Floats:
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
