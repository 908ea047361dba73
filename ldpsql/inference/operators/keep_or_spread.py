"""The likelihood of k-ary randomised response and of channels like it: everything has a closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Floats, KeepOrSpread, KeepOrWindow
from ldpsql.inference.operators.base import Ends, NamedOperator, Operator, operator
from ldpsql.inference.operators.product import StackOperator


class KeepOrSpreadOperator(NamedOperator):
    """``keep`` for the value itself, ``spread`` for each other: rank one and a diagonal."""

    def __init__(self, size: int, keep: float, spread: float) -> None:
        self.inputs = self.outputs = size
        self.keep, self.spread = keep, spread
        self.exchangeable = keep > spread
        self.injective = keep != spread  # a value that nobody reported has g < 1

    @property
    def _lift(self) -> float:
        return self.keep - self.spread

    def forward(self, theta: Floats) -> Floats:
        return self.spread * theta.sum(axis=-1, keepdims=True) + self._lift * theta

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z: the channel is symmetric."""
        return self.forward(w)

    def matrix(self) -> Floats:
        return np.full((self.inputs, self.inputs), self.spread) + self._lift * np.eye(self.inputs)

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        table = np.full((self.inputs, len(positions)), self.spread)
        table[positions, np.arange(len(positions))] = self.keep
        return table

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``: with a_z = spread + lift e_z it is a sum and a diagonal."""
        own = self._lift * w[among]
        table = self.spread * (self.spread * w.sum() + own[:, None] + own)
        table[np.diag_indices(len(own))] += self._lift * own
        return np.asarray(table)

    @property
    def votes(self) -> tuple[float, float]:
        """A report votes for the value that it names."""
        return self.spread, self.keep

    @cached_property
    def condition(self) -> float:
        """The eigenvalues are 1 and keep - spread."""
        return 1.0 / abs(self._lift) if self._lift else np.inf

    @cached_property
    def influence(self) -> float:
        """One report moves one share up and another down."""
        return self.condition

    def invert(self, shares: Floats) -> Floats:
        """Return (q - spread)/(keep - spread)."""
        return (shares - self.spread) / self._lift

    def maximum(self, shares: Floats) -> Floats | None:
        """Return the exact maximum: water-filling on the sorted shares, all groups at once.

        It solves g_x = 1 where theta_x > 0 and g_x <= 1 elsewhere, for keep > spread.
        Source: Pinzon, Palamidessi et al., arXiv 2601.08603.
        """
        if self._lift <= 0:
            return None
        falling = -np.sort(-shares, axis=-1)
        m = np.arange(1, self.inputs + 1)
        scale = falling.cumsum(axis=-1) / (self._lift + m * self.spread)
        active = falling > self.spread * scale  # true up to some m, false after it
        last = self.inputs - 1 - active[:, ::-1].argmax(axis=-1)
        chosen = np.take_along_axis(scale, last[:, None], axis=-1)
        theta: Floats = np.maximum(0.0, (shares / chosen - self.spread) / self._lift)
        return theta / theta.sum(axis=-1, keepdims=True)

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the intervals of the inversion: no estimate is more precise, and one step from any theta leads there."""
        return self.inverted_interval(shares, n, theta, z)

    def covariance(self, shares: Floats, theta: Floats) -> Floats:  # noqa: ARG002  # not needed
        """Return the multinomial covariance of the reports over (keep - spread)^2."""
        expected = self.forward(theta)
        return (np.diag(expected) - np.outer(expected, expected)) / self._lift**2

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return c applied to the inversion, and the multinomial variance: V is (diag(P) - P P')/(keep - spread)^2."""
        expected, inverted = self.forward(theta)[:, None, :], self.invert(shares)[:, None, :]
        mean = expected @ c
        variance = expected @ c**2 - mean**2
        return (inverted @ c)[:, 0], variance[:, 0] / (self._lift**2 * n[:, None])

    def contributions(self, shares: Floats, n: float, theta: Floats, c: Floats) -> Floats:  # noqa: ARG002  # linear in the shares
        """Return c for the value that a report names, over keep - spread."""
        return c / self._lift


@operator.register
def _(channel: KeepOrSpread) -> Operator:
    return KeepOrSpreadOperator(channel.size, channel.keep / TOTAL, channel.spread / TOTAL)


# The likelihood of k-ary randomised response with an epsilon for each user: keep-or-spread channels over one domain.

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


# The likelihood of a kept key with a number near the value: a constant, plus the same window on the bins of every key.


class KeepOrWindowOperator(NamedOperator):
    """``anything`` for each symbol, plus ``kept`` times the row of ``window`` for the symbols of the value's own key."""

    def __init__(self, keys: int, anything: float, window: Floats) -> None:
        self.keys, self.bins = keys, len(window)
        self.inputs = self.outputs = keys * self.bins
        self.anything, self.kept, self.window = anything, 1.0 - anything * self.inputs, window

    def _folded(self, x: Floats, window: Floats) -> Floats:
        near = (x.reshape(*x.shape[:-1], self.keys, self.bins) @ window).reshape(x.shape)
        return np.asarray(self.anything * x.sum(axis=-1, keepdims=True) + self.kept * near, dtype=np.float64)

    def forward(self, theta: Floats) -> Floats:
        return self._folded(theta, self.window)

    def adjoint(self, w: Floats) -> Floats:
        return self._folded(w, self.window.T)

    def matrix(self) -> Floats:
        return np.asarray(self.anything + self.kept * np.kron(np.eye(self.keys), self.window), dtype=np.float64)


@operator.register
def _(channel: KeepOrWindow) -> Operator:
    return KeepOrWindowOperator(channel.keys, channel.anything / TOTAL, channel.window.probabilities())
