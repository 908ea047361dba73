"""Noise on the plane, truncated to a rectangle of a grid.

ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update and applications to mechanisms for privacy
protection", 2020, appendix B, equation 24 (geometric). Andres, Bordenabe, Chatzikokolakis, Palamidessi,
"Geo-indistinguishability: differential privacy for location-based systems", CCS 2013 (Laplace).
"""

from math import ceil

from ldpsql.mechanisms import Mechanism, PlanarMechanism, hookimpl


class PlanarGeometric(PlanarMechanism):
    """Planar geometric mechanism: P(z|x) ~ e^(-epsilon d(x,z)) on an infinite grid, then the nearest cell of the rectangle.

    Geo-indistinguishable: cells at distance d keep d * epsilon. Reports are cells.

    >>> PlanarGeometric(epsilon=1, columns=2, rows=2).channel().probabilities().round(3)[0].tolist()
    [0.455, 0.212, 0.212, 0.122]
    """

    name = "planar_geometric"


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
    """Offer the planar geometric and the planar Laplace mechanism."""
    return [PlanarGeometric, PlanarLaplace]
