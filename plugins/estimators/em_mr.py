"""EM with mixture reduction (EM-MR).

Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, algorithms 1
(categories) and 3 (values in order).
"""

from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql import Estimator, Fit, Likelihood, Status, hookimpl
from ldpsql.iteration import IterativeEstimator, StopField
from ldpsql.mle import uniform
from ldpsql.operators import Floats
from ldpsql.pooling import Blocks, renumbered, spread, with_blocks


class EmMr(IterativeEstimator):
    """Mixture reduction: the smallest shares are merged and the rest fitted again, as long as BIC falls.

    Categories: at most half of the values below two standard deviations are merged into one at a time. Values in order: the
    window of neighbours with the smallest sum below that, half as wide each time. BIC = -2 log L + K' log n; at least
    ``keep_share`` of the values stay; a merged weight is spread equally.

    Each fit is EM stopped by the paper's rule, from equal shares: reduction of the exact maximum would merge only what is zero
    already. ``stop``, ``tolerance``, ``max_iterations`` are those of each fit.

    >>> from ldpsql.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(8, 0.3, 0.1), np.array([[500.0, 180.0, 160.0, 170.0, 175.0, 165.0, 170.0, 160.0]]))
    >>> EmMr().fit(reports).theta.round(2).tolist()
    []
    """

    name = "em_mr"
    stop: StopField = Field("paper", description="of each fit: 'paper', 'certified', 'held_out' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-3, description="largest change of the log-likelihood")
    keep_share: Annotated[float, Field(ge=0, le=1)] = Field(0.25, description="least share of the values to keep, K_min / K")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Reduce every group."""
        return Fit.joined([self._reduced(likelihood.group(i)) for i in range(len(likelihood.counts))])

    def _reduced(self, one: Likelihood) -> Fit:
        size = one.operator.inputs
        fewest = max(2, round(self.keep_share * size))
        block = np.arange(size)
        fit = self._fitted(one, block)
        steps, criterion = fit.iterations, bic(one, block, fit.theta)
        for merge in self._merges(one):
            if len(fit.theta[0]) <= fewest:
                break
            smaller = merge(block, fit.theta[0], fewest)
            if smaller is None:
                break
            new = self._fitted(one, smaller)
            steps, found = steps + new.iterations, bic(one, smaller, new.theta)
            if found > criterion:
                break
            block, fit, criterion = smaller, new, found
        return Fit.plain(spread(fit.theta, block), Status.REGULARISED, steps)

    def _fitted(self, one: Likelihood, block: Blocks) -> Fit:
        return self.stepped(with_blocks(one, block), Status.STOPPED)

    def _merges(self, one: Likelihood) -> Iterator[Callable[[Blocks, Floats, int], Blocks | None]]:
        """Yield the merges in turn: each returns new blocks, or None where nothing is small enough."""
        small = 2.0 * deviation(one)
        window = one.operator.inputs
        while window > 1:
            window = -(-window // 2)
            if len(one.layout) == 1:
                yield lambda block, weights, fewest, width=window: merge_window(block, weights, fewest, small, width)
            else:
                yield lambda block, weights, fewest: merge_smallest(block, weights, fewest, small)


def deviation(one: Likelihood) -> float:
    """Return the standard deviation that stands for the protocol's: of an absent value, or where nothing is inverted the bound
    of Cramer and Rao for a single weight at equal shares (eq. 13).
    """
    op, n = one.operator, float(one.n[0])
    if op.votes:
        return float(np.sqrt(op.noise(uniform(one)).mean() / n))
    expected = op.forward(uniform(one))[0]
    weight = (expected if op.complete else one.shares[0]) / np.maximum(expected, 1e-300) ** 2
    return float(np.sqrt(1.0 / (n * op.curvature(weight).diagonal().mean())))


def bic(one: Likelihood, block: Blocks, weights: Floats) -> float:
    """Return -2 log L + K' log n."""
    return float(-2.0 * with_blocks(one, block).log_likelihood(weights)[0] + len(weights[0]) * np.log(one.n[0]))


def merge_smallest(block: Blocks, weights: Floats, fewest: int, small: float) -> Blocks | None:
    """Merge half of the blocks below the threshold, the smallest ones, into one (algorithm 1)."""
    below = np.flatnonzero(weights < small)
    number = min(max(2, -(-len(below) // 2)), len(weights) - fewest + 1)
    if len(below) < 2 or number < 2:
        return None
    chosen = below[np.argsort(weights[below], kind="stable")[:number]]
    renamed = np.arange(len(weights))
    renamed[chosen] = chosen[0]
    return renumbered(renamed[block])


def merge_window(block: Blocks, weights: Floats, fewest: int, small: float, width: int) -> Blocks | None:
    """Merge the ``width`` neighbouring blocks whose sum is smallest, if below the threshold (algorithm 3)."""
    width = min(width, len(weights) - fewest + 1)
    if width < 2:
        return None
    sums = np.convolve(weights, np.ones(width), mode="valid")
    first = int(sums.argmin())
    renamed = np.arange(len(weights))
    if sums[first] < small:
        renamed[first : first + width] = first
    return renumbered(renamed[block])


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer mixture reduction."""
    return [EmMr]
