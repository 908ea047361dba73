"""The steps of the solver, each from a `Point` to the next one: `mle` chooses among them.

Newton steps minimise the quadratic model of the objective exactly, among all values or among some. Conjugate gradients make
such a step without a table of the curvature. Projected gradient steps, and SQUAREM, need no curvature.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.hashed import splitmix
from ldpsql.errors import IllConditioned, OutOfTime
from ldpsql.inference.limits import Limits, check
from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.weights import positive_solution
from ldpsql.inference.outcome import simplex_projection
from ldpsql.inference.solver.objective import Point, nearer

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
        solved = positive_solution(hessian.take(inside, 0).take(inside, 1), linear[inside]) if len(inside) else linear[inside]
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
            dx, ds = _centring_moves(system, x, slack, residual, np.zeros(size))
            ahead = min(_longest(x, dx), _longest(slack, ds))
            sigma = (float((x + ahead * dx) @ (slack + ahead * ds)) / size / mu) ** 3
            dx, ds = _centring_moves(system, x, slack, residual, sigma * mu - dx * ds)
        except np.linalg.LinAlgError:
            break
        length = 0.995 * min(_longest(x, dx), _longest(slack, ds))
        x, slack = x + length * dx, slack + length * ds
    return x, slack


def _centring_moves(system: Floats, x: Floats, slack: Floats, residual: Floats, goal: Floats) -> tuple[Floats, Floats]:
    """Return the moves of x and of its slack that bring x slack to a goal and the residual to zero, to first order."""
    dx = np.asarray(np.linalg.solve(system, -residual - (x * slack - goal) / x), dtype=np.float64)
    return dx, -slack - (slack * dx - goal) / x


def _longest(at: Floats, move: Floats) -> float:
    """Return the longest part of a move, up to 1, that keeps all numbers nonnegative."""
    shrinking = move < 0
    return min(1.0, float((-at[shrinking] / move[shrinking]).min())) if shrinking.any() else 1.0


MAX_VALUES = 1500  # in a model of all values; with more, the model is of some
MIN_WORKING = 500  # values in a model of some, unless more have shares: then twice as many
FAST_ENOUGH = 3.3  # a sampled curvature is used again while the gap falls by this factor
HALVINGS = 30
FIRST_VALUES = 400
EM_STEPS, NEAR = 100, 0.5


class NewtonStep:
    """Steps of one solve; a curvature that is a sample of many reports serves several steps."""

    def __init__(self) -> None:
        self._among: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._hessian: Floats = np.empty((0, 0))
        self._gap = np.inf

    def __call__(self, point: Point, stalled: int) -> Point:
        """Minimise the model of phi over theta >= 0, and move towards the minimum as far as phi falls.

        The ridge, relative to the largest curvature, keeps the model strictly convex. After steps without progress it is larger
        and also shortens the step.
        """
        working = _working(point)
        hessian = self._model(point, working)
        diagonal = np.einsum("ii->i", hessian)  # a view
        diagonal += min(1e-10 * 100.0**stalled, 1e-2) * diagonal.max()
        at = point.theta[working]
        move = np.zeros_like(point.theta)
        move[working] = nonnegative_quadratic(hessian, hessian @ at + point.gradient[working] - 1.0, at > 0) - at
        return backtracked(point, move)

    def _model(self, point: Point, working: NDArray[np.int64]) -> Floats:
        """Return the curvature among the working values."""
        if not point.operator.sampled:
            return point.curvature(working)
        fast, self._gap = point.gap < self._gap / FAST_ENOUGH, point.gap
        if not fast or not np.isin(working, self._among).all():
            self._among = np.arange(point.operator.inputs) if point.operator.inputs <= MAX_VALUES else working
            self._hessian = point.curvature(self._among)
        place = np.searchsorted(self._among, working)
        return self._hessian[np.ix_(place, place)]


def _working(point: Point) -> NDArray[np.int64]:
    """Return the values that have a share or nearly deserve one."""
    wanted = (point.theta > 0) | (point.gradient > 1.0 - min(0.05, 10.0 * point.gap))
    size = len(wanted)
    if wanted.sum() > 2 * size / 3 and size <= MAX_VALUES:
        return np.arange(size)
    if size > MAX_VALUES:  # those with shares first
        most = max(MIN_WORKING, 2 * int((point.theta > 0).sum()))
        wanted[np.lexsort((-point.gradient, -point.theta))[most:]] = False
    return np.flatnonzero(wanted)


def backtracked(point: Point, move: Floats) -> Point:
    """Halve the move until phi falls; a full move keeps its exact zeros, a halved one is followed by a step of IBU."""
    for halvings in range(HALVINGS):
        moved = np.maximum(point.theta + move * 0.5**halvings, 0.0)
        ahead = point.at(moved) if moved.any() else point
        if ahead.phi <= point.phi + ROUNDING and moved.any():
            return ahead if halvings == 0 else ahead.em()
    return point.em()


def thinned(point: Point, limits: Limits) -> Point:
    """Return a point with shares for some of very many values, chosen without a pattern; Newton steps add others they need."""
    size = len(point.theta)
    chosen = np.argsort(splitmix(np.arange(size, dtype=np.uint64)))[:FIRST_VALUES]
    theta = np.zeros(size)
    theta[chosen] = point.theta[chosen]
    point = point.at(theta)
    with suppress(OutOfTime):
        for _ in range(EM_STEPS):  # a share that is far too small grows by g in a step of IBU, only twofold in one of Newton's
            if point.gap < NEAR or limits.late:
                break
            point = point.em()
    return point


# Newton steps for maps of which very many cells have shares, as if the noise is small: the curvature is then well
# conditioned, and dozens of products with it, each by a few Fourier transforms, make a step. Quasi-Newton steps alone end at
# a gap of 1e-6: there the objective does not change any more in double precision, and the gradient still does.


MOST_PRODUCTS = 200  # with the curvature, in one step
ENOUGH = 1e-4  # of the gradient that a step leaves


def conjugate_step(point: Point, _stalled: int) -> Point:
    """Minimise the model of phi along the values that have a share or deserve one, and move there as far as phi falls."""
    free = (point.theta > 0) | (point.gradient > 1.0)
    return backtracked(point, _move_to_minimum(point, free))


def _move_to_minimum(point: Point, free: NDArray[np.bool_]) -> Floats:
    """Return the move that makes the gradient zero for the free values, to first order.

    Each value is measured in roots of the share of its reports. Source: Nocedal, Wright, "Numerical Optimization", 2nd ed.,
    algorithm 5.3.
    """
    scale = point.expected * free
    move, residual = np.zeros_like(point.theta), (point.gradient - 1.0) * free
    scaled = scale * residual
    ahead, left = scaled, float(residual @ scaled)
    enough = ENOUGH**2 * left
    for _ in range(MOST_PRODUCTS):
        if left <= enough:
            break
        check()
        bent = point.bent(ahead) * free
        length = left / float(ahead @ bent)
        move, residual = move + length * ahead, residual - length * bent
        scaled = scale * residual
        before, left = left, float(residual @ scaled)
        ahead = scaled + left / before * ahead
    return move


# Maxima over very many values of which few have shares, one in thirty of the cells of a city: projected quasi-Newton steps
# find these, and Newton steps end there. The curvature is that of these cells, and as noise reaches neighbours only, it is a
# sum over parts of the map: see `PlaneOperator.rough_curvature`.


MOST_VALUES = 6500  # in a table of the curvature among values
PATIENCE = 400  # steps that wait for a twelfth of the values, before as many as `MOST_VALUES` will do
FEW = 12
REMEMBERED = 10  # moves from which L-BFGS-B learns the curvature
LOOK = 10  # steps between two looks at the number of shares
RIDGES = (1e-9, 1e-6, 1e-4)  # of the largest curvature
ROOM = 8  # for each that has a share, an eighth more values may come in


def few_shares(point: Point, target: float, limits: Limits) -> Point:
    """Return the point at which the gap is small enough, few values have shares, or steps or time run out.

    Each share is measured in roots of its share at the start. Source: Byrd, Lu, Nocedal, Zhu, "A limited memory algorithm for
    bound constrained optimization", SIAM J. Sci. Comput. 1995.
    """
    from scipy.optimize import minimize  # noqa: PLC0415  # slow to import, needed for large maps only

    scale, latest = np.sqrt(point.theta), point

    def objective(scaled: Floats) -> tuple[float, Floats]:
        nonlocal latest
        latest = point.unscaled(scaled * scale)
        return latest.phi, (1.0 - latest.gradient) * scale

    def look(xk: Floats) -> None:  # SciPy passes it by this name
        gap = latest.theta.sum() * latest.gradient.max() - 1.0  # of theta scaled to sum to one
        if gap <= target or _few(xk, limits.steps) or not limits.take():
            raise StopIteration

    options = {"maxcor": REMEMBERED, "maxiter": limits.most, "maxfun": 10 * limits.most, "ftol": 0.0, "gtol": 0.0}
    with suppress(OutOfTime):
        minimize(
            objective, scale, jac=True, method="L-BFGS-B", bounds=((0.0, None),) * len(scale), callback=look, options=options
        )
    return nearer(point, point.at(latest.theta))


def _few(shares: Floats, steps: int) -> bool:
    """Return whether so few values have shares that Newton steps are quicker."""
    most = MOST_VALUES if steps > PATIENCE else min(MOST_VALUES, len(shares) // FEW)
    return bool(steps % LOOK == 0 and np.count_nonzero(shares) < most)


def face_step(point: Point, _stalled: int) -> Point:
    """Minimise the model of phi among the values that have a share or deserve one most, and move there as far as phi falls.

    If the curvature is nearly singular, a larger ridge lets the minimum be found.
    """
    working = _few_working(point)
    at, slope = point.theta[working], point.gradient[working] - 1.0
    hessian = point.curvature(working)
    diagonal = np.einsum("ii->i", hessian)  # a view
    for ridge in RIDGES:
        diagonal += ridge * diagonal.max()
        solved = block_pivoting(hessian, hessian @ at + slope, at > 0)
        if solved is not None:
            move = np.zeros_like(point.theta)
            move[working] = solved - at
            return backtracked(point, move)
    return point.em()


def _few_working(point: Point) -> NDArray[np.int64]:
    """Return the values with a share, and those without that deserve one most."""
    shares = np.flatnonzero(point.theta > 0)
    wanted = np.flatnonzero((point.theta <= 0) & (point.gradient > 1.0))
    order = np.argsort(-point.gradient[wanted], kind="stable")[: max(100, len(shares) // ROOM)]
    return np.union1d(shares, wanted[order])


class ProjectedStep:
    """Steps of one solve along the gradient, projected onto the simplex, with the curvature along the step before.

    Source: Birgin, Martinez, Raydan, "Nonmonotone spectral projected gradient methods on convex sets", SIAM J. Optim. 2000.
    """

    def __init__(self) -> None:
        self._before: Point | None = None
        self._curvature = 1.0

    def __call__(self, point: Point, stalled: int) -> Point:  # noqa: ARG002  # shorter moves would not end the stall
        """Move to the distribution nearest to theta + g / curvature; halve the move until the objective does not grow."""
        self._measure(point)
        self._before = point
        ahead = simplex_projection(point.theta + (point.gradient - 1.0) / self._curvature)
        for halvings in range(HALVINGS):
            moved = point.at(point.theta + (ahead - point.theta) * 0.5**halvings)
            if moved.phi <= point.phi + ROUNDING:
                return moved
        return point.em()

    def _measure(self, point: Point) -> None:
        """Take how fast the gradient changes along the last move, or the first one; rounding may leave no change to measure."""
        if self._before is None:
            direction = simplex_projection(point.theta + (point.gradient - 1.0)) - point.theta
            change = point.bent(direction)
        else:
            direction, change = point.theta - self._before.theta, self._before.gradient - point.gradient
        along = float(direction @ change)
        if along > 0:
            self._curvature = along / float(direction @ direction)


def inverted(point: Point) -> Point:
    """Return the distribution nearest to the inversion of the reports; the point if it is none, or rules a report out."""
    try:
        start = point.at(simplex_projection(point.operator.invert(point.shares[None]))[0])
    except IllConditioned:
        return point
    return start if np.isfinite(start.phi) else point


def squarem_step(point: Point, _stalled: int) -> Point:
    """Take two steps of IBU, or extrapolate them if phi falls further that way."""
    first = point.em()
    second = first.em()
    moved = first.theta - point.theta
    bent = second.theta - first.theta - moved
    length = float(np.linalg.norm(moved)) / max(float(np.linalg.norm(bent)), 1e-150)  # its square must not overflow
    if length <= 1.0:
        return second
    ahead = point.theta + 2.0 * length * moved + length**2 * bent
    # A share that falls to zero could not come back: it keeps a hundredth.
    extrapolated = point.at(np.maximum(ahead, 0.01 * second.theta)).em()
    return extrapolated if extrapolated.phi < second.phi else second
