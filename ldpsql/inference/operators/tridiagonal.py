"""Maximum likelihood for a channel whose inverse is tridiagonal, by an interior point method linear in the number of values."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ldpsql.channels import Floats

MAX_STEPS = 60
TARGET = 1e-10  # of the gap
MOST = 5e-10  # largest gap with exact zeros
TOGETHER = 1 << 18  # values of all groups that are solved together: 80 bytes each, twice
_TO_THE_BORDER = 0.995
_FILL = 3  # bands on each side of the system, and as many again for those that pivoting adds


class Tridiagonal(Protocol):
    """M = tridiagonal(-decay, ``diagonal``, -decay) with P(report) = M^-1 theta, up to a factor for each report."""

    inputs: int
    decay: float
    diagonal: Floats

    def times(self, at: Floats) -> Floats:
        """Return M at."""

    def solve(self, at: Floats) -> Floats:
        """Return M^-1 at."""


def tridiagonal_maximum(problem: Tridiagonal, shares: Floats) -> Floats:
    """Return the maximum for each group of shares of reports, shape (groups, inputs).

    In v = M^-1 theta it minimises -sum q log v + m . v with m = M 1, where theta = M v >= 0; the slack s of that is 1 - g.
    Mehrotra's predictor-corrector method (Nocedal, Wright, "Numerical Optimization", 2nd ed., algorithm 14.3) keeps theta and s
    positive: first the step that would make all theta s zero, then one with centring and second-order terms. Each solves

        (q/v^2) dv - M ds = q/v - m + M s        M dv + (theta/s) ds = goal/s - theta

    with the unknowns interleaved, a band of width seven; eliminating ds would lose half of the digits. Groups are solved
    together, one after the other along the band, until each has ended.
    """
    together = max(1, TOGETHER // problem.inputs)
    return np.concatenate([_maxima(problem, shares[at : at + together]) for at in range(0, len(shares), together)])


def _maxima(problem: Tridiagonal, shares: Floats) -> Floats:
    theta, slack = np.full(shares.shape, 1.0 / problem.inputs), np.ones(shares.shape)
    m, gap, left = problem.times(np.ones(problem.inputs)), np.full(len(shares), np.inf), np.arange(len(shares))
    for _ in range(MAX_STEPS):
        before, gap[left] = gap[left], _gap(problem, shares[left], theta[left])
        # While the gap still falls fast, so do shares that should be 0.
        left = left[~((gap[left] <= TARGET) & (gap[left] > before / 10))]
        if not len(left):
            break
        q, t, s = shares[left], theta[left], slack[left]
        v = problem.solve(t)
        system = _Newton(problem, q / v**2, t, s, q / v - m + problem.times(s))
        step, change = system.solve(np.zeros_like(t))
        ahead, middle = _longest(t, step, s, change), (t * s).mean(axis=-1, keepdims=True)
        reached = ((t + ahead * step) * (s + ahead * change)).mean(axis=-1, keepdims=True)
        step, change = system.solve((reached / middle) ** 3 * middle - step * change)
        length = _longest(t, step, s, change)
        theta[left], slack[left] = t + length * step, s + length * change
    cut = np.where(theta > slack, theta, 0.0)
    chosen = np.where((_gap(problem, shares, cut) <= MOST)[:, None], cut, theta)
    return np.asarray(chosen / chosen.sum(axis=-1, keepdims=True))


def _gap(problem: Tridiagonal, shares: Floats, theta: Floats) -> Floats:
    """Return max g - 1 of each group, with g = M^-1 (q/v)."""
    ratios = np.divide(shares, problem.solve(theta), out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(problem.solve(ratios).max(axis=-1) * theta.sum(axis=-1) - 1.0)


def _longest(theta: Floats, step: Floats, slack: Floats, change: Floats) -> Floats:
    """Return the longest part of the moves, up to 1, that keeps both positive, shape (groups, 1)."""
    fastest = np.maximum((-step / theta).max(axis=-1), (-change / slack).max(axis=-1))
    return np.asarray(_TO_THE_BORDER / np.maximum(fastest, _TO_THE_BORDER))[:, None]


class _Newton:
    """The banded system of one step of all groups, factorised once for its two right-hand sides."""

    def __init__(self, problem: Tridiagonal, weights: Floats, theta: Floats, slack: Floats, dual: Floats) -> None:
        from scipy.linalg.lapack import dgbtrf  # noqa: PLC0415  # slow to import, needed for this structure only

        self._problem, self._theta, self._slack, self._dual = problem, theta, slack, dual
        # LAPACK's layout: entry (row, column) is bands[2 * _FILL + row - column, column]; of each group, rows and columns 2i
        # are those of dv_i, 2i + 1 those of ds_i.
        bands = np.zeros((3 * _FILL + 1, len(theta), 2 * problem.inputs))
        middle = bands[2 * _FILL - 3 :]  # by row - column + 3
        middle[3, :, 0::2], middle[3, :, 1::2] = weights, theta / slack
        middle[2, :, 1::2], middle[4, :, 0::2] = -problem.diagonal, problem.diagonal
        middle[0, :, 3::2], middle[4, :, 1:-2:2] = problem.decay, problem.decay
        middle[2, :, 2::2], middle[6, :, 0:-2:2] = -problem.decay, -problem.decay
        self._factors, self._pivots, _ = dgbtrf(bands.reshape(len(bands), -1), _FILL, _FILL)

    def solve(self, goal: Floats) -> tuple[Floats, Floats]:
        """Return the moves of theta and s that bring theta s to a goal, to first order."""
        from scipy.linalg.lapack import dgbtrs  # noqa: PLC0415

        right = np.stack([self._dual, goal / self._slack - self._theta], axis=-1)
        solved, _ = dgbtrs(self._factors, _FILL, _FILL, right.ravel(), self._pivots)
        moves = solved.reshape(right.shape)
        return self._problem.times(moves[..., 0]), moves[..., 1]
