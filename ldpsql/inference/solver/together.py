"""EM of all groups of a channel together: a step is one product of the channel with a table of groups x values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import OutOfTime
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Status

TINY = 1e-300  # instead of the probability zero of a report that nobody sent
Rows: TypeAlias = NDArray[np.int64]
# (likelihood of some groups, their theta, P(report) under theta, the numbers of the groups) -> the next theta of these groups
Step: TypeAlias = Callable[[Likelihood, Floats, Floats, Rows], Floats]


@dataclass(frozen=True)
class Ascent:
    """Where EM of every group ended: theta (groups, values), its log-likelihood, the number of steps, and how."""

    theta: Floats
    log_likelihood: Floats
    steps: Rows
    status: tuple[Status, ...]


def moved(part: Likelihood, theta: Floats, expected: Floats, _rows: Rows | None = None) -> Floats:
    """Return theta after one step of EM, scaled to sum to one in spite of rounding."""
    ahead = part.operator.adjoint(part.shares / expected)
    ahead *= theta
    ahead /= ahead.sum(axis=-1, keepdims=True)
    return ahead


def _expected(part: Likelihood, theta: Floats) -> Floats | None:
    """Return P(report) under theta; None if there is no time to compute it."""
    try:
        return np.maximum(part.operator.forward(theta), TINY)
    except OutOfTime:
        return None


def until_still(
    likelihood: Likelihood,
    start: Floats,
    tolerance: float,
    limits: Limits,
    step: Step = moved,
) -> Ascent:
    """Repeat a step in all groups, each until a step changes its log-likelihood by less than ``tolerance``.

    Groups that are done leave, so a step costs what the others need. A group alone ends where it ends among others, up to the
    rounding of the products.

    Args:
        likelihood: counts of the groups.
        start: shape (groups, values), above zero where a report needs it.
        tolerance: of the log-likelihood of all reports of a group.
        limits: the most steps of each group, and the deadline of all together.
        step: a step of EM, by default without anything after it.

    """
    groups = len(start)
    theta, height, steps = start.copy(), np.full(groups, -np.inf), np.zeros(groups, dtype=np.int64)
    ended = [Status.OUT_OF_STEPS] * groups
    going, part, here, before = np.arange(groups), likelihood, theta.copy(), height.copy()
    for taken in range(limits.most + 1):
        expected, late = _expected(part, here), limits.late
        risen, done = before, np.zeros(len(before), dtype=np.bool_)
        if expected is not None:
            risen = np.einsum("gz,gz->g", part.counts, np.log(expected))
            done = np.abs(risen - before) < tolerance
        leave = done | late | (taken == limits.most)
        if leave.any():
            left = going[leave]
            theta[left], height[left], steps[left] = here[leave], risen[leave], taken
            for group, by_rule in zip(left, done[leave], strict=True):
                ended[group] = Status.STOPPED if by_rule else Status.OUT_OF_TIME if late else Status.OUT_OF_STEPS
            going, here, risen = going[~leave], here[~leave], risen[~leave]
            part = likelihood.with_counts(likelihood.counts[going])
            expected = None if expected is None else expected[~leave]
        if expected is None or not len(going):
            break
        with suppress(OutOfTime):  # the next look at the clock ends the ascent
            here = step(part, here, expected, going)
        before = risen
    return Ascent(theta, height, steps, tuple(ended))
