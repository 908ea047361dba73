"""Empirical Bayes for many values: learn from all shares how shares are distributed, then read each one in that light.

Robbins, "An empirical Bayes approach to statistics", 1956; Kiefer, Wolfowitz, "Consistency of the maximum likelihood estimator
in the presence of infinitely many incidental parameters", Ann. Math. Stat. 1956; Koenker, Mizera, "Convex optimization, shape
constraints, compound decisions, and empirical Bayes rules", JASA 2014.
"""

import numpy as np

from ldpsql import Estimator, Fit, Likelihood, Status, hookimpl
from ldpsql.estimator import simplex_projection
from ldpsql.mle import certified_maximum
from ldpsql.operators import DenseOperator, Floats

MOST_ATOMS = 300


class EmpiricalBayes(Estimator):
    """Empirical Bayes: the inverted shares, shrunk to posterior means under the prior that makes all of them likeliest.

    The prior is any distribution of shares (nonparametric maximum likelihood): it needs no order of the values, finds whether
    most are absent, alike or spread out, and gains most where there are many values and much noise. Scaled to sum to one.

    >>> from ldpsql.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(4, 0.4, 0.2), np.array([[500.0, 280.0, 300.0, 290.0]]))
    >>> EmpiricalBayes().fit(reports).theta.round(2).tolist()
    [[0.82, 0.06, 0.06, 0.06]]
    """

    name = "empirical_bayes"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Fit the prior of every group and take posterior means.

        Raises:
            IllConditioned: where the channel has no useful inverse.

        """
        v = likelihood.operator.invert(likelihood.shares)
        error = np.sqrt(likelihood.operator.scatter(simplex_projection(v)) / likelihood.n[:, None])
        found = [posterior(one, e, n, likelihood.operator.votes) for one, e, n in zip(v, error, likelihood.n, strict=True)]
        theta = np.stack([mean for mean, _ in found])
        steps = np.array([steps for _, steps in found], dtype=np.int64)
        return Fit.plain(theta / theta.sum(axis=-1, keepdims=True), Status.REGULARISED, steps)


def posterior(v: Floats, error: Floats, n: float, votes: tuple[float, float] | None) -> tuple[Floats, int]:
    """Return the posterior mean of every share, and the steps that the prior took."""
    shares = atoms(v, error)
    table = densities(v, error, n, votes, shares)
    prior, steps = certified_maximum(Likelihood(DenseOperator(table), np.ones((1, len(v)))))
    weights = prior[0][:, None] * table
    return shares @ weights / weights.sum(axis=0), int(steps[0])


def atoms(v: Floats, error: Floats) -> Floats:
    """Return the shares that the prior may hold: a fine grid where the noise is as large as the shares, and all larger ones."""
    typical = float(np.median(error))
    near = np.arange(0.0, 8.0, 0.25) * typical
    far = np.unique(v[v > near[-1]])
    chosen = far if len(far) <= MOST_ATOMS else np.quantile(far, np.linspace(0.0, 1.0, MOST_ATOMS))
    return np.minimum(np.concatenate([near, chosen]), 1.0)


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
