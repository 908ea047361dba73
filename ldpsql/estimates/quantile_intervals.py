"""Intervals of quantiles by likelihood ratios, under channels that hardly distinguish neighbouring values.

A value may be the q-quantile if some distribution with a share q up to it explains the reports nearly as well as the best one:
twice the difference of the log-likelihoods is at most the square of a normal deviation. As shares are not negative, few such
distributions are far from the best one, though bounds of the share for any reports (see `ldpsql.inference.operators.weights`)
are wide.

Sources: Owen, "Empirical likelihood ratio confidence intervals for a single functional", Biometrika 1988. Rao, Scott, "On
chi-squared tests for multiway contingency tables with cell proportions estimated from survey data", Annals of Statistics 1984,
for rows with weights. Batlle and others, "Optimization-based frequentist confidence intervals for functionals in constrained
inverse problems", 2023, show that the deviation may be too small if shares are zero: ends are moved outwards for that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import OutOfTime
from ldpsql.estimates.bands import ROOM
from ldpsql.estimates.uncertainty import likeliest
from ldpsql.inference.deadline import check, until
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import DenseOperator, Floats, Ints
from ldpsql.inference.score_intervals import deviations
from ldpsql.inference.solver.limits import Limits
from ldpsql.inference.solver.mle import solve
from ldpsql.inference.weighted import ratio

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

_MOST_VALUES = 256
_MOST = 1 << 21  # cells of the channel, for each quantile: a second or two for each group
_PULL = 1e3  # reports, for each real one, that say on which side of a cut a value lies: they fix the share
_EVEN = 1e-3  # the part of a beginning that is uniform, as a share of 0 stays 0
_TOLERANCE = 1e-8
_STEPS = 100


def by_ratios(estimates: Estimates, rising: Ints, levels: tuple[float, ...]) -> list[tuple[Ints, Ints]] | None:
    """Return for each level the first and the last value that may be the quantile of each group, counted in rising order.

    Returns None for more values, reports and levels than it has time for. How many groups there are does not count: the
    interval of a group is the same among others.
    """
    likelihood, groups = estimates.likelihood, len(estimates.fit.theta)
    if len(rising) > _MOST_VALUES or len(levels) * len(rising) * likelihood.operator.outputs > _MOST:
        return None
    ends = np.empty((len(levels), 2, groups), dtype=np.int64)
    with until(estimates.end), suppress(OutOfTime):
        for group, theta in enumerate(likeliest(likelihood, estimates.fit)):
            one = _Ratio(likelihood.group(group), theta, rising, deviations(estimates.estimator.confidence))
            for q, own in zip(levels, ends, strict=True):
                own[:, group] = one.possible(q)
        return [(first, last) for first, last in ends]
    return None


class _Ratio:
    """The likelihood ratio of one group for the share of the first values.

    Args:
        one: the likelihood.
        theta: its maximum.
        rising: the values in rising order.
        z: the normal deviation.

    """

    def __init__(self, one: Likelihood, theta: Floats, rising: Ints, z: float) -> None:
        self._one, self._table, self._z = one, one.operator.matrix(), z
        self._begin = (1 - _EVEN) * theta[None] + _EVEN / len(theta)
        self._chances, self._most = one.operator.forward(theta[None])[0], one.log_likelihood(theta[None])[0]
        self._place, self._running = np.argsort(rising), theta[rising].cumsum()

    def possible(self, q: float) -> tuple[int, int]:
        """Return the first and the last value that may be the q-quantile, found by bisection, and moved outwards a little."""
        at, size = int((self._running[:-1] < q).sum()), len(self._running)
        low, first = -1, at
        while first - low > 1:
            middle = (low + first) // 2
            low, first = (low, middle) if self._explains(q, middle + 1) else (middle, first)
        last, high = at, size
        while high - last > 1:
            middle = (last + high) // 2
            last, high = (middle, high) if self._explains(q, middle) else (last, middle)
        room = (last - first) // ROOM
        return max(first - room, 0), min(last + room, size - 1)

    def _explains(self, q: float, cut: int) -> bool:
        """Return whether a share q of the first ``cut`` values explains the reports well enough.

        The likelihood is concave, so it is nowhere higher than what its gradient g allows: see `Likelihood.gap`.
        """
        check()
        inside = self._place < cut
        theta = self._constrained(q, inside)
        g = self._one.gradient(theta)[0]
        highest = q * g[inside].max() + (1 - q) * g[~inside].max()
        below = self._most - self._one.log_likelihood(theta)[0] - self._one.n[0] * np.log(highest)
        return bool(2 * below <= self._z**2 * self._of_weights(theta))

    def _constrained(self, q: float, inside: NDArray[np.bool_]) -> Floats:
        """Return about the likeliest distribution with a share q inside, shape (1, values)."""
        sides = np.stack([inside, ~inside], axis=1).astype(np.float64)
        share = np.array([q, 1 - q])

        def scaled(theta: Floats) -> Floats:
            return np.asarray(theta * (sides @ (share / (theta @ sides)[0])))

        counts = np.concatenate([self._one.counts[0], _PULL * self._one.n[0] * share])
        both = Likelihood(DenseOperator(np.concatenate([self._table, sides], axis=1) / 2), counts[None])
        return scaled(solve(both, _TOLERANCE, Limits(_STEPS), scaled(self._begin)).theta)

    def _of_weights(self, theta: Floats) -> float:
        """Return by how much weights change the variance of the difference of the log-likelihoods, a sum over reports."""
        seen = self._one.counts[0] > 0
        moved = np.log(self._chances[seen] / self._one.operator.forward(theta)[0, seen])[:, None]
        return float(ratio(moved, self._one.shares[0, seen], self._one.squares[0, seen])[0])
