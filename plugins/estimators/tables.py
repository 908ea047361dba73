"""Estimates of tables of several columns: the product of the margins, a tree of columns, and empirical Bayes for the cells."""

from itertools import combinations
from typing import TypeAlias

import numpy as np

from ldpsql.estimators import (
    Estimator,
    Fit,
    Floats,
    IllConditioned,
    Likelihood,
    NotApplicable,
    Status,
    TableEstimator,
    hookimpl,
    mutual_information,
    outer,
    shares_of,
    sum_to_one,
)
from ldpsql.functions import registry


class Independent(TableEstimator):
    """Product of the margins: the joint table if columns were independent, corrected as far as held-out reports say.

    The shares of each column are estimated from its own reports by ``best``. From their product, steps of IBU lead to the
    maximum of the likelihood; 'held_out' takes as many as best predict held-out reports, ``stop := 0`` returns the product.
    Small tables gain little; of large ones, most cells are too rare to be estimated by themselves. One column is estimated by
    ``best``.

    >>> import ldpsql
    >>> two = "row(a=krr(8, [0, 1]), b=krr(8, [0, 1]))"
    >>> rows = [{"a": 0, "b": 0}] * 600 + [{"a": 1, "b": 0}] * 200 + [{"a": 0, "b": 1}] * 200
    >>> ldpsql.estimate(rows, two, "independent(stop=0)").estimate.round(1).tolist()
    [0.6, 0.2, 0.2, 0.0]
    """

    name = "independent"

    def model(self, likelihood: Likelihood) -> Floats:
        """Return the product of the margins."""
        single = self.plain()
        return outer([shares_of(likelihood, [j], single) for j in range(len(likelihood.variables))])

    def plain(self) -> Estimator:
        """Return the estimator of single columns."""
        return registry().estimator("best")


# A table as a tree of columns, and the way from there to the maximum of the likelihood.
#
# Chow, Liu, "Approximating discrete probability distributions with dependence trees", IEEE Transactions on Information Theory
# 1968. For reports of several columns also Ren, Yu, Yu, Yang, Yang, McCann, Yu, "LoPub", IEEE TIFS 2018.

Pair: TypeAlias = tuple[int, int]


class Tree(TableEstimator):
    """Tree of columns: each column depends on one other column directly, corrected as far as held-out reports say.

    The tables of all pairs of columns are estimated by ``independent``. The tree connects the pairs with the largest mutual
    information. From there, steps of IBU lead to the maximum of the likelihood; 'held_out' takes as many as best predict
    held-out reports, ``stop := 0`` returns the tree. For three columns and more: the pairs are right if the whole table has too
    many cells. The table of two columns is estimated by ``independent``, one column by ``best``.

    >>> import ldpsql
    >>> three = "row(a=krr(4, [0, 1]), b=krr(4, [0, 1]), c=krr(4, [0, 1]))"
    >>> rows = [{"a": i % 2, "b": i % 2, "c": i // 2 % 2} for i in range(400)]
    >>> ldpsql.estimate(rows, three, "tree(stop=0)").estimate.round(1).tolist()
    [0.2, 0.2, 0.0, 0.0, 0.0, 0.0, 0.2, 0.2]
    """

    name = "tree"

    def model(self, likelihood: Likelihood) -> Floats:
        """Return the tree of each group."""
        sizes = [variable.size for variable in likelihood.variables]
        if len(sizes) == 2:
            return self.plain().fit(likelihood).theta
        pairs = {pair: shares_of(likelihood, pair, self.plain()) for pair in combinations(range(len(sizes)), 2)}
        shaped = {(a, b): table.reshape(-1, sizes[a], sizes[b]) for (a, b), table in pairs.items()}
        return np.stack([of_tree({pair: each[i] for pair, each in shaped.items()}, sizes) for i in range(len(likelihood.n))])

    def plain(self) -> Estimator:
        """Return the estimator of pairs."""
        return registry().estimator("independent")


def of_tree(pairs: dict[Pair, Floats], sizes: list[int]) -> Floats:
    """Return the shares of all cells under the tree that the pairs of columns with most information make."""
    edges = spanning({pair: mutual_information(table) for pair, table in pairs.items()}, len(sizes))
    cells = first(pairs[min(pairs)]).reshape([-1] + [1] * (len(sizes) - 1))
    for parent, child in edges:
        table = pairs[parent, child] if parent < child else pairs[child, parent].T
        given = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
        shape = [size if j in (parent, child) else 1 for j, size in enumerate(sizes)]
        cells = cells * (given if parent < child else given.T).reshape(shape)
    return np.asarray(cells.ravel() / cells.sum())


def first(pair: Floats) -> Floats:
    """Return the shares of the first column of a pair."""
    return np.asarray(pair.sum(axis=1))


