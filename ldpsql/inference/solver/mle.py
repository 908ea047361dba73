"""Maximum likelihood on the simplex, with a certificate: max_theta sum_z q_z log(theta . a_z), for every group.

A structure with a closed form uses it. Otherwise the groups of a small table are solved together by the interior point method,
and any other group by itself: Newton steps with an exact quadratic programme in each, then the interior point method, then
SQUAREM. On large maps quasi-Newton steps come before those of Newton, which use a table of the curvature if few cells have
shares, and conjugate gradients if many have. The gap G = max g - 1 of `Likelihood.gap`, which bounds
the distance to the maximum, certifies every result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.caches import ByteCache
from ldpsql.errors import OutOfTime
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.solver.interior import SMALL, centred, from_inside, interior_maximum
from ldpsql.inference.solver.objective import Point, nearer
from ldpsql.inference.solver.steps import (
    MAX_VALUES,
    MOST_VALUES,
    NewtonStep,
    ProjectedStep,
    conjugate_step,
    face_step,
    few_shares,
    inverted,
    squarem_step,
    thinned,
)

# A cache of maxima, so that the functions of an estimate, and of a query, do not solve the same likelihood again.


_ENDED = (Status.CERTIFIED, Status.ROUNDED)
_OVERHEAD = 600  # bytes of an entry without its shares


@dataclass(frozen=True)
class Solved:
    """The maximum of one group, shape (values,), and how the solve ended, which was allowed ``most`` steps."""

    theta: Floats
    steps: int
    status: Status
    most: int

    def serves(self, most: int) -> bool:
        """Return whether a solve of at most this many steps would end the same way."""
        return self.most == most or (self.status in _ENDED and self.steps < most)


_SOLVED: ByteCache[bytes, Solved] = ByteCache(64 << 20, lambda _, solved: solved.theta.nbytes + _OVERHEAD)


def keys_of(likelihood: Likelihood, tolerance: float, start: Floats | None) -> list[bytes]:
    """Return for each group a digest of everything its maximum depends on."""
    common = blake2b(likelihood.operator.key + np.float64(tolerance).tobytes(), digest_size=16)
    parts = [likelihood.counts] if start is None else [likelihood.counts, start]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64)
    keys = []
    for row in rows:
        digest = common.copy()
        digest.update(row)
        keys.append(digest.digest())
    return keys


def remembered(keys: Sequence[bytes], most: int) -> list[Solved | None]:
    """Return the remembered maximum of each group, None if there is none for this number of steps."""
    solved = [_SOLVED.get(key) for key in keys]
    return [one if one is not None and one.serves(most) else None for one in solved]


def remember(keys: Sequence[bytes], fit: Fit, limits: Limits) -> list[Solved]:
    """Return the maxima of a fit, and remember them unless the deadline has passed.

    After the deadline, even a maximum whose gap is small enough may differ from the one that more time would give: if there are
    many maxima, it may not be their centre.
    """
    out, whole = [], not limits.late
    for key, theta, steps, status in zip(keys, fit.theta, fit.iterations, fit.status, strict=True):
        solved = Solved(theta.copy(), int(steps), status, limits.most)
        if whole:
            _SOLVED.put(key, solved)
        out.append(solved)
    return out


def joined(solved: Sequence[Solved]) -> Fit:
    """Return the maxima of all groups as one outcome."""
    theta = np.stack([one.theta for one in solved])
    return Fit(theta, np.array([one.steps for one in solved], dtype=np.int64), tuple(one.status for one in solved))


TOLERANCE = 1e-9
EM_STEPS_FIRST = 20
EM_STEPS_FIRST_LARGE = 5
LARGE = 3_000_000  # cells of a channel
FIRST_GRADIENTS = 60  # projected steps, after which Newton's are quicker
STALLED_STEPS = 10  # steps without progress, after which rounding is assumed to be the limit
ROUNDING = 1e-13
MAX_INTERIOR_CELLS = 1 << 22  # of a channel, for the interior point method
STACK = 1024  # groups at a time
MANY = 32  # groups whose closed forms are computed again instead of remembered
_EVEN = 1e-3  # the part of a beginning that is uniform, as a share of 0 stays 0

Step: TypeAlias = Callable[[Point, int], Point]  # a point and the number of steps without progress -> the next point


def uniform(likelihood: Likelihood) -> Floats:
    """Return the uniform distribution for each group."""
    k = likelihood.operator.inputs
    return np.full((len(likelihood.counts), k), 1.0 / k)


def begun(likelihood: Likelihood) -> Floats:
    """Return where a solve begins for each group: the uniform distribution, unless the operator has a better one."""
    begin = likelihood.operator.beginning(likelihood.shares)
    return uniform(likelihood) if begin is None else (1 - _EVEN) * begin + _EVEN / likelihood.operator.inputs


def em_step(likelihood: Likelihood, theta: Floats) -> Floats:
    """Return theta after one step of IBU, scaled to sum to one in spite of rounding."""
    moved = theta * likelihood.gradient(theta)
    return moved / moved.sum(axis=-1, keepdims=True)


def maximum_likelihood(
    likelihood: Likelihood, tolerance: float = TOLERANCE, limits: Limits | None = None, start: Floats | None = None
) -> Fit:
    """Return the maximum for each group, with its steps and its status; ``start`` is uniform by default.

    A remembered maximum is not solved again. Those of many groups in closed form are not remembered: to compute them together
    is quicker than to look them up.
    """
    many = start is None and len(likelihood.counts) > MANY
    if many and (closed := _closed(likelihood, tolerance)) is not None:
        return closed
    limits = limits or Limits()
    keys = keys_of(likelihood, tolerance, start)
    maxima = remembered(keys, limits.most)
    missing = [i for i, one in enumerate(maxima) if one is None]
    if len(missing) == len(keys):
        fit = solve(likelihood, tolerance, limits, start)
        remember(keys, fit, limits)
        return fit
    if missing:
        part = likelihood.with_counts(likelihood.counts[missing])
        fit = solve(part, tolerance, limits, None if start is None else start[missing])
        rest = iter(remember([keys[i] for i in missing], fit, limits))
        maxima = [next(rest) if one is None else one for one in maxima]
    return joined([one for one in maxima if one is not None])


def _closed(likelihood: Likelihood, tolerance: float) -> Fit | None:
    """Return the maxima of a channel that treats all values alike; None if it has no closed form that is certified."""
    theta = likelihood.operator.maximum(likelihood.shares) if likelihood.operator.exchangeable else None
    if theta is None or (likelihood.gap(theta) > tolerance).any():
        return None
    return Fit.plain(theta, Status.CERTIFIED)


def solve(
    likelihood: Likelihood, tolerance: float = TOLERANCE, limits: Limits | None = None, start: Floats | None = None
) -> Fit:
    """Return the maximum of the likelihood of every group as `maximum_likelihood` does, solved from scratch.

    Groups of up to 32 values are solved together. Neither these nor closed forms count steps.
    """
    limits = limits or Limits()
    theta, statuses = begun(likelihood) if start is None else start.copy(), [Status.CERTIFIED] * len(likelihood.counts)
    steps = np.zeros(len(theta), dtype=np.int64)
    for first in range(0, len(theta), STACK):
        group = np.arange(first, min(first + STACK, len(theta)))
        part = likelihood.with_counts(likelihood.counts[group])
        maxima, done = _at_once(part, tolerance)
        theta[group[done]] = maxima[done]
        left = group[~done]
        if start is None and len(left) > (0 if likelihood.operator.inputs <= SMALL else 1):  # few values: as among others
            theta[left] = _em_together(part.with_counts(part.counts[~done]), theta[left])
        for i in left:
            one = likelihood.group(int(i))
            with suppress(OutOfTime):
                theta[i : i + 1], steps[i] = maximise(one, theta[i : i + 1], tolerance, limits)
            statuses[i] = _ended(one, theta[i : i + 1], tolerance, limits)
    return Fit(theta, steps, tuple(statuses))


def _ended(one: Likelihood, theta: Floats, tolerance: float, limits: Limits) -> Status:
    """Return the status of one group; a gap that there is no time to compute certifies nothing."""
    try:
        return Status.CERTIFIED if one.gap(theta)[0] <= tolerance else limits.status
    except OutOfTime:
        return Status.OUT_OF_TIME


def _at_once(likelihood: Likelihood, tolerance: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Solve all groups together, by a closed form or if there are few values; return theta, and which groups are done."""
    op = likelihood.operator
    theta, clear = op.maximum(likelihood.shares), np.ones(len(likelihood.counts), dtype=np.bool_)
    if theta is None:
        if op.inputs > SMALL or op.inputs**2 * op.outputs > MAX_INTERIOR_CELLS:
            return uniform(likelihood), ~clear
        table = op.matrix()
        seen = table.any(axis=0)
        theta, clear = interior_maximum(table[:, seen], likelihood.shares[:, seen], _targets(likelihood, tolerance))
    return theta, clear & (likelihood.gap(theta) <= tolerance)


