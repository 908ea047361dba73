"""Empirical Bayes for many values: learn from all shares how shares are distributed, then read each one in that light.

Robbins, "An empirical Bayes approach to statistics", 1956; Kiefer, Wolfowitz, "Consistency of the maximum likelihood estimator
in the presence of infinitely many incidental parameters", Ann. Math. Stat. 1956; Koenker, Mizera, "Convex optimization, shape
constraints, compound decisions, and empirical Bayes rules", JASA 2014.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql import Estimator, Fit, Likelihood, Status, hookimpl
from ldpsql.estimator import simplex_projection
from ldpsql.operators import DenseOperator, Floats
from ldpsql.solver.mle import maximum_likelihood, uniform

MOST_ATOMS = 300


class EmpiricalBayes(Estimator):
    """Empirical Bayes: the inverted shares, shrunk under the prior that makes all of them together likeliest.

    The prior is any distribution of shares (nonparametric maximum likelihood): it needs no order of the values, finds whether
    most are absent, alike or spread out, and gains most where there are many values and much noise. ``loss := 'squared'``
    takes posterior means, scaled to sum to one; 'absolute' the posterior quantiles of the one level at which they do.

    >>> from ldpsql.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(4, 0.4, 0.2), np.array([[500.0, 280.0, 300.0, 290.0]]))
    >>> EmpiricalBayes().fit(reports).theta.round(2).tolist()
    [[0.83, 0.06, 0.06, 0.06]]
    """

    name = "empirical_bayes"
    loss: Annotated[str, Field(pattern="^(squared|absolute)$")] = Field(
        "squared", description="the error to keep small: 'squared' or 'absolute'"
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Fit the prior of every group and take posterior means.

        Raises:
            IllConditioned: where the channel has no useful inverse.

        """
        v = likelihood.operator.invert(likelihood.shares)
        error = likelihood.operator.inverted_interval(likelihood.shares, likelihood.n, simplex_projection(v), 1.0)[0]
        found = [posterior(one, e, n, likelihood.operator.votes) for one, e, n in zip(v, error, likelihood.n, strict=True)]
        read = quantiles if self.loss == "absolute" else means
        theta = np.stack([read(shares, weights) for shares, weights, _ in found])
        steps = np.array([steps for _, _, steps in found], dtype=np.int64)
        total = theta.sum(axis=-1, keepdims=True)
        even = uniform(likelihood)  # where no report speaks for any value
        return Fit.plain(np.where(total > 0, theta / np.where(total > 0, total, 1.0), even), Status.REGULARISED, steps)


def posterior(v: Floats, error: Floats, n: float, votes: tuple[float, float] | None) -> tuple[Floats, Floats, int]:
    """Return rising shares, their posterior weights for each value, shape (shares, values), and the steps the prior took."""
    shares = atoms(v, error)
    table = densities(v, error, n, votes, shares)
    fitted = maximum_likelihood(Likelihood(DenseOperator(table), np.ones((1, len(v)))))
    prior, steps = fitted.theta, fitted.iterations
    weights = prior[0][:, None] * table
    return shares, weights / weights.sum(axis=0), int(steps[0])


def means(shares: Floats, weights: Floats) -> Floats:
    """Return the posterior mean of every value."""
    return shares @ weights


def quantiles(shares: Floats, weights: Floats) -> Floats:
    """Return the posterior quantiles, all of one level, that sum to one: they have the least expected absolute error.

    At a minimum of sum_x E|t_x - theta_x| among t that sum to one, P(theta_x < t_x) is the same for all x. The distribution
    functions are interpolated, for the prior is less certain than its few atoms look.
    """
    middle = weights.cumsum(axis=0) - weights / 2.0
    low, high = 0.0, 1.0
    for _ in range(40):
        level = (low + high) / 2.0
        low, high = (low, level) if read_at(level, shares, middle).sum() > 1.0 else (level, high)
    return read_at(high, shares, middle)


def read_at(level: float, shares: Floats, middle: Floats) -> Floats:
    """Return the share at which each rising column of ``middle`` reaches the level, interpolated."""
    after = np.clip((middle <= level).sum(axis=0), 1, len(shares) - 1)
    each = np.arange(middle.shape[1])
    below, above = middle[after - 1, each], middle[after, each]
    part = np.clip((level - below) / np.maximum(above - below, 1e-300), 0.0, 1.0)
    return np.asarray(shares[after - 1] + part * (shares[after] - shares[after - 1]))


def atoms(v: Floats, error: Floats) -> Floats:
    """Return the shares that the prior may hold: a fine grid where the noise is as large as the shares, and all larger ones."""
    typical = float(np.median(error))
    near = np.arange(0.0, 8.0, 0.25) * typical
    far = np.unique(v[v > near[-1]])
    chosen = far if len(far) <= MOST_ATOMS else np.quantile(far, np.linspace(0.0, 1.0, MOST_ATOMS))
    return np.unique(np.minimum(np.concatenate([near, chosen]), 1.0))


def densities(v: Floats, error: Floats, n: float, votes: tuple[float, float] | None, shares: Floats) -> Floats:
    """Return how likely every inverted share is under every atom, shape (atoms, values), relative to its best atom.

    Where reports are votes their number is binomial; elsewhere the inverted share is taken to be normal.
    """
    if votes:
        low, high = votes
        seen = np.clip(low + (high - low) * v, 0.0, 1.0)
        chance = np.clip(low + (high - low) * shares, 1e-15, 1.0 - 1e-15)[:, None]
        logs = n * (seen * np.log(chance) + (1.0 - seen) * np.log1p(-chance))
    else:
        logs = -(((v - shares[:, None]) / np.maximum(error, 1e-12)) ** 2) / 2.0
    return np.exp(np.maximum(logs - logs.max(axis=0), -600.0))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer empirical Bayes."""
    return [EmpiricalBayes]
