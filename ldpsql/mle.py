"""Maximum likelihood on the simplex, with a certificate: max_theta sum_z q_z log(theta . a_z).

`maximise` is Newton's method with an exact quadratic programme in each step. It is judged by the gap G = max g - 1 of
`Likelihood.gap`, which bounds the distance to the maximum whatever was done to get there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.likelihood import Likelihood
from ldpsql.operators import Floats

EM_STEPS_FIRST = 20
STALLED_STEPS = 10  # Newton steps without progress before rounding is taken to be the limit
MAX_FACTORISATIONS = 25
SWAP_ALL_LIVES = 5
INTERIOR_STEPS = 50
ROUNDING = 1e-13


def em_step(likelihood: Likelihood, theta: Floats) -> Floats:
    """Return one step of IBU, kept on the simplex against rounding."""
    moved = theta * likelihood.gradient(theta)
    return moved / moved.sum(axis=-1, keepdims=True)


def uniform(likelihood: Likelihood) -> Floats:
    """Return the uniform distribution for each group."""
    k = likelihood.operator.inputs
    return np.full((len(likelihood.counts), k), 1.0 / k)


def maximise(likelihood: Likelihood, start: Floats, tolerance: float, max_iterations: int) -> tuple[Floats, int]:
    """Maximise the likelihood of one group; return theta, shape (1, inputs), and the number of Newton steps.

    Minimises phi(theta) = -sum_z q_z log(theta . a_z) + sum theta over theta >= 0, whose minimum sums to one (Kim,
    Carbonetto, Stephens, Anitescu, "A fast algorithm for maximum likelihood estimation of mixture proportions", JCGS 2020).
    Returns the iterate with the smallest gap: below ``tolerance``, unless the steps ran out or rounding ends all progress.
    """
    theta = start
    for _ in range(EM_STEPS_FIRST):
        theta = em_step(likelihood, theta)
    best, smallest, stalled = theta, float(likelihood.gap(theta)[0]), 0
    height = float(likelihood.log_likelihood(theta)[0])
    for step in range(max_iterations):
        if smallest <= tolerance or stalled == STALLED_STEPS:
            return best, step
        theta = _newton_step(likelihood, theta, ridge=min(1e-10 * 100.0**stalled, 1e-2))
        gap, risen = float(likelihood.gap(theta)[0]), float(likelihood.log_likelihood(theta)[0])
        # The gap may grow on the way (a value that is just coming in); the likelihood may not.
        progress = gap < smallest or risen - height > ROUNDING * likelihood.n[0]
        stalled = 0 if progress else stalled + 1
        height = risen
        if gap < smallest:
            best, smallest = theta, gap
    return best, max_iterations


def _newton_step(likelihood: Likelihood, theta: Floats, ridge: float) -> Floats:
    """Minimise the quadratic model of phi over theta >= 0 and move there as far as phi falls.

    The ridge, relative to the largest curvature, keeps the model strictly convex; a larger one also shortens the step.
    """
    gradient = likelihood.gradient(theta)[0]
    gap = gradient.max() - 1.0
    working = np.flatnonzero((theta[0] > 0) | (gradient > 1.0 - min(0.05, 10.0 * gap)))
    if len(working) > 2 * theta.shape[1] / 3:
        working = np.arange(theta.shape[1])
    expected = likelihood.operator.forward(theta)[0]
    seen = likelihood.counts[0] > 0
    weights = np.where(seen, likelihood.shares[0] / np.where(seen, expected, 1.0) ** 2, 0.0)
    hessian = likelihood.operator.curvature(weights, working)
    hessian[np.diag_indices_from(hessian)] += ridge * hessian.diagonal().max()
    at = theta[0, working]
    solved = nonnegative_quadratic(hessian, hessian @ at + gradient[working] - 1.0, at > 0)
    move = np.zeros_like(theta)
    move[0, working] = solved - at
    return _backtrack(likelihood, theta, move)


def _backtrack(likelihood: Likelihood, theta: Floats, move: Floats) -> Floats:
    """Halve the move until phi falls; a full move keeps its exact zeros, a cut one is followed by a step of IBU."""

    def phi(at: Floats) -> float:
        value = -float(likelihood.log_likelihood(at)[0] / likelihood.n[0]) + float(at.sum())
        return value if np.isfinite(value) else np.inf

    before = phi(theta)
    for halvings in range(30):
        moved = np.maximum(theta + move * 0.5**halvings, 0.0)
        if phi(moved) <= before + ROUNDING:
            moved = moved / moved.sum()
            return moved if halvings == 0 else em_step(likelihood, moved)
    return em_step(likelihood, theta)


def nonnegative_quadratic(hessian: Floats, linear: Floats, free: NDArray[np.bool_]) -> Floats:
    """Minimise x'Hx/2 - b'x over x >= 0, exact zeros included; ``free`` is a first guess of where x > 0."""
    solved = _block_pivoting(hessian, linear, free)
    if solved is None:  # nearly singular: come from the inside, then try once more for exact zeros
        inside, slack = _interior_point(hessian, linear)
        solved = _block_pivoting(hessian, linear, inside > slack)
        solved = inside if solved is None else solved
    return solved


def _block_pivoting(hessian: Floats, linear: Floats, free: NDArray[np.bool_]) -> Floats | None:
    """Guess the free variables, solve, swap those with the wrong sign; None where this does not settle.

    Source: Portugal, Judice, Vicente, "A comparison of block pivoting and interior-point algorithms for linear least squares
    problems with nonnegative variables", Math. Comp. 1994.
    """
    fewest, lives = len(linear) + 1, SWAP_ALL_LIVES
    for _ in range(MAX_FACTORISATIONS):
        x = np.zeros_like(linear)
        try:
            x[free] = np.linalg.solve(hessian[np.ix_(free, free)], linear[free])
        except np.linalg.LinAlgError:
            return None
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

        def newton(centre: Floats, system: Floats = system, residual: Floats = residual) -> tuple[Floats, Floats]:
            dx = np.linalg.solve(system, -residual - (x * slack - centre) / x)  # noqa: B023  # used within this step only
            return dx, -slack - (slack * dx - centre) / x  # noqa: B023

        try:
            dx, ds = newton(np.zeros(size))
            ahead = min(_room(x, dx), _room(slack, ds))
            sigma = (float((x + ahead * dx) @ (slack + ahead * ds)) / size / mu) ** 3
            dx, ds = newton(sigma * mu - dx * ds)
        except np.linalg.LinAlgError:
            break
        length = 0.995 * min(_room(x, dx), _room(slack, ds))
        x, slack = x + length * dx, slack + length * ds
    return x, slack


def _room(at: Floats, move: Floats) -> float:
    """Return how far, up to 1, one can move and stay nonnegative."""
    shrinking = move < 0
    return min(1.0, float((-at[shrinking] / move[shrinking]).min())) if shrinking.any() else 1.0
