"""Empirical Bayes for many values: learn from all shares how shares are distributed, then shrink each one accordingly.

Robbins, "An empirical Bayes approach to statistics", 1956; Mitchell, Beauchamp, "Bayesian variable selection in linear
regression" (a spike at zero and a slab), JASA 1988; Efron, "Large-scale inference", 2010, chapter 1.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Floats, Likelihood, Status, hookimpl, simplex_projection, uniform

MOST_ATOMS, RATIOS = 300, 200
# A prior: the probability that a value is absent; the spread of the logarithms of the other shares; and the part of all reports
# that these make up on average, because a few values may stand out.
ABSENT = (0.0, 0.3, 0.6, 0.8, 0.9, 0.96)
SPREAD = (0.015, 0.05, 0.15, 0.4, 0.7, 1.0, 1.5, 2.0, 2.5)
BULK = (1.0, 0.5, 0.1)
Times: TypeAlias = NDArray[np.int64]


class EmpiricalBayes(Estimator):
    """Empirical Bayes: the inverted shares, shrunk under priors that explain all of them together.

    It does not need an order of the values, learns whether most are absent, alike or spread out, and gains most if there are
    many values and much noise. Under each prior a value is absent with some probability; otherwise its share is log-normal or,
    for about one value of all, stands out. 162 priors are averaged, each weighted by how likely it makes the inverted shares.
    ``loss := 'squared'`` returns posterior means, given that they sum to one; 'absolute' returns the posterior quantiles of the
    one level at which they do; 'both' the mean of the two.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(4, 0.4, 0.2), np.array([[500.0, 280.0, 300.0, 290.0]]))
    >>> EmpiricalBayes().fit(reports).theta.round(2).tolist()
    [[0.88, 0.02, 0.06, 0.04]]
    """

    name = "empirical_bayes"
    loss: Literal["squared", "absolute", "both"] = Field(
        "squared", description="the error to keep small: 'squared', 'absolute' or 'both'"
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Average the priors of every group and estimate its shares.

        Raises:
            IllConditioned: if the channel has no useful inverse.

        """
        v = likelihood.operator.invert(likelihood.shares)
        error = likelihood.operator.inverted_interval(likelihood.shares, likelihood.n, simplex_projection(v), 1.0)[0]
        votes = likelihood.operator.votes
        theta = np.stack([self.read(*one, votes) for one in zip(v, error, likelihood.n, strict=True)])
        total = theta.sum(axis=-1, keepdims=True)
        even = uniform(likelihood)  # if no report votes for any value
        return Fit.plain(np.where(total > 0, theta / np.where(total > 0, total, 1.0), even), Status.REGULARISED)

    def read(self, v: Floats, error: Floats, n: float, votes: tuple[float, float] | None) -> Floats:
        """Return posterior means or quantiles of the shares; equal inverted shares are computed once."""
        seen, back, times = np.unique(np.stack([v, error], axis=1), axis=0, return_inverse=True, return_counts=True)
        shares = atoms(v, error)
        table = densities(seen[:, 0], seen[:, 1], n, votes, shares)
        weights = table * averaged(priors(shares, len(v)), table, times)
        weights /= weights.sum(axis=0)
        posterior = [READ[loss](shares, weights, times) for loss in (READ if self.loss == "both" else [self.loss])]
        return np.asarray(np.mean(posterior, axis=0)[back])


def priors(shares: Floats, size: int) -> Floats:
    """Return all priors of a share, one of ``size`` that sum to one, over rising atoms that begin with 0: (priors, atoms)."""
    from scipy.special import ndtr  # noqa: PLC0415  # slow to import, needed by this estimator only

    edges = np.concatenate([[0.0], (shares[1:-1] + shares[2:]) / 2.0, [np.inf]])
    absent, spread, bulk = (axis.ravel()[:, None] for axis in np.meshgrid(ABSENT, SPREAD, BULK))
    middle = np.log(bulk / (size * (1.0 - absent))) - spread**2 / 2.0
    with np.errstate(divide="ignore"):
        slab = np.diff(ndtr((np.log(edges) - middle) / spread), axis=1)
    anywhere = np.diff(np.log(np.clip(edges, shares[1], shares[-1]))) / np.log(shares[-1] / shares[1])
    return np.hstack([absent, (1.0 - absent) * (slab + (anywhere - slab) / size)])


def averaged(priors: Floats, table: Floats, times: Times) -> Floats:
    """Return the prior of each column of the table, (shares, columns), in the mean of the posteriors under all priors.

    A prior is weighted by its evidence, the probability of all columns under it; column j stands for ``times[j]`` values.
    """
    chance = np.maximum(priors @ table, 1e-300)
    evidence = np.log(chance) @ times
    return np.asarray(priors.T @ (np.exp(evidence - evidence.max())[:, None] / chance))


def means(shares: Floats, weights: Floats, times: Times) -> Floats:
    """Return the posterior means given that all shares sum to one: the excess is subtracted in proportion to the variances."""
    mean = shares @ weights
    variance = np.maximum(shares**2 @ weights - mean**2, 1e-300)
    for _ in range(50):
        positive = variance * (mean > 0)
        mean = np.maximum(mean - positive * (mean @ times - 1.0) / (positive @ times), 0.0)
        if abs(mean @ times - 1.0) < 1e-12:
            break
    return np.asarray(mean)


def quantiles(shares: Floats, weights: Floats, times: Times) -> Floats:
    """Return the posterior quantiles, all of one level, that sum to one: they have the least expected absolute error.

    At a minimum of sum_x E|t_x - theta_x| among t that sum to one, P(theta_x < t_x) is the same for all x. The distribution
    functions are interpolated, because the prior is less certain than its few atoms suggest.
    """
    middle = weights.cumsum(axis=0) - weights / 2.0
    low, high = 0.0, 1.0
    for _ in range(40):
        level = (low + high) / 2.0
        low, high = (low, level) if read_at(level, shares, middle) @ times > 1.0 else (level, high)
    return read_at(high, shares, middle)


READ = {"squared": means, "absolute": quantiles}


def read_at(level: float, shares: Floats, middle: Floats) -> Floats:
    """Return the share at which each rising column of ``middle`` reaches the level, interpolated."""
    after = np.clip((middle <= level).sum(axis=0), 1, len(shares) - 1)
    each = np.arange(middle.shape[1])
    below, above = middle[after - 1, each], middle[after, each]
    part = np.clip((level - below) / np.maximum(above - below, 1e-300), 0.0, 1.0)
    return np.asarray(shares[after - 1] + part * (shares[after] - shares[after - 1]))


def atoms(v: Floats, error: Floats) -> Floats:
    """Return the atoms of the priors: a fine grid around the noise, a geometric one, and the shares that stand out."""
    typical = float(np.median(error))
    near = np.arange(0.0, 8.0, 0.25) * typical
    far = np.unique(v[v > near[-1]])
    chosen = far if len(far) <= MOST_ATOMS else np.quantile(far, np.linspace(0.0, 1.0, MOST_ATOMS))
    low, high = np.clip(typical / 8.0, 1e-6 / len(v), 0.1 / len(v)), min(max(float(v.max()) + 2.0 * typical, 4.0 / len(v)), 1.0)
    return np.unique(np.clip(np.concatenate([near, chosen, np.geomspace(low, high, RATIOS)]), 0.0, 1.0))


def densities(v: Floats, error: Floats, n: float, votes: tuple[float, float] | None, shares: Floats) -> Floats:
    """Return how likely every inverted share is under every atom, shape (atoms, values), relative to its best atom.

    If reports are votes their number is binomial; otherwise the inverted share is assumed to be normal.
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
