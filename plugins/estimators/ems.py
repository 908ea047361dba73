"""EM with smoothing (EMS), for values with neighbours.

Li, Wang, Lopuhaa-Zwakenberg, Skoric, Li, "Estimating numerical distributions under local differential privacy", SIGMOD 2020,
section 5.5; Silverman, Jones, Wilson, Nychka, JRSS B 1990.
"""

from typing import Annotated

from pydantic import Field

from ldpsql.estimators import (
    Estimator,
    Fit,
    Floats,
    InvalidParameter,
    IterativeEstimator,
    Likelihood,
    NotApplicable,
    Status,
    StopField,
    hookimpl,
    smoothed,
)


class Ems(IterativeEstimator):
    """EM with smoothing: each step of IBU is followed by averaging neighbours with weights 1/4, 1/2, 1/4.

    A smaller ``weight`` of each neighbour smooths less. It is for numbers in order and, in both directions, for the cells of
    a grid. It is right for smooth distributions and wrong for spiky ones: ``best`` chooses. By default, steps are taken until
    the log-likelihood changes by less than ``tolerance``.

    >>> import numpy as np
    >>> from ldpsql.inference.operators import DenseOperator
    >>> exact = Likelihood(DenseOperator(np.eye(3)), np.array([[0.0, 10.0, 0.0]]), layout=(3,))
    >>> Ems(stop=1).fit(exact).theta.tolist()
    [[0.25, 0.5, 0.25]]
    """

    name = "ems"
    stop: StopField = Field("paper", description="'paper', 'held_out' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-3, description="largest change of the log-likelihood")
    weight: Annotated[float, Field(gt=0, le=0.25)] = Field(0.25, description="of each neighbour in the average")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Repeat expectation, maximisation and smoothing.

        Raises:
            NotApplicable: if the values have no neighbours.
            InvalidParameter: if ``stop`` is 'certified': a smoothed maximum is not a maximum.

        """
        if self.stop == "certified":
            raise InvalidParameter("ems has no certified maximum to stop at", self.signature())
        if not likelihood.layout:
            raise NotApplicable("ems smooths over neighbours, and these values have none", "use ibu, pool or best")
        return self.stepped(likelihood, Status.REGULARISED)

    def after(self, likelihood: Likelihood, theta: Floats) -> Floats:
        """Return the shares with each value averaged with its neighbours."""
        return smoothed(theta, likelihood.layout, self.weight)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer EMS."""
    return [Ems]
