"""A table as a tree of columns, and the way from there to the maximum of the likelihood.

Chow, Liu, "Approximating discrete probability distributions with dependence trees", IEEE Transactions on Information Theory
1968. For reports of several columns also Ren, Yu, Yu, Yang, Yang, McCann, Yu, "LoPub", IEEE TIFS 2018.
"""

from itertools import combinations
from typing import TypeAlias

import numpy as np

from ldpsql.estimators import Estimator, Floats, Likelihood, TableEstimator, hookimpl, mutual_information, shares_of
from ldpsql.functions import registry

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


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the tree of columns."""
    return [Tree]
