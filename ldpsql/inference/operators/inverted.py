"""Operators that have too many values for a curvature, but an inversion whose errors are known."""

from __future__ import annotations

from abc import abstractmethod

from ldpsql.channels import Floats
from ldpsql.inference.operators.base import Ends, Operator


class InvertedOperator(Operator):
    """An operator whose errors are those of its inversion if it has more values than a curvature can be computed for."""

    @abstractmethod
    def inverted_functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return c'v for the inversion v, and its variance; for shapes see `Operator.functionals`."""

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the intervals around the debiased estimate; without a curvature, those of the inversion."""
        within = self.inverted_interval if self.isotropic else super().interval
        return within(shares, n, theta, z)

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return functionals of the debiased estimate; without a curvature, those of the inversion."""
        of = self.inverted_functionals if self.isotropic else super().functionals
        return of(shares, n, theta, c)
