"""Quadratic programmes over nonnegative variables, solved with exact zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.positive import solution

MAX_FACTORISATIONS = 25
SWAP_ALL_LIVES = 5
INTERIOR_STEPS = 50
ROUNDING = 1e-13


def nonnegative_quadratic(hessian: Floats, linear: Floats, free: NDArray[np.bool_]) -> Floats:
    """Minimise x'Hx/2 - b'x over x >= 0, with exact zeros; ``free`` is a first guess of where x > 0."""
    solved = block_pivoting(hessian, linear, free)
    if solved is None:  # nearly singular: approach from the inside, then try once more for exact zeros
        inside, slack = _interior_point(hessian, linear)
        solved = block_pivoting(hessian, linear, inside > slack)
        solved = inside if solved is None else solved
    return solved


def block_pivoting(hessian: Floats, linear: Floats, free: NDArray[np.bool_]) -> Floats | None:
    """Guess the free variables, solve, swap those with the wrong sign; return None if this does not settle.

    Source: Portugal, Judice, Vicente, "A comparison of block pivoting and interior-point algorithms for linear least squares
    problems with nonnegative variables", Math. Comp. 1994.
    """
    fewest, lives = len(linear) + 1, SWAP_ALL_LIVES
    for _ in range(MAX_FACTORISATIONS):
        x, inside = np.zeros_like(linear), np.flatnonzero(free)
        solved = solution(hessian.take(inside, 0).take(inside, 1), linear[inside]) if len(inside) else linear[inside]
        if solved is None:
            return None
        x[inside] = solved
        slope = hessian @ x - linear
        wrong = np.where(free, x < 0, slope < -ROUNDING)
        count = int(wrong.sum())
        if not count:
            return x
        if count < fewest:
            fewest, lives = count, SWAP_ALL_LIVES
        else:
            lives -= 1
        if lives < 0:  # one at a time, the last one first (Murty, "Note on a Bard-type scheme", 1974)
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free = free ^ wrong
    return None


def _interior_point(hessian: Floats, linear: Floats) -> tuple[Floats, Floats]:
    """Solve the same programme by Mehrotra's predictor-corrector method; return x and its slack Hx - b, both positive.

    Source: Nocedal, Wright, "Numerical Optimization", 2nd ed., algorithm 16.4.
    """
    size = len(linear)
    x, slack = np.full(size, 1.0 / size), np.full(size, np.abs(linear).max() + 1.0 / size)
    for _ in range(INTERIOR_STEPS):
        residual = hessian @ x - linear - slack
        mu = float(x @ slack) / size
        if mu < ROUNDING / size and np.abs(residual).max() < ROUNDING:
            break
        system = hessian + np.diag(slack / x)
        try:
            dx, ds = _newton(system, x, slack, residual, np.zeros(size))
            ahead = min(_longest(x, dx), _longest(slack, ds))
            sigma = (float((x + ahead * dx) @ (slack + ahead * ds)) / size / mu) ** 3
            dx, ds = _newton(system, x, slack, residual, sigma * mu - dx * ds)
        except np.linalg.LinAlgError:
            break
        length = 0.995 * min(_longest(x, dx), _longest(slack, ds))
        x, slack = x + length * dx, slack + length * ds
    return x, slack


def _newton(system: Floats, x: Floats, slack: Floats, residual: Floats, goal: Floats) -> tuple[Floats, Floats]:
    """Return the moves of x and of its slack that bring x slack to a goal and the residual to zero, to first order."""
    dx = np.asarray(np.linalg.solve(system, -residual - (x * slack - goal) / x), dtype=np.float64)
    return dx, -slack - (slack * dx - goal) / x


def _longest(at: Floats, move: Floats) -> float:
    """Return the longest part of a move, up to 1, that keeps all numbers nonnegative."""
    shrinking = move < 0
    return min(1.0, float((-at[shrinking] / move[shrinking]).min())) if shrinking.any() else 1.0
