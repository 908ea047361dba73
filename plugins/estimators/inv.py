"""Matrix inversion: the unbiased estimator.

Agrawal, Srikant, Thomas, "Privacy preserving OLAP", SIGMOD 2005.
"""

from ldpsql.estimators import Estimator, Fit, Likelihood, hookimpl


class Inv(Estimator):
    """Matrix inversion: unbiased, sums to one, may be negative.

    If several mechanisms drew the reports, their inverses are averaged by the numbers of reports. Equation 13 of Murakami,
    Hino and Sakuma (PoPETs 2018) averages them evenly, which is less precise unless these numbers are equal.

    >>> import numpy as np
    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[90.0, 10.0]]))
    >>> Inv().fit(coin).theta.round(3).tolist()
    [[1.3, -0.3]]
    """

    name = "inv"
    distribution = False

    def fit(self, likelihood: Likelihood) -> Fit:
        """Solve v A = q for every group."""
        return Fit.inversion(likelihood.operator.invert(likelihood.shares))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the plain inversion."""
    return [Inv]
