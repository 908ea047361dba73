"""The planar geometric mechanism, truncated to a rectangle.

ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update and applications to mechanisms for privacy
protection", 2020, appendix B, equation 24.
"""

from ldpsql.mechanisms import Mechanism, PlanarMechanism, hookimpl


class PlanarGeometric(PlanarMechanism):
    """Planar geometric mechanism: P(z|x) ~ e^(-epsilon d(x,z)) on an infinite grid, then the nearest cell of the rectangle.

    Geo-indistinguishable: cells at distance d keep d * epsilon. Reports are cells.

    >>> PlanarGeometric(epsilon=1, columns=2, rows=2).channel().probabilities().round(3)[0].tolist()
    [0.455, 0.212, 0.212, 0.122]
    """

    name = "planar_geometric"


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the planar geometric mechanism."""
    return [PlanarGeometric]
