"""Pooling of values that the noise makes indistinguishable (pool-2-sigma), and its dyadic form for values with neighbours.

It follows the mixture reduction of Ye, Wang, Zhang, Feng, NDSS 2025, with exact fits; the dyadic form is related to the
thresholding of Haar wavelets (Donoho, Johnstone, "Ideal spatial adaptation by wavelet shrinkage", Biometrika 1994).
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import (
    Blocks,
    Estimator,
    Fit,
    Floats,
    Likelihood,
    Status,
    absent_error,
    block_maximum,
    contrasts,
    hookimpl,
    maximum_likelihood,
    renumbered,
    with_blocks,
)

MOST_BLOCKS = 256  # that halving starts from: finer differences drown in the noise of any channel


class Pool(Estimator):
    """Pooling: values within ``cut`` standard deviations of zero share their weight equally, the others are fitted exactly.

    The likelihood is maximised again with the pool as one value, and values that are small then join it, until there are none.
    If values have neighbours, neighbours are pooled instead: halves, then quarters of the domain, ... that differ by less than
    ``cut`` standard errors; ``neighbours := 'ignore'`` pools small values there too. Thousands of values under olh are pooled
    as if they had no neighbours.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(4, 0.4, 0.2), np.array([[500.0, 280.0, 300.0, 290.0]]))
    >>> Pool().fit(reports).theta.round(2).tolist()
    [[0.82, 0.06, 0.06, 0.06]]
    """

    name = "pool"
    cut: Annotated[float, Field(ge=0, le=100)] = Field(2.0, description="threshold, in standard deviations")
    neighbours: Literal["use", "ignore"] = Field(
        "use", description="'use': pool neighbours if there are any; 'ignore': pool small values"
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Pool the values of every group."""
        return self.each(likelihood, self._pooled)

    def _pooled(self, one: Likelihood) -> Fit:
        dyadic = one.layout and self.neighbours == "use" and not one.operator.isotropic
        theta, steps = self._halves(one) if dyadic else self._small_values(one)
        return Fit.plain(theta, Status.REGULARISED, np.array([steps]))

    def _small_values(self, one: Likelihood) -> tuple[Floats, int]:
        fitted = maximum_likelihood(one)
        theta, steps = fitted.theta, fitted.iterations
        pool, total = np.zeros(theta.shape[1], dtype=np.bool_), int(steps[0])
        while True:
            small = pool | (theta[0] < self.cut * self._deviations(one, theta, pool))
            if (small == pool).all():
                return theta, total
            pool = small
            theta, more = block_maximum(one, pool_blocks(pool))
            total += more

    def _deviations(self, one: Likelihood, theta: Floats, pool: NDArray[np.bool_]) -> Floats:
        """Return the standard deviation of every value: that of an absent one or, without votes, that of the fit."""
        if one.operator.votes:
            return absent_error(one, theta)[0]
        block = pool_blocks(pool)
        part = with_blocks(one, block)
        weights = np.bincount(block, weights=theta[0]).astype(np.float64)[None]
        return part.operator.interval(part.shares, part.n, weights, 1.0)[0][0, block]

    def _halves(self, one: Likelihood) -> tuple[Floats, int]:
        total, levels = 0, halvings(one.layout)
        while levels and len(np.unique(levels[-1])) > MOST_BLOCKS:
            levels.pop()
        block = levels[-1]
        for halves, whole in zip(levels[:0:-1], levels[-2::-1], strict=True):
            fitted = maximum_likelihood(with_blocks(one, block))
            weights, steps = fitted.theta, fitted.iterations
            total += int(steps[0])
            pairs = sibling_pairs(block, halves, whole)
            if len(pairs):
                alike = contrasts(one, block, weights, pairs) < self.cut
                joined = np.arange(block.max() + 1)
                joined[pairs[alike, 1]] = pairs[alike, 0]
                block = renumbered(joined[block])
        theta, steps_last = block_maximum(one, block)
        return theta, total + steps_last


def pool_blocks(pool: NDArray[np.bool_]) -> Blocks:
    """Return blocks of single values and the pool."""
    return renumbered(np.where(pool, len(pool), np.arange(len(pool))))


def halvings(layout: tuple[int, ...]) -> list[Blocks]:
    """Cut the longest side of every block in halves until all are single values; return the blocks of each level."""
    places = np.indices(layout).reshape(len(layout), -1)
    lengths, cells = list(layout), [np.zeros(places.shape[1], dtype=np.int64) for _ in layout]
    pieces, levels = [1] * len(layout), [np.zeros(places.shape[1], dtype=np.int64)]
    while any(p < n for p, n in zip(pieces, lengths, strict=True)):
        axis = max(range(len(layout)), key=lambda a: lengths[a] / pieces[a])
        pieces[axis] = min(2 * pieces[axis], 1 << (lengths[axis] - 1).bit_length())
        cells[axis] = places[axis] * pieces[axis] // max(lengths[axis], 1)
        levels.append(renumbered(np.ravel_multi_index(tuple(cells), tuple(p + 1 for p in pieces))))
    return levels


def sibling_pairs(block: Blocks, halves: Blocks, whole: Blocks) -> Blocks:
    """Return the pairs of blocks, shape (pairs, 2), that are the two halves of one block of the level above."""
    first = np.unique(halves, return_index=True)[1]
    exact = [
        len(np.unique(block[halves == h])) == 1 and (halves[block == block[first[h]]] == h).all() for h in range(len(first))
    ]
    siblings: dict[int, list[int]] = {}
    for h, at in enumerate(first):
        if exact[h]:
            siblings.setdefault(int(whole[at]), []).append(int(block[at]))
    return np.array([pair for pair in siblings.values() if len(pair) == 2], dtype=np.int64).reshape(-1, 2)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer pooling."""
    return [Pool]
