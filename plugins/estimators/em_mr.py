"""EM with mixture reduction (EM-MR).

Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, algorithms 1
(categories) and 3 (values in order).
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.estimators import (
    Blocks,
    Estimator,
    Fit,
    Floats,
    IterativeEstimator,
    Likelihood,
    Status,
    StopField,
    absent_error,
    hookimpl,
    renumbered,
    spread,
    uniform,
    with_blocks,
)


class EmMr(IterativeEstimator):
    """Mixture reduction: the smallest shares are merged and the rest fitted again, as long as BIC falls.

    Categories: at most half of the values below two standard deviations are merged into one at a time. Values in order: the
    window of neighbours with the smallest sum below that, half as wide each time. BIC = -2 log L + K' log n; at least
    ``keep_share`` of the values stay; a merged weight is spread equally.

    Each fit is EM stopped by the paper's rule, from equal shares: reduction of the exact maximum would merge only what is zero
    already. ``stop``, ``tolerance``, ``max_iterations`` are those of each fit.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(6, 0.3, 0.14), np.array([[300.0, 142.0, 138.0, 141.0, 139.0, 140.0]]))
    >>> EmMr(keep_share=0).fit(reports).theta.round(2).tolist()
    [[0.96, 0.01, 0.01, 0.01, 0.01, 0.01]]
    """

    name = "em_mr"
    stop: StopField = Field("paper", description="of each fit: 'paper', 'certified', 'held_out' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-3, description="largest change of the log-likelihood")
    keep_share: Annotated[float, Field(ge=0, le=1)] = Field(0.25, description="least share of the values to keep, K_min / K")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Reduce every group."""
        return self.each(likelihood, self._reduced)

    def _reduced(self, one: Likelihood) -> Fit:
        size, small = one.operator.inputs, 2.0 * deviation(one)
        fewest = max(2, round(self.keep_share * size))
        block, window = np.arange(size), size
        fit = self._fitted(one, block)
        steps, criterion = fit.iterations, bic(one, block, fit.theta)
        while window > 1:
            window = -(-window // 2)
            room = len(fit.theta[0]) - fewest + 1  # blocks that may become one
            if len(one.layout) == 1:
                smaller = merge_window(block, fit.theta[0], small, min(window, room))
            else:
                smaller = merge_smallest(block, fit.theta[0], small, room)
            if smaller.max() == block.max():  # nothing small enough; a narrower window may be
                continue
            new = self._fitted(one, smaller)
            steps, reduced = steps + new.iterations, bic(one, smaller, new.theta)
            if reduced > criterion:
                break
            block, fit, criterion = smaller, new, reduced
        return Fit.plain(spread(fit.theta, block), Status.REGULARISED, steps)

    def _fitted(self, one: Likelihood, block: Blocks) -> Fit:
        return self.stepped(with_blocks(one, block), Status.STOPPED)


def deviation(one: Likelihood) -> float:
    """Return the standard deviation of an absent value; without votes, Cramer and Rao's bound at equal shares.

    Source: Ye et al., section V-B and the inverse of (13).
    """
    op, n = one.operator, float(one.n[0])
    if op.votes:
        return float(absent_error(one, uniform(one)).mean())
    return float(np.sqrt(1.0 / (n * op.information(uniform(one)[0], one.shares[0]).diagonal().mean())))


def bic(one: Likelihood, block: Blocks, weights: Floats) -> float:
    """Return -2 log L + K' log n."""
    return float(-2.0 * with_blocks(one, block).log_likelihood(weights)[0] + len(weights[0]) * np.log(one.n[0]))


def merge_smallest(block: Blocks, weights: Floats, small: float, room: int) -> Blocks:
    """Merge half of the blocks below the threshold, the smallest ones and at most ``room``, into one (algorithm 1)."""
    below = np.flatnonzero(weights < small)
    number = min(max(2, -(-len(below) // 2)), len(below), room)
    chosen = below[np.argsort(weights[below], kind="stable")[:number]]
    renamed = np.arange(len(weights))
    renamed[chosen] = chosen.min(initial=len(weights))
    return renumbered(renamed[block])


def merge_window(block: Blocks, weights: Floats, small: float, width: int) -> Blocks:
    """Merge the ``width`` neighbouring blocks whose sum is smallest, if below the threshold (algorithm 3)."""
    width = max(1, min(width, len(weights)))
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
