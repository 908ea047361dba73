"""The likelihood of k-ary randomised response with an epsilon for each user: keep-or-spread channels over one domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ldpsql.channels import Floats
from ldpsql.inference.operators.base import Ends, Operator
from ldpsql.inference.operators.keep_or_spread import KeepOrSpreadOperator
from ldpsql.inference.operators.stack import StackOperator

_MAX_STEPS = 100
_ROUNDING = 1e-15


class MixedKeepOrSpreadOperator(StackOperator):
    """A stack of keep-or-spread channels: its maximum has a closed form if all keep more often than they spread."""

    def __init__(self, parts: Sequence[KeepOrSpreadOperator], weights: Floats) -> None:
        super().__init__(parts, weights)
        self._spread = np.array([part.spread for part in parts])
        self._lift = np.array([part.keep - part.spread for part in parts])
        self.injective = bool((self._lift > 0).all())  # a value that nobody reported has g < 1

    def _levels(self, w: Floats) -> Floats:
        return w.reshape(*w.shape[:-1], len(self._lift), self.inputs)

    def maximum(self, shares: Floats) -> Floats | None:
        """Return the exact maximum for each group: one equation for each value and one for all."""
        if not (self._lift > 0).all():
            return None
        return np.stack([_separable_maximum(one, self._spread / self._lift) for one in self._levels(shares)])

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return standard error, low and high around the debiased estimate: the information is diagonal up to constants."""
        inverse, slope = self._inverse_information(shares, theta)
        total = inverse.sum(axis=-1, keepdims=True)
        centre = theta + inverse * (slope - (inverse * slope).sum(axis=-1, keepdims=True) / total)
        error = np.sqrt((inverse - inverse**2 / total) / n[:, None])
        return error, centre - z * error, centre + z * error

    def covariance(self, shares: Floats, theta: Floats) -> Floats:
        """Return n times the covariance of the debiased shares of one group, from the same diagonal."""
        inverse, _ = self._inverse_information(shares, theta)
        return np.diag(inverse) - np.outer(inverse, inverse) / inverse.sum()

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return the debiased c'theta and its variance, with the same diagonal."""
        inverse, slope = self._inverse_information(shares, theta)
        shifted = c - (inverse[:, None] @ c) / inverse.sum(axis=-1)[:, None, None]
        moved = inverse[..., None] * shifted
        centre = theta[:, None] @ c + slope[:, None] @ moved
        return centre[:, 0], (shifted * moved).sum(axis=1) / n[:, None]

    def _inverse_information(self, shares: Floats, theta: Floats) -> tuple[Floats, Floats]:
        """Return the inverse of the diagonal of the information, and g - 1."""
        expected = self._levels(self.forward(theta))
        diagonal = np.einsum("e,...ex->...x", (self.weights * self._lift) ** 2, 1.0 / expected)
        return 1.0 / diagonal, self.adjoint(shares / expected.reshape(shares.shape)) - 1.0


def _separable_maximum(shares: Floats, offsets: Floats) -> Floats:
    """Maximise sum_ex q_ex log(theta_x + b_e) over the simplex; ``shares`` has shape (levels, values).

    theta_x(c) solves sum_e q_ex / (theta_x + b_e) = c, or is 0 if that is below c at 0. Their sum is convex and falls with c,
    so Newton's method from a c that is too small approaches sum theta = 1 from one side.
    """
    c = float((shares / (1.0 + offsets[:, None])).sum(axis=0).max())
    for _ in range(_MAX_STEPS):
        theta, slope = _shares_at(c, shares, offsets)
        step = (theta.sum() - 1.0) / slope
        if step <= _ROUNDING * c:
            break
        c += step
    return theta / theta.sum()


def _shares_at(c: float, shares: Floats, offsets: Floats) -> tuple[Floats, float]:
    """Return theta(c), and how fast its sum falls with c; also by Newton's method from below."""
    theta = np.zeros(shares.shape[1])
    active = np.flatnonzero((shares / offsets[:, None]).sum(axis=0) > c)
    q, b = shares[:, active], offsets[:, None]
    total = q.sum(axis=0)
    at = np.maximum(0.0, total / c - (q * b).sum(axis=0) / total)  # below, as 1/(theta + b) is convex in b
    for _ in range(_MAX_STEPS):
        ratios = q / (at + b)
        steepness = (ratios / (at + b)).sum(axis=0)
        step = (ratios.sum(axis=0) - c) / steepness
        at += step
        if np.abs(step).max() <= _ROUNDING:
            break
    theta[active] = np.maximum(at, 0.0)
    return theta, float((1.0 / steepness).sum())


def stacked(parts: Sequence[Operator], weights: Floats) -> StackOperator:
    """Return the stack of some operators, the one with a closed form if all are keep-or-spread and none is the identity."""
    alike = [part for part in parts if isinstance(part, KeepOrSpreadOperator) and part.spread > 0]
    return MixedKeepOrSpreadOperator(alike, weights) if len(alike) == len(parts) else StackOperator(parts, weights)
