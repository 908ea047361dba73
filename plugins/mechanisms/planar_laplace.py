"""The planar Laplace mechanism, discretised on a grid and truncated to a rectangle.

Andres, Bordenabe, Chatzikokolakis, Palamidessi, "Geo-indistinguishability: differential privacy for location-based systems",
CCS 2013.
"""

from math import ceil

from ldpsql.mechanisms import Mechanism, PlanarMechanism, hookimpl

_POINTS_PER_DECAY = 8  # the midpoint rule is then good to about 1e-3
_MOST_POINTS = 65


class PlanarLaplace(PlanarMechanism):
    """Planar Laplace mechanism: noise of density ~ e^(-epsilon d) around the centre of the cell, then the nearest cell.

    The density is summed over a fine pattern of points in every cell, which keeps the ratios exact. Geo-indistinguishable:
    cells at distance d keep d * epsilon. Reports are cells.

    >>> PlanarLaplace(epsilon=1, columns=2, rows=2).channel().probabilities().round(3)[0].tolist()
    [0.426, 0.223, 0.223, 0.129]
    """

    name = "planar_laplace"

    def points(self) -> int:
        """Return an odd number with about eight points in each length over which the density falls by a factor of e."""
        step = float(self.epsilon.value * self.side)
        return min(_MOST_POINTS, 2 * ceil(_POINTS_PER_DECAY * min(step, 8.0) / 2) + 1)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the planar Laplace mechanism."""
    return [PlanarLaplace]