def _em_together(likelihood: Likelihood, theta: Floats) -> Floats:
    """Return theta of all groups after the first steps of IBU: cheaper together than one by one."""
    with suppress(OutOfTime):
        for _ in range(EM_STEPS_FIRST_LARGE if _large(likelihood) else EM_STEPS_FIRST):
            theta = em_step(likelihood, theta)
    return theta


def _large(likelihood: Likelihood) -> bool:
    return likelihood.operator.inputs * likelihood.operator.outputs > LARGE


def _targets(likelihood: Likelihood, tolerance: float) -> Floats:
    """Return the target of the gap: 1e-4/n leaves every linear functional within a hundredth of its standard error."""
    return np.minimum(tolerance, np.maximum(1e-4 / likelihood.n, 1e-12))


def maximise(likelihood: Likelihood, start: Floats, tolerance: float, limits: Limits | None = None) -> tuple[Floats, int]:
    """Maximise the likelihood of one group; return theta, shape (1, inputs), and the number of steps after the first of IBU.

    ``start`` is uniform or, for a warm start, any distribution; if it gives an observed report probability zero, it is mixed
    with the uniform distribution. The result is the iterate with the smallest gap. That is below ``tolerance``, unless steps or
    time ran out or rounding ends all progress.
    """
    limits = limits or Limits()
    limits.renew()
    target = float(_targets(likelihood, tolerance)[0])
    op = likelihood.operator
    if op.isotropic:
        best = along_gradients(Point(likelihood, start[0]), target, limits)
        if not limits.late and best.gap > tolerance and (best.theta > 0).sum() <= MAX_VALUES:
            best = _run(NewtonStep(), best, target, limits)
        return best.theta[None], limits.steps
    if op.large:
        limits.untimed(op.untimed)
        if op.local:
            best = few_shares(_first_steps(likelihood, start[0]), target, limits)
            few = np.count_nonzero(best.theta) <= MOST_VALUES
            return _run(face_step if few else conjugate_step, best, target, limits).theta[None], limits.steps
        return _run(squarem_step, _first_steps(likelihood, start[0]), target, limits).theta[None], limits.steps
    if op.even:
        best = along_gradients(Point(likelihood, start[0]), target, limits, FIRST_GRADIENTS)
    else:
        best = _first_steps(likelihood, start[0])
        best = thinned(best, limits) if op.inputs > MAX_VALUES else best
    best = _run(NewtonStep(), best, target, limits)
    if not limits.late and best.gap > tolerance and op.inputs * op.outputs <= MAX_INTERIOR_CELLS:
        best = nearer(best, from_inside(best, np.arange(op.inputs), target))
    if not limits.late and best.gap > tolerance:
        best = _run(squarem_step, best, target, limits)
    if not limits.late and best.gap <= tolerance and not op.injective:
        best = centred(best, target)
    return best.theta[None], limits.steps


