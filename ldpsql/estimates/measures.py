"""Estimates of one number with errors: what functionals return, and how intervals are cut to what the number can be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimates.linear import Linear
from ldpsql.estimates.uncertainty import holding
from ldpsql.inference.operators import Floats
from ldpsql.inference.score_intervals import cut

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

FIELDS = ("estimate", "std_error", "low", "high")  # that all numbers with errors have
_ROUNDING = 1e-12  # of the range: shares that sum to one may add up to a little more


@dataclass(frozen=True)
class Measure:
    """Estimates of one number, their standard errors and intervals, each of shape (groups,).

    For quantiles estimate, low and high are positions in the domain: the interval is from ``rounding`` below the one value to
    ``rounding`` above the other.
    """

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    rounding: float = 0.0

    @staticmethod
    def stacked(parts: Sequence[Measure]) -> Measure:
        """Return several numbers as one, each field of shape (groups, numbers)."""
        return _of((np.stack([getattr(part, name) for part in parts], axis=1) for name in FIELDS), parts[0].rounding)

    @staticmethod
    def joined(parts: Sequence[Measure]) -> Measure:
        """Return parts of several numbers as one, each field of shape (groups, numbers)."""
        return _of((np.concatenate([getattr(part, name) for part in parts], axis=1) for name in FIELDS), parts[0].rounding)

    def at(self, place: int) -> Measure:
        """Return one of several numbers."""
        return _of((getattr(self, name)[:, place] for name in FIELDS), self.rounding)

    def scaled(self, unit: float, zero: float = 0.0) -> Measure:
        """Return the numbers ``zero + unit * number``, with their errors and intervals."""
        return Measure(zero + unit * self.estimate, unit * self.std_error, zero + unit * self.low, zero + unit * self.high)


def _of(columns: Iterable[Floats], rounding: float) -> Measure:
    estimate, error, low, high = columns
    return Measure(estimate, error, low, high, rounding)


class Functional(ABC):
    """A number about a distribution over ordered values."""

    @abstractmethod
    def measure(self, estimates: Estimates) -> Measure:
        """Return the number for every group.

        Raises:
            InvalidDomain: if the values have no order.

        """


class TableFunctional(Functional):
    """A number about columns of a table, given by their places."""

    @property
    @abstractmethod
    def touched(self) -> frozenset[int]:
        """The places of the columns that the number depends on; none stands for all."""

    @abstractmethod
    def among(self, places: Sequence[int]) -> Self:
        """Return the same number for a table that has the columns at these places only."""


def around(estimates: Estimates, estimate: Floats | None, bounds: Linear, least: float, most: float) -> Measure:
    """Return an estimate of one functional with its interval `cut_to`; None stands for the unbiased estimate."""
    regularised = estimates.fit.regularised
    if estimate is None:  # may lie outside of what the functional can be
        estimate, regularised = bounds.centre[:, 0], np.zeros_like(regularised)
    return cut_to(Measure(estimate, bounds.std_error[:, 0], bounds.low[:, 0], bounds.high[:, 0]), least, most, regularised)


def cut_to(measure: Measure, least: Floats | float, most: Floats | float, regularised: NDArray[np.bool_]) -> Measure:
    """Cut intervals to [least, most], or make them all of it if the error is infinite; widen them to hold the estimate.

    The interval of a regularised estimate is that of the unbiased one, and is not widened: see `holding`.
    """
    finite = np.isfinite(measure.std_error)
    low, high = cut(measure.low, measure.high, (measure.high - measure.low) / 2, least, most)
    low, high = np.where(finite, low, least), np.where(finite, high, most)
    inside = np.clip(measure.estimate, least, most)
    rounded = np.abs(measure.estimate - inside) < _ROUNDING * (most - least)  # an inversion may really lie outside
    estimate = np.where(rounded, inside, measure.estimate)
    return Measure(estimate, measure.std_error, *holding(estimate, low, high, regularised))
