"""The exponential mechanism on a metric space.

McSherry, Talwar, "Mechanism design via differential privacy", FOCS 2007; for metric privacy: Chatzikokolakis, Andres,
Bordenabe, Palamidessi, PETS 2013.
"""

import numpy as np
from pydantic import Field

from ldpsql.mechanisms import (
    Channel,
    DomainField,
    EpsilonField,
    Mechanism,
    MetricMechanism,
    from_doubles,
    hookimpl,
    reduced,
)


class Exponential(MetricMechanism):
    """Exponential mechanism: P(z|x) ~ e^(-epsilon d(x,z)/2) on the declared values; normalising costs the factor 2.

    Values at distance d keep d * epsilon. Any distances that obey the triangle inequality will do.

    >>> Exponential(epsilon=2, domain=["a", "b"], distances=[[0, 1], [1, 0]]).channel().probabilities().round(3)[0].tolist()
    [0.731, 0.269]
    """

    name = "exponential"
    epsilon: EpsilonField = Field(description="privacy parameter per unit of distance")
    domain: DomainField = Field(description="the values that may occur, in a fixed order; on a grid, its cells row by row")

    def channel(self) -> Channel:
        """Return the rows, built for an epsilon that leaves room for rounding at the smallest distance."""
        metric = self.metric()
        step = self.epsilon.value * metric.nearest()
        rate = float(self.epsilon) * reduced(step) / float(step)
        return from_doubles(np.exp(-rate * metric.matrix() / 2), step)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the exponential mechanism."""
    return [Exponential]
