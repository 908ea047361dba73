"""Empirical Bayes for many values: learn from all shares how shares are distributed, then shrink each one accordingly.

Robbins, "An empirical Bayes approach to statistics", 1956; Kiefer, Wolfowitz, "Consistency of the maximum likelihood estimator
in the presence of infinitely many incidental parameters", Annals of Mathematical Statistics 1956 (a prior of any form);
Mitchell, Beauchamp, "Bayesian variable selection in linear regression" (a spike at zero and a slab), JASA 1988; Efron,
"Large-scale inference", 2010, chapter 1, and "Tweedie's formula and selection bias", JASA 2011.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Floats, Likelihood, Status, hookimpl, simplex_projection, sum_to_one, uniform

MOST_ATOMS, RATIOS = 300, 96
NEAR = np.arange(0.0, 8.0, 0.25)  # atoms around the noise, in standard errors
AROUND = np.delete(np.arange(-4.0, 4.1, 0.5), 8)  # atoms around a share that stands out, in its errors
MOST_OWN = 12  # shares of a group that have such atoms: the largest
# A prior: the probability that a value is absent; the spread of the logarithms of the other shares; and the part of all reports
# that these make up on average, because a few values may stand out if it is not all of them.
ABSENT = (0.0, 0.3, 0.6, 0.8, 0.9, 0.96)
SPREAD = (0.015, 0.05, 0.15, 0.4, 0.7, 1.0, 1.5, 2.0, 2.5)
BULK = (1.0, 0.5, 0.1)
ABSENT_TOO, WIDE, PART = (axis.reshape(-1, 1) for axis in np.meshgrid(ABSENT, SPREAD, BULK))
PRESENT, STANDS_OUT = 1.0 - ABSENT_TOO, np.where(PART < 1.0, 1.0, 0.0)  # how many values stand out
MIDDLE = np.log(PART / PRESENT) - WIDE**2 / 2.0  # of the logarithms, if there were one value
WEIGHT = np.sqrt(PRESENT) * np.where(PART < 1.0, 0.5, 1.0)
CLOSE, HALVINGS, MOST_STEPS = 1e-9, 3, 60  # of the sum of the quantiles to one, and of their level
LEAST_NOISE = 0.02  # of the variance of a binomial number: less is not resolved by the atoms
AT_ONCE = 400_000  # cells of tables of priors, and of values, for the groups that are estimated together
Mask: TypeAlias = NDArray[np.bool_]
EM_STEPS = 100  # after 1,000 the sum of the largest shares differs by less than its noise
PLACES = 64  # of inverted shares in a standard error, for a prior of any form
MANY = 1000  # values from which on a group is estimated alone, and equal inverted shares are computed once


class EmpiricalBayes(Estimator):
    """Empirical Bayes: the inverted shares, shrunk under priors that explain all of them together.

    It does not need an order of the values, learns whether most are absent, alike or spread out, and gains most if there are
    many values and much noise. Under each prior a value is absent with some probability; otherwise its share is log-normal or,
    for about one value of all, stands out. 162 priors are averaged, each weighted by how likely it makes the inverted shares,
    and less the more values it calls absent. The shares are those of the people who reported: only the noise of the mechanism
    is shrunk, not the chance by which these people rather than others reported, which prevails at large epsilons.
    ``loss := 'squared'`` returns posterior means, given that they sum to one; 'absolute' returns the posterior quantiles of the
    one level at which they do; 'both' the mean of the two. ``prior := 'any'`` fits one prior of any form by 100 steps of EM
    and projects the posterior means on the simplex. Over thousands of values it keeps shares that stand out and shrinks those
    that owe their size to luck, so that the sum of the largest is nearly unbiased although the reports chose them.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(4, 0.4, 0.2), np.array([[500.0, 280.0, 300.0, 290.0]]))
    >>> EmpiricalBayes().fit(reports).theta.round(2).tolist()
    [[0.87, 0.03, 0.07, 0.04]]
    """

    name = "empirical_bayes"
    loss: Literal["squared", "absolute", "both"] = Field(
        "squared", description="the error to keep small: 'squared', 'absolute' or 'both'"
    )
    prior: Literal["log-normal", "any"] = Field(
        "log-normal",
        description="'log-normal', the average of many priors, or 'any', the likeliest of any form for thousands of values",
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Average the priors of every group and estimate its shares.

        Raises:
            IllConditioned: if the channel has no useful inverse.

        """
        likelihood.operator.invert(likelihood.shares[:1])
        size = likelihood.operator.inputs
        together = 1 if size >= MANY else max(1, AT_ONCE // ((len(MIDDLE) + size) * (RATIOS + size)))
        return self.each(likelihood, self._estimated, together)

    def _estimated(self, part: Likelihood) -> Fit:
        v = part.operator.invert(part.shares)
        error = part.operator.inverted_interval(part.shares, part.n, simplex_projection(v), 1.0)[0]
        if len(v) == 1 and v.shape[1] >= MANY:
            if self.prior == "any" and (step := np.median(error) / PLACES) > 0:
                v, error = np.rint(v / step) * step, np.maximum(np.rint(error / step), 1.0) * step
            seen, back, times = np.unique(np.stack([v[0], error[0]], axis=1), axis=0, return_inverse=True, return_counts=True)
            theta = self._read(seen.T[:1], seen.T[1:], times[None].astype(np.float64), part)[:, back.ravel()]
        else:
            theta = self._read(v, error, np.ones_like(v), part)
        if self.prior == "any":
            return Fit.plain(simplex_projection(theta), Status.REGULARISED)
        total = theta.sum(axis=-1, keepdims=True)
        even = uniform(part)  # if no report votes for any value
        return Fit.plain(np.where(total > 0, theta / np.where(total > 0, total, 1.0), even), Status.REGULARISED)

    def _read(self, v: Floats, error: Floats, times: Floats, part: Likelihood) -> Floats:
        """Return posterior means or quantiles of inverted shares, (groups, shares); a share stands for ``times`` values."""
        theta, out = np.empty_like(v), stands_out(v, error)
        for rows in (np.flatnonzero(~out), np.flatnonzero(out)):
            if len(rows):
                size = part.operator.inputs
                shares = even_atoms(v[rows], error[rows]) if self.prior == "any" else atoms(v[rows], error[rows], size)
                if out[rows[0]]:
                    shares = np.sort(np.hstack([shares, own_atoms(v[rows], error[rows])]), axis=1)
                theta[rows] = self._posterior(shares, v[rows], error[rows], times[rows], part.with_counts(part.counts[rows]))
        return theta

    def _posterior(self, shares: Floats, v: Floats, error: Floats, times: Floats, part: Likelihood) -> Floats:
        """Return posterior means or quantiles of inverted shares under priors of these atoms."""
        table = densities(v, error, part.n, part.operator.votes, shares)
        prior = averaged(shares, part.operator.inputs, table, times) if self.prior == "log-normal" else likeliest(table, times)
        weights = table * prior
        weights /= weights.sum(axis=1, keepdims=True)
        read = READ | ({"squared": free_means} if self.prior == "any" else {})
        posterior = [read[loss](shares, weights, times) for loss in (read if self.loss == "both" else [self.loss])]
        return np.asarray(np.mean(posterior, axis=0))


def likeliest(table: Floats, times: Floats) -> Floats:
    """Return the prior of each group, (groups, atoms, 1), under which all columns together are likeliest, after steps of EM.

    A column stands for ``times`` values. The steps begin at equal weights of the atoms.
    """
    prior = np.full((*table.shape[:2], 1), 1.0 / table.shape[1])
    values = times.sum(axis=-1)[:, None, None]
    for _ in range(EM_STEPS):
        chance = np.maximum((prior.swapaxes(1, 2) @ table)[:, 0], 1e-300)
        prior *= table @ (times / chance)[..., None] / values
    return prior


def averaged(shares: Floats, size: int, table: Floats, times: Floats) -> Floats:
    """Return the prior of each column of the table, (groups, atoms, columns), in the mean of the posteriors under all priors.

    A prior is weighted by its evidence, the probability of all columns under it; a column stands for ``times`` values, out of
    ``size``. Atoms rise from 0. The normal densities of their logarithms are products of the powers of both, so that nothing
    but their exponential is computed for every pair of a prior and an atom.
    """
    width, slab = log_normals(shares, size)
    spent = width / width.sum(axis=-1, keepdims=True)
    weighted = table[:, 1:] * width[:, :, None]
    here = PRESENT * (1.0 - STANDS_OUT / size) / (slab @ width[:, :, None])
    out = PRESENT * STANDS_OUT / size
    chance = ABSENT_TOO * table[:, :1] + here * (slab @ weighted) + out * (spent[:, None] @ table[:, 1:])
    chance = np.maximum(chance, 1e-300)
    evidence = np.log(chance) @ times[..., None] + np.log(WEIGHT)
    each = np.exp(evidence - evidence.max(axis=1, keepdims=True)) / chance
    rest = width[:, :, None] * (slab.swapaxes(1, 2) @ (here * each)) + spent[:, :, None] * (out.T @ each)
    return np.concatenate([ABSENT_TOO.T @ each, rest], axis=1)


def log_normals(shares: Floats, size: int) -> tuple[Floats, Floats]:
    """Return the widths of the atoms above 0, on the scale of logarithms, and every prior's density there, up to a factor."""
    logs = np.log(shares[:, 1:])
    between = (logs[:, 1:] + logs[:, :-1]) / 2.0
    width = np.diff(np.concatenate([logs[:, :1], between, logs[:, -1:]], axis=1))
    middle = np.clip(MIDDLE - np.log(size), logs[:, None, :1], logs[:, None, -1:]) - logs[:, None, :1]
    from_first = logs - logs[:, :1]
    powers = np.stack([np.ones_like(logs), from_first, from_first**2], axis=1)
    slab = (np.concatenate([-(middle**2), 2.0 * middle, -np.ones_like(middle)], axis=2) / (2.0 * WIDE**2)) @ powers
    return width, np.exp(slab, out=slab)


def means(shares: Floats, weights: Floats, times: Floats) -> Floats:
    """Return the posterior means given that all shares sum to one: the excess is subtracted in proportion to the variances."""
    mean = (shares[:, None] @ weights)[:, 0]
    variance = (shares[:, None] ** 2 @ weights)[:, 0] - mean**2
    return sum_to_one(mean, variance, times)


def free_means(shares: Floats, weights: Floats, times: Floats) -> Floats:  # noqa: ARG001  # as the others
    """Return the posterior means, whose sum is not one: see `simplex_projection`."""
    return np.asarray((shares[:, None] @ weights)[:, 0])


def quantiles(shares: Floats, weights: Floats, times: Floats) -> Floats:
    """Return the posterior quantiles, all of one level, that sum to one: they have the least expected absolute error.

    At a minimum of sum_x E|t_x - theta_x| among t that sum to one, P(theta_x < t_x) is the same for all x. The distribution
    functions are interpolated, because the prior is less certain than its few atoms suggest.
    """
    middle = weights.cumsum(axis=1) - weights / 2.0
    low, high = np.zeros(len(shares)), np.ones(len(shares))
    short, over = -np.ones(len(shares)), np.maximum((shares[:, -1:] * times).sum(axis=-1) - 1.0, CLOSE)
    before = np.zeros(len(shares), dtype=np.bool_)
    for taken in range(MOST_STEPS):  # false position by the Illinois rule, after some halvings
        part = 0.5 if taken < HALVINGS else np.clip(short / (short - over), 0.01, 0.99)
        level = low + (high - low) * part
        excess = (read_at(level, shares, middle) * times).sum(axis=-1) - 1.0
        going, above = (np.minimum(over, -short) > CLOSE) & (high - low > CLOSE), excess > 0.0
        if not going.any():
            break
        low, short = moved_end(going & ~above, low, short, level, excess, stays=going & above & before)
        high, over = moved_end(going & above, high, over, level, excess, stays=going & ~above & ~before)
        before = above
    return read_at(np.where(over < -short, high, low), shares, middle)


def moved_end(moves: Mask, end: Floats, value: Floats, to: Floats, new: Floats, *, stays: Mask) -> tuple[Floats, Floats]:
    """Return the ends of brackets and the values there: new ones if an end moves, half the value if it stays a second time."""
    return np.where(moves, to, end), np.where(moves, new, np.where(stays, value / 2.0, value))


READ = {"squared": means, "absolute": quantiles}


def read_at(level: Floats, shares: Floats, middle: Floats) -> Floats:
    """Return the share at which each rising column of ``middle`` reaches the level of its group, interpolated."""
    after = np.clip((middle <= level[:, None, None]).sum(axis=1), 1, shares.shape[1] - 1)
    below, above = (np.take_along_axis(middle, at[:, None], axis=1)[:, 0] for at in (after - 1, after))
    part = np.clip((level[:, None] - below) / np.maximum(above - below, 1e-300), 0.0, 1.0)
    left, right = (np.take_along_axis(shares, at, axis=1) for at in (after - 1, after))
    return np.asarray(left + part * (right - left))


def atoms(v: Floats, error: Floats, size: int) -> Floats:
    """Return the atoms of the priors: a fine grid around the noise, a geometric one, and the shares that stand out.

    All groups have equally many; an atom that occurs twice has no width the second time.
    """
    typical = np.maximum(np.median(error, axis=-1, keepdims=True), 1e-9 / size)
    near = NEAR * typical
    chosen = np.maximum(np.sort(v, axis=-1), near[:, -1:])
    if chosen.shape[1] > MOST_ATOMS:
        chosen = np.quantile(chosen, np.linspace(0.0, 1.0, MOST_ATOMS), axis=-1).T
    most = v.max(axis=-1, keepdims=True) + 2.0 * typical
    low, high = np.clip(typical / 8.0, 1e-6 / size, 0.1 / size), np.minimum(np.maximum(most, 4.0 / size), 1.0)
    ratios = low * (high / low) ** np.linspace(0.0, 1.0, RATIOS)
    return np.sort(np.clip(np.concatenate([near, chosen, ratios], axis=-1), 0.0, 1.0), axis=-1)


def even_atoms(v: Floats, error: Floats) -> Floats:
    """Return the atoms of a prior of any form: a fine grid around the noise, and one up to the largest share."""
    typical = np.median(error, axis=-1, keepdims=True)
    near = NEAR[-1] * typical
    most = np.maximum(v.max(axis=-1, keepdims=True) + 2.0 * typical, near)
    grids = [near * np.linspace(0.0, 1.0, 64), near + (most - near) * np.linspace(0.0, 1.0, 129)[1:]]
    return np.clip(np.concatenate(grids, axis=-1), 0.0, 1.0)


def stands_out(v: Floats, error: Floats) -> Mask:
    """Return in which groups a share is so large that the atoms of `atoms` around it are as far apart as its errors."""
    return np.asarray(v.max(axis=1) > NEAR[-1] * np.median(error, axis=1))


def own_atoms(v: Floats, error: Floats) -> Floats:
    """Return atoms around the largest shares of each group, (groups, atoms); none of them is next to the noise."""
    largest = np.argsort(-v, axis=1, kind="stable")[:, :MOST_OWN]
    share, spread = (np.take_along_axis(table, largest, axis=1)[..., None] for table in (v, error))
    own = (share + spread * AROUND).reshape(len(v), -1)
    return np.clip(own, NEAR[-1] * np.median(error, axis=1, keepdims=True), 1.0)


def densities(v: Floats, error: Floats, n: Floats, votes: tuple[float, float] | None, shares: Floats) -> Floats:
    """Return how likely every inverted share is under every atom, shape (groups, atoms, shares), relative to its best atom.

    If reports are votes their number is nearly binomial, with the variance of the noise alone: a person who has the value votes
    for it with one probability, everybody else with another. Otherwise the inverted share is assumed to be normal.
    """
    columns, rows = v[:, None, :], shares[:, :, None]
    if votes:
        low, high = votes
        seen = np.clip(low + (high - low) * columns, 0.0, 1.0)
        chance = np.clip(low + (high - low) * rows, 1e-15, 1.0 - 1e-15)
        noise = np.maximum(1.0 - (high - low) ** 2 * rows * (1.0 - rows) / (chance * (1.0 - chance)), LEAST_NOISE)
        binomial = seen * np.log(chance) + (1.0 - seen) * np.log1p(-chance) + entropy(seen)
        logs = n[:, None, None] * binomial / noise - np.log(noise) / 2.0
    else:
        logs = -(((columns - rows) / np.maximum(error, 1e-12)[:, None, :]) ** 2) / 2.0
    return np.exp(np.maximum(logs - logs.max(axis=1, keepdims=True), -600.0))


def entropy(chance: Floats) -> Floats:
    """Return the entropy of a coin: what the best binomial log-likelihood of a report lacks to 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.nan_to_num(chance * np.log(chance)) - np.nan_to_num((1.0 - chance) * np.log1p(-chance))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer empirical Bayes."""
    return [EmpiricalBayes]