def spanning(weights: dict[Pair, float], size: int) -> list[Pair]:
    """Return the edges (parent, child) of the tree of largest weight, from column 0 on; source: Prim, 1957."""
    inside, edges = {0}, list[Pair]()
    while len(inside) < size:
        a, b = max((pair for pair in weights if (pair[0] in inside) != (pair[1] in inside)), key=weights.__getitem__)
        edges.append((a, b) if a in inside else (b, a))
        inside |= {a, b}
    return edges


# Empirical Bayes for the cells of a table, which are shrunk towards the product of the margins.
#
# Fay, Herriot, "Estimates of income for small places", JASA 1979; the spread around the model is a mixture here.

MOST_CELLS = 200_000
ROUNDS = 3  # in which the noise of a share is computed from the estimate
RATIOS = np.concatenate([[0.0], np.geomspace(0.02, 60.0, 70)])  # of a share to the product of its margins
WIDTH = 0.06  # about half the distance of neighbouring ratios
ABSENT, SPREAD = (0.0, 0.2, 0.5, 0.8, 0.95), (0.03, 0.1, 0.25, 0.5, 0.8, 1.2, 1.8)
LEAST = 1e-12
Moments: TypeAlias = tuple[Floats, Floats]


def prior(absent: float, spread: float) -> Floats:
    """Return the chance of every ratio: 0 if the cell is absent, otherwise log-normal; its mean is 1."""
    middle = -np.log1p(-absent) - spread**2 / 2.0
    present = np.exp(-(((np.log(RATIOS[1:]) - middle) / spread) ** 2) / 2.0)
    return np.concatenate([[absent], (1.0 - absent) * present / present.sum()])


PRIORS = np.stack([prior(absent, spread) for absent in ABSENT for spread in SPREAD])


class TableBayes(Estimator):
    """Empirical Bayes of a table: the inverted shares of the cells, shrunk towards the product of the margins.

    The ratio of a share to the product of its margins is 0 with some probability, otherwise log-normal. 35 such priors are
    averaged, each weighted by how likely it makes the inverted shares of all cells: the more columns depend on each other, the
    less is shrunk. The shares are those of the people who reported. One column is estimated by ``best``.

    >>> import ldpsql
    >>> two = "row(a=krr(8, [0, 1]), b=krr(8, [0, 1]))"
    >>> rows = [{"a": i % 2, "b": i % 2} for i in range(1000)]
    >>> ldpsql.estimate(rows, two, "table_bayes").estimate.round(1).tolist()
    [0.5, 0.0, 0.0, 0.5]
    """

    name = "table_bayes"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Shrink the shares of every group.

        Raises:
            IllConditioned: if the channel has no useful inverse.
            NotApplicable: if the table is too large.

        """
        if len(likelihood.variables) < 2:
            return registry().estimator("best").fit(likelihood)
        if likelihood.operator.inputs > MOST_CELLS:
            raise NotApplicable(f"table_bayes takes tables of at most {MOST_CELLS:,} cells", "use independent or tree")
        likelihood.operator.invert(likelihood.shares[:1])
        return self.each(likelihood, shrunk)


def shrunk(one: Likelihood) -> Fit:
    """Return the estimate of one group."""
    product = registry().estimator("independent(stop=0)").fit(one).theta
    theta, inverted = product, one.operator.invert(one.shares)[0]
    for _ in range(ROUNDS):
        theta = sum_to_one(*posterior(inverted, noise(one, theta), np.maximum(product[0], LEAST)))[None]
    return Fit.plain(theta, Status.REGULARISED)


def noise(one: Likelihood, theta: Floats) -> Floats:
    """Return the variance of each inverted share, without the chance by which these people rather than others reported.

    Raises:
        IllConditioned: if it is not finite.

    """
    error = one.operator.inverted_interval(one.shares, one.n, theta, 1.0)[0][0]
    if not np.isfinite(error).all():
        raise IllConditioned("the errors of the inversion are not finite", "use ibu")
    return np.maximum(error**2 - theta[0] * (1.0 - theta[0]) / one.n[0], LEAST**2)


def posterior(inverted: Floats, variance: Floats, model: Floats) -> Moments:
    """Return the mean and the variance of every share in the mean of the posteriors under all priors."""
    blurred = variance + (WIDTH * inverted) ** 2  # the ratios are too far apart for exact shares, around which a prior is flat
    logs = -((inverted[:, None] - model[:, None] * RATIOS) ** 2) / (2.0 * blurred[:, None])
    density = np.exp(logs - logs.max(axis=1, keepdims=True))
    chance = np.maximum(density @ PRIORS.T, 1e-300)
    evidence = np.log(chance).sum(axis=0)
    each = np.exp(evidence - evidence.max())
    weights = density * ((each / each.sum() / chance) @ PRIORS)
    weights /= weights.sum(axis=1, keepdims=True)
    mean, square = weights @ RATIOS, weights @ RATIOS**2
    noisy = variance / blurred
    return noisy * model * mean + (1.0 - noisy) * inverted, noisy * model**2 * np.maximum(square - mean**2, 0.0)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the product of the margins, the tree and empirical Bayes."""
    return [
        Independent,
        Tree,
        TableBayes,
    ]
