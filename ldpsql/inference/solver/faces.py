"""Maxima over very many values of which few have shares: projected quasi-Newton steps find these, and Newton steps end there.

The maximum for a map has shares in a few cells only, one in thirty of those of a city. There the curvature is that of these
cells, and as noise reaches neighbours only, it is a sum over parts of the map: see `PlaneOperator.rough_curvature`.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import OutOfTime
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.limits import Limits
from ldpsql.inference.solver.newton import backtracked
from ldpsql.inference.solver.objective import Point, nearer
from ldpsql.inference.solver.quadratic import block_pivoting

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
    working = _working(point)
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


def _working(point: Point) -> NDArray[np.int64]:
    """Return the values with a share, and those without that deserve one most."""
    shares = np.flatnonzero(point.theta > 0)
    wanted = np.flatnonzero((point.theta <= 0) & (point.gradient > 1.0))
    order = np.argsort(-point.gradient[wanted], kind="stable")[: max(100, len(shares) // ROOM)]
    return np.union1d(shares, wanted[order])
