"""Matrix inversion, projected on the simplex (INV-P), also known as NormSub.

Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under local privacy", ICML 2016, section 4.
"""

from ldpsql.estimators import Estimator, Fit, Likelihood, hookimpl, simplex_projection


class InvP(Estimator):
    """Matrix inversion, then the nearest distribution in Euclidean distance.

    >>> import numpy as np
    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[90.0, 10.0]]))
    >>> InvP().fit(coin).theta.tolist()
    [[1.0, 0.0]]
    """

    name = "inv_p"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Invert and project every group."""
        return Fit.inversion(simplex_projection(likelihood.operator.invert(likelihood.shares)))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer INV-P."""
    return [InvP]