def along_gradients(point: Point, target: float, limits: Limits, most: int | None = None) -> Point:
    """Return the maximum of the likelihood for many values or reports, or what ``most`` projected gradient steps reach.

    They begin at the inversion instead of the uniform distribution.
    """
    begin = inverted(point) if np.ptp(point.theta) == 0 or point.phi == np.inf else point
    return _run(ProjectedStep(), begin, target, limits, most)


def _first_steps(likelihood: Likelihood, start: Floats) -> Point:
    """Return the point after the first steps of IBU: many from the uniform distribution, one from any other."""
    point, size = Point(likelihood, start), likelihood.operator.inputs
    steps = EM_STEPS_FIRST_LARGE if _large(likelihood) else EM_STEPS_FIRST
    with suppress(OutOfTime):
        if point.phi == np.inf:
            point = point.at(0.999 * start + 0.001 / size)
        for _ in range(steps if np.ptp(start) == 0 else 1):
            point = point.em()
    return point


def _run(step: Step, point: Point, target: float, limits: Limits, most: int | None = None) -> Point:
    """Repeat a step, at most so often, until the gap is small enough; return the point with the smallest gap."""
    best, stalled, end = point, 0, limits.steps + (limits.most if most is None else most)
    with suppress(OutOfTime):
        while best.gap > target and stalled < STALLED_STEPS and limits.steps < end and limits.take():
            moved = step(point, stalled)
            # The gap may grow on the way (if a value is just coming in); the objective may not.
            stalled = 0 if moved.gap < best.gap or moved.phi < point.phi - ROUNDING else stalled + 1
            point, best = moved, nearer(best, moved)
    return best
