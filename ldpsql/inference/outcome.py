"""What solvers and estimators return: shares for each group, the number of steps, and how the work ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats


class Status(Enum):
    """How an estimate came about; ``remedy`` says what to do next."""

    CERTIFIED = "certified"
    OUT_OF_STEPS = "out of steps"
    OUT_OF_TIME = "out of time"
    ROUNDED = "rounded"
    STOPPED = "stopped"
    INVERSION = "inversion"
    REGULARISED = "regularised"
    BASELINE = "baseline"

    __hash__ = object.__hash__  # that of enumerations runs in Python, and each of a million groups has a status

    @property
    def remedy(self) -> str:
        """What to do if this status is not the wanted one."""
        return _REMEDIES[self]

    @property
    def regularised(self) -> bool:
        """Whether the estimate is moved on purpose away from what the reports say: smoothed, shrunk, stopped early, or none."""
        return self in (Status.REGULARISED, Status.STOPPED, Status.BASELINE)


_OWN = "the intervals are those of the unbiased estimate and may leave this one out"
_REMEDIES = {
    Status.CERTIFIED: "nothing to do: the gap bounds what any other distribution could gain",
    Status.OUT_OF_STEPS: "raise max_iterations, or accept the gap",
    Status.OUT_OF_TIME: "raise deadline, or accept the gap",
    Status.ROUNDED: "nothing: rounding ends all progress here, and the gap is what double precision can certify",
    Status.STOPPED: f"stopped as requested; {_OWN}; use stop := 'certified' for the maximum of the likelihood",
    Status.INVERSION: "an unbiased inversion, not a maximum of the likelihood; use ibu for that",
    Status.REGULARISED: f"smoothed or shrunk on purpose; {_OWN}; use ibu for the maximum of the likelihood",
    Status.BASELINE: "a baseline to compare with, not an estimate; use best or ibu",
}


@dataclass(frozen=True)
class Fit:
    """The result of an estimator for each group: theta (groups, values), its steps and how it ended.

    ``chosen`` and ``reasons`` are the estimator used for each group, and why, if the estimator chooses among others.
    ``borrowed`` is which part of each group's estimate comes from other groups. ``errors`` are standard errors, low and high
    ends of a confidence of 95 %, each of shape (groups, values), if the estimator has its own.
    """

    theta: Floats
    iterations: NDArray[np.int64]
    status: tuple[Status, ...]
    chosen: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    borrowed: tuple[float, ...] = ()
    errors: tuple[Floats, Floats, Floats] | None = None

    @property
    def regularised(self) -> NDArray[np.bool_]:
        """Whether the estimate of each group is regularised, shape (groups,)."""
        regularised = {status: status.regularised for status in set(self.status)}
        return np.array([regularised[status] for status in self.status])

    @classmethod
    def plain(cls, theta: Floats, status: Status, iterations: NDArray[np.int64] | None = None) -> Fit:
        """Wrap an outcome that is the same for all groups; by default it took no steps."""
        steps = np.zeros(len(theta), np.int64) if iterations is None else iterations
        return cls(theta, steps, (status,) * len(theta))

    @classmethod
    def inversion(cls, theta: Floats) -> Fit:
        """Wrap the outcome of an inversion: no steps, no maximum."""
        return cls.plain(theta, Status.INVERSION)

    @classmethod
    def joined(cls, parts: Sequence[Fit]) -> Fit:
        """Return the outcomes of single groups as one."""
        counts = [len(part.theta) for part in parts]
        return cls(
            np.concatenate([part.theta for part in parts]),
            np.concatenate([part.iterations for part in parts]),
            tuple(s for part in parts for s in part.status),
            _filled([part.chosen for part in parts], counts),
            _filled([part.reasons for part in parts], counts),
        )

    def group(self, i: int) -> Fit:
        """Return the outcome of one group."""
        return self.of_groups(np.array([i]))

    def of_groups(self, rows: NDArray[np.int64]) -> Fit:
        """Return the outcomes of some groups, in this order."""
        texts = (self.status, self.chosen, self.reasons, self.borrowed)
        status, chosen, reasons, borrowed = (tuple(each[i] for i in rows) if each else () for each in texts)
        errors = self.errors and (self.errors[0][rows], self.errors[1][rows], self.errors[2][rows])
        return Fit(self.theta[rows], self.iterations[rows], status, chosen, reasons, borrowed, errors)

    def out_of_time(self) -> Fit:
        """Return the outcome as that of a solve that the deadline cut short."""
        return replace(self, status=(Status.OUT_OF_TIME,) * len(self.status))


def _filled(texts: Sequence[tuple[str, ...]], counts: Sequence[int]) -> tuple[str, ...]:
    """Return the texts of all groups; none if no group has any, and empty ones for groups without."""
    if not any(texts):
        return ()
    return tuple(text for part, count in zip(texts, counts, strict=True) for text in part or ("",) * count)


def sum_to_one(mean: Floats, variance: Floats, times: Floats | float = 1.0) -> Floats:
    """Return shares that sum to one along the last axis: the excess is subtracted in proportion to the variances.

    A share stands for ``times`` values. None becomes negative.
    """
    variance = np.maximum(variance, 1e-300)
    for _ in range(50):
        excess = (mean * times).sum(axis=-1, keepdims=True) - 1.0
        if (np.abs(excess) < 1e-12).all():
            break
        positive = variance * (mean > 0)
        mean = np.maximum(mean - positive * excess / (positive * times).sum(axis=-1, keepdims=True), 0.0)
    return np.asarray(mean)


def simplex_projection(v: Floats) -> Floats:
    """Return the nearest distribution in Euclidean distance, along the last axis.

    Source: Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient projections onto the l1-ball", ICML 2008, figure 1.
    """
    falling = -np.sort(-v, axis=-1)
    excess = falling.cumsum(axis=-1) - 1.0
    rank = np.arange(1, v.shape[-1] + 1)
    last = (falling - excess / rank > 0).sum(axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, last - 1, axis=-1) / last
    theta: Floats = np.maximum(v - shift, 0.0)
    return theta / theta.sum(axis=-1, keepdims=True)


def normalised(theta: Floats) -> Floats:
    """Return shares that sum to one: those of an inversion of set-valued reports do so only in expectation.

    If the sum of the shares is not positive, they are those of the nearest distribution.
    """
    total = theta.sum(axis=-1, keepdims=True)
    if (total > 0).all():
        return np.asarray(theta / total)
    return np.where(total > 0, theta / np.where(total > 0, total, 1.0), simplex_projection(theta))
