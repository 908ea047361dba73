"""The Gaussian mechanism in any number of dimensions, on declared points, with its exact delta.

Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, section V-B;
delta as in Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.
"""

from fractions import Fraction

import numpy as np
from pydantic import Field

from ldpsql.mechanisms import (
    ApproximateLdp,
    Channel,
    Domain,
    DomainField,
    EpsilonField,
    InvalidParameter,
    Mechanism,
    PointsField,
    ShareField,
    from_doubles,
    hookimpl,
)

_MOST = 256


class GaussianPoints(Mechanism):
    """Gaussian mechanism in d dimensions: a value is a point, and a report is another one, P(z|x) ~ e^(-|x-z|^2 / (2 s^2)).

    (epsilon, delta)-LDP between any two values. The deviation s is the smallest that keeps the finite channel within delta,
    which is then computed exactly. Choose the units of the coordinates so that equal distances matter equally.

    >>> square = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> GaussianPoints(epsilon=1, delta=1e-3, domain=range(4), points=square).channel().probabilities().round(3)[0].tolist()
    [0.388, 0.235, 0.235, 0.142]
    """

    name = "gaussian_points"
    epsilon: EpsilonField = Field(description="privacy parameter: together with delta, between any two values")
    delta: ShareField = Field(description="probability that may exceed epsilon, between 0 and 1")
    domain: DomainField = Field(description="the values that may occur, in a fixed order; at most 256")
    points: PointsField = Field(description="the coordinates of each value, as a list of lists")

    def values(self) -> Domain:
        """Return the declared domain.

        Raises:
            InvalidParameter: if there are too many values, or not one point for each.

        """
        if not len(self.domain) == len(self.points) <= _MOST:
            raise InvalidParameter(f"{self.name} needs one point for each value, and at most {_MOST} of them", self.signature())
        return self.domain

    def layout(self) -> tuple[int, ...]:
        """Return (): points are not in an order."""
        return ()

    def claim(self) -> ApproximateLdp:
        """Return (epsilon, delta)-LDP."""
        return ApproximateLdp(self.epsilon, self.delta)

    def channel(self) -> Channel:
        """Return the channel with the smallest deviation that keeps delta, by bisection."""
        self.values()
        moved = [[x - first for x, first in zip(point, self.points[0], strict=True)] for point in self.points]
        longest = max(abs(x) for point in moved for x in point)  # exact, as squares of doubles could overflow
        at = np.array([[float(x / longest) for x in point] for point in moved])
        squares = ((at[:, None] - at) ** 2).sum(axis=-1)
        grown, target = float(self.epsilon.exp_below()), float(self.delta) * (1 - 1e-6)  # whole weights move delta by far less
        low, high = 1e-9, 1e4  # precisions, in the longest distance; the first one makes all reports equally likely
        while high / low > 1 + 1e-7:
            middle = float(np.sqrt(low * high))
            fits = _delta(_rows(squares, middle), grown) <= target
            low, high = (middle, high) if fits else (low, middle)
        return from_doubles(_rows(squares, low), Fraction(1))


def _rows(squares: np.ndarray, precision: float) -> np.ndarray:
    """Return the channel whose deviation is the longest distance over ``precision``."""
    weights = np.exp(-squares * (precision**2 / squares.max() / 2))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _delta(rows: np.ndarray, grown: float) -> float:
    """Return by how much two rows exceed the ratio ``grown`` at most."""
    return max(float(np.maximum(row - grown * rows, 0.0).sum(axis=1).max()) for row in rows)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the Gaussian mechanism on points."""
    return [GaussianPoints]
