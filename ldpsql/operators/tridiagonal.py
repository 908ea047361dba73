"""Maximum likelihood for a channel whose inverse is tridiagonal, by an interior point method linear in the number of values."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ldpsql.operators.base import Floats

MAX_STEPS = 60
TARGET = 1e-10  # of the gap
MOST = 5e-10  # gap with exact zeros
_TO_THE_BORDER = 0.995
_FILL = 3  # bands on each side of the system, and as many again for what pivoting adds


class Tridiagonal(Protocol):
    """M = tridiagonal(-decay, ``diagonal``, -decay) with P(report) = const M^-1 theta, but for a factor for each report."""

    inputs: int
    decay: float
    diagonal: Floats

    def times(self, at: Floats) -> Floats:
        """Return M at."""

    def solve(self, at: Floats) -> Floats:
        """Return M^-1 at."""


def tridiagonal_maximum(problem: Tridiagonal, shares: Floats) -> Floats:
    """Return the maximum for one group of shares of reports.

    In v = M^-1 theta it minimises -sum q log v + m . v with m = M 1, where theta = M v >= 0; the slack s of that is 1 - g.
    Mehrotra's predictor-corrector method (Nocedal, Wright, "Numerical Optimization", 2nd ed., algorithm 14.3) keeps theta and s
    positive: first the step that would make all theta s zero, then one to a middle and second order. Each solves

        (q/v^2) dv - M ds = q/v - m + M s        M dv + (theta/s) ds = goal/s - theta

    with the unknowns interleaved, a band of width seven; eliminating ds would lose half of the digits.
    """
    size, gap = problem.inputs, np.inf
    theta, slack, m = np.full(size, 1.0 / size), np.ones(size), problem.times(np.ones(size))
    for _ in range(MAX_STEPS):
        before, gap = gap, _gap(problem, shares, theta)
        if gap <= TARGET and gap > before / 10:  # while it still falls fast, shares that should be 0 do too
            break
        v = problem.solve(theta)
        system = _Newton(problem, shares / v**2, theta, slack, shares / v - m + problem.times(slack))
        step, change = system.solve(np.zeros(size))
        ahead, middle = _room(theta, step, slack, change), float(theta @ slack) / size
        reached = float((theta + ahead * step) @ (slack + ahead * change)) / size
        step, change = system.solve((reached / middle) ** 3 * middle - step * change)
        length = _room(theta, step, slack, change)
        theta, slack = theta + length * step, slack + length * change
    cut = np.where(theta > slack, theta, 0.0)
    chosen = cut if _gap(problem, shares, cut) <= MOST else theta
    return chosen / chosen.sum()


def _gap(problem: Tridiagonal, shares: Floats, theta: Floats) -> float:
    """Return max g - 1, with g = M^-1 (q/v)."""
    ratios = np.divide(shares, problem.solve(theta), out=np.zeros_like(shares), where=shares > 0)
    return float(problem.solve(ratios).max() * theta.sum() - 1.0)


def _room(theta: Floats, step: Floats, slack: Floats, change: Floats) -> float:
    """Return how far, up to 1, both can move and stay positive."""
    fastest = max(float((-step / theta).max()), float((-change / slack).max()), _TO_THE_BORDER)
    return _TO_THE_BORDER / fastest


class _Newton:
    """The banded system of one step, factorised once for its two right-hand sides."""

    def __init__(self, problem: Tridiagonal, weights: Floats, theta: Floats, slack: Floats, dual: Floats) -> None:
        from scipy.linalg.lapack import dgbtrf  # noqa: PLC0415  # slow to import, needed for this structure only

        self._problem, self._theta, self._slack, self._dual = problem, theta, slack, dual
        # LAPACK's layout: entry (row, column) is bands[2 * _FILL + row - column, column]; rows and columns 2i are those of
        # dv_i, 2i + 1 those of ds_i.
        bands = np.zeros((3 * _FILL + 1, 2 * problem.inputs))
        middle = bands[2 * _FILL - 3 :]  # by row - column + 3
        middle[3, 0::2], middle[3, 1::2] = weights, theta / slack
        middle[2, 1::2], middle[4, 0::2] = -problem.diagonal, problem.diagonal
        middle[0, 3::2], middle[4, 1:-2:2] = problem.decay, problem.decay
        middle[2, 2::2], middle[6, 0:-2:2] = -problem.decay, -problem.decay
        self._factors, self._pivots, _ = dgbtrf(bands, _FILL, _FILL, overwrite_ab=1)

    def solve(self, goal: Floats) -> tuple[Floats, Floats]:
        """Return the moves of theta and s that bring theta s to a goal, to first order."""
        from scipy.linalg.lapack import dgbtrs  # noqa: PLC0415

        right = np.empty(2 * len(goal))
        right[0::2], right[1::2] = self._dual, goal / self._slack - self._theta
        moves, _ = dgbtrs(self._factors, _FILL, _FILL, right, self._pivots)
        return self._problem.times(moves[0::2]), moves[1::2]
