"""Intervals of quantiles by likelihood ratios, under channels that hardly distinguish neighbouring values.

A value may be the q-quantile if some distribution with a share q up to it explains the reports nearly as well as the best one:
twice the logarithms differ by at most the square of a normal deviation. As shares are not negative, few such distributions are
far from the best one, though bounds of the share for any reports (see `ldpsql.inference.operators.weights`) are wide.

Source: Owen, "Empirical likelihood ratio confidence intervals for a single functional", Biometrika 1988. Batlle and others,
"Optimization-based frequentist confidence intervals for functionals in constrained inverse problems", 2023, show that the
deviation may be too small where shares are at zero; that ends are moved outwards makes up for it in the simulations.
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

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

_MOST_VALUES = 256  # beyond, a solve takes a second
_MOST = 1 << 14  # values, for each quantile of each group: about two seconds
_PULL = 1e3  # reports, for each real one, that say on which side of a cut a value lies: they fix the share
_TOLERANCE = 1e-8
_STEPS = 100


def narrowed(
    estimates: Estimates, rising: Ints, levels: tuple[float, ...], crossed: list[tuple[Ints, Ints]]
) -> list[tuple[Ints, Ints]]:
    """Return the first and the last value that may be each quantile: those of ``crossed`` that the likelihood ratio keeps.

    Those of very many values or groups, of weighted reports and of lists of reports stay as they are, and those for which there
    is no time.
    """
    likelihood = estimates.likelihood
    many = len(rising) > _MOST_VALUES or len(levels) * estimates.fit.theta.size > _MOST
    if many or likelihood.weights is not None or not likelihood.operator.complete:
        return crossed
    ends = np.array(crossed)  # (levels, 2, groups)
    with until(estimates.end), suppress(OutOfTime):
        for group, theta in enumerate(likeliest(likelihood, estimates.fit)):
            ratio = _Ratio(likelihood.group(group), theta, rising, deviations(estimates.estimator.confidence))
            for q, own in zip(levels, ends, strict=True):
                own[:, group] = ratio.among(q, *own[:, group].tolist())
    return [(first, last) for first, last in ends]


class _Ratio:
    """The likelihood ratio of one group for the share of the first values.

    Args:
        one: the likelihood.
        theta: its maximum.
        rising: the values in rising order.
        z: the normal deviation.

    """

    def __init__(self, one: Likelihood, theta: Floats, rising: Ints, z: float) -> None:
        self._one, self._table = one, one.operator.matrix()
        self._floor = float(one.log_likelihood(theta[None])[0]) - z**2 / 2
        self._place = np.argsort(rising)
        self._running = theta[rising].cumsum()

    def among(self, q: float, first: int, last: int) -> tuple[int, int]:
        """Return the first and the last value from ``first`` to ``last`` that may be the q-quantile.

        Where nearly all have one of a few values, the likeliest share up to such a value may miss those that it puts next to
        it. So ends are moved outwards as those of `crossings`, by one value at least.
        """
        at = min(max(int((self._running[:-1] < q).sum()), first), last)
        low, high = first - 1, at
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._possible(q, middle + 1) else (middle, high)
        least, low, high = high, at, last + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._possible(q, middle) else (low, middle)
        room = (low - least) // ROOM
        return max(first, least - room), min(last, low + room)

    def _possible(self, q: float, cut: int) -> bool:
        """Return whether a share q of the first ``cut`` values explains the reports well enough.

        The likelihood is concave, so it is nowhere higher than what its gradient g allows: see `Likelihood.gap`.
        """
        check()
        inside = self._place < cut
        theta = self._constrained(q, inside)
        g = self._one.gradient(theta)[0]
        highest = q * g[inside].max() + (1 - q) * g[~inside].max()
        return bool(self._one.log_likelihood(theta)[0] + self._one.n[0] * np.log(highest) >= self._floor)

    def _constrained(self, q: float, inside: NDArray[np.bool_]) -> Floats:
        """Return about the likeliest distribution with a share q inside, shape (1, values)."""
        sides = np.stack([inside, ~inside], axis=1).astype(np.float64)
        share = np.array([q, 1 - q])
        counts = np.concatenate([self._one.counts[0], _PULL * self._one.n[0] * share])
        both = Likelihood(DenseOperator(np.concatenate([self._table, sides], axis=1) / 2), counts[None])
        theta = solve(both, _TOLERANCE, Limits(_STEPS)).theta
        return theta * (sides @ (share / (theta @ sides)[0]))
