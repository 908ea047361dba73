"""Pooling of values that the noise makes indistinguishable (pool-2-sigma), and its dyadic form for values with neighbours.

It follows the mixture reduction of Ye, Wang, Zhang, Feng, NDSS 2025, with exact fits; the dyadic form is related to the
thresholding of Haar wavelets (Donoho, Johnstone, "Ideal spatial adaptation by wavelet shrinkage", Biometrika 1994).
"""

from contextlib import suppress
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import (
    Blocks,
    Estimator,
    Fit,
    Floats,
    Likelihood,
    OutOfTime,
    Status,
    absent_error,
    check,
    hookimpl,
    maximum_in_blocks,
    maximum_likelihood,
    renumbered,
    sibling_contrasts,
    with_blocks,
)

TOGETHER = 1000  # groups, if the maximum has a closed form
Steps: TypeAlias = NDArray[np.int64]
MOST_BLOCKS = 256  # that halving starts from: finer differences drown in the noise of any channel


class Pool(Estimator):
    """Pooling: values within ``cut`` standard deviations of zero share their weight equally, the others are fitted exactly.

    The likelihood is maximised again with the pool as one value, and values that are small then join it, until there are none.
    If values have neighbours, neighbours are pooled instead: halves, then quarters of the domain, ... that differ by less than
    ``cut`` standard errors; ``neighbours := 'ignore'`` pools small values there too, for numbers that are labels. Thousands of
    values under olh are pooled as if they had no neighbours.

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
        return self.each(likelihood, self._pooled, TOGETHER if likelihood.operator.exchangeable else 1)

    def _pooled(self, part: Likelihood) -> Fit:
        dyadic = part.layout and self.neighbours == "use" and not part.operator.isotropic
        theta, steps = self._halves(part) if dyadic else self._small_values(part)
        return Fit.plain(theta, Status.REGULARISED, steps)

    def _small_values(self, part: Likelihood) -> tuple[Floats, Steps]:
        fitted = maximum_likelihood(part)
        theta, steps, pool = fitted.theta, fitted.iterations, np.zeros(fitted.theta.shape, dtype=np.bool_)
        with suppress(OutOfTime):
            self._grow(part, theta, steps, pool)
        return theta, steps

    def _grow(self, part: Likelihood, theta: Floats, steps: Steps, pool: NDArray[np.bool_]) -> None:
        """Pool small values and fit again, in place, until no value joins the pool of any group."""
        going = np.arange(len(theta))
        while len(going):
            rest = part.with_counts(part.counts[going])
            small = pool[going] | (theta[going] < self.cut * self._deviations(rest, theta[going], pool[going]))
            more = (small != pool[going]).any(axis=1)
            going = going[more]
            pool[going] = small[more]
            rest = part.with_counts(part.counts[going])
            if len(going):
                fitted, taken = maximum_in_blocks(rest, pool_blocks(pool[going]))
                check()  # a fit that was cut short is no better than the one before
                theta[going], steps[going] = fitted, steps[going] + taken

    def _deviations(self, part: Likelihood, theta: Floats, pool: NDArray[np.bool_]) -> Floats:
        """Return the standard deviation of every value: that of an absent one or, without votes, that of the fit."""
        if part.operator.votes:
            return absent_error(part, theta)
        each = zip(theta, pool_blocks(pool), strict=True)
        return np.stack([error_in_blocks(part.group(i), at, renumbered(block)) for i, (at, block) in enumerate(each)])

    def _halves(self, part: Likelihood) -> tuple[Floats, Steps]:
        levels, steps = halvings(part.layout), np.zeros(len(part.counts), dtype=np.int64)
        while levels and len(np.unique(levels[-1])) > MOST_BLOCKS:
            levels.pop()
        block = np.broadcast_to(first_values(levels[-1]), (len(steps), part.operator.inputs))
        theta, taken = maximum_in_blocks(part, block)
        steps += taken
        with suppress(OutOfTime):
            for halves, whole in zip(levels[:0:-1], levels[-2::-1], strict=True):
                siblings = np.unique(np.stack([first_values(whole), first_values(halves)]), axis=1)
                pairs = np.stack([siblings[0], siblings[1]], axis=1)[siblings[0] != siblings[1]]
                if len(pairs):
                    alike = sibling_contrasts(part, block, theta, pairs, first_values(halves)) < self.cut
                    block = with_joined_pairs(block, alike, pairs, first_values(whole))
                    fitted, taken = maximum_in_blocks(part, block)
                    check()  # a fit that was cut short is no better than the one before
                    theta, steps = fitted, steps + taken
        return theta, steps


def error_in_blocks(one: Likelihood, theta: Floats, block: Blocks) -> Floats:
    """Return the standard error of the weight of each value's block."""
    part, weights = with_blocks(one, block), np.bincount(block, weights=theta).astype(np.float64)[None]
    return np.asarray(part.operator.interval(part.shares, part.n, weights, 1.0)[0][0, block])


def pool_blocks(pool: NDArray[np.bool_]) -> Blocks:
    """Return blocks of single values and the pool, each numbered by its first value, for every group."""
    return np.where(pool, pool.argmax(axis=1)[:, None], np.arange(pool.shape[1]))


def first_values(block: Blocks) -> Blocks:
    """Return the first value of the block of each value."""
    first, number = np.unique(block, return_index=True, return_inverse=True)[1:]
    return first[number]


def with_joined_pairs(block: Blocks, alike: NDArray[np.bool_], pairs: Blocks, whole: Blocks) -> Blocks:
    """Return the blocks of each group with the pairs joined that are alike; pairs are (first half, second half) of a whole."""
    pair = np.full(len(whole), -1)
    pair[pairs[:, 0]] = np.arange(len(pairs))
    pair = pair[whole]
    return np.where((pair >= 0) & alike[:, pair], whole, block)


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


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer pooling."""
    return [Pool]
