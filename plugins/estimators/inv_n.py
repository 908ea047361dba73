"""Matrix inversion, normalised (INV-N).

Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under local privacy", ICML 2016, section 4.
"""

import numpy as np

from ldpsql.estimators import Estimator, Fit, Likelihood, hookimpl, simplex_projection


class InvN(Estimator):
    """Matrix inversion, then negative shares are set to zero and the rest is scaled to sum to one.

    If no share is positive, as in groups of one or two set-valued reports, the result is the nearest distribution.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[90.0, 10.0]]))
    >>> InvN().fit(coin).theta.tolist()
    [[1.0, 0.0]]
    """

    name = "inv_n"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Invert, clip and normalise every group."""
        v = likelihood.operator.invert(likelihood.shares)
        positive = np.where(v.max(axis=-1, keepdims=True) > 0, np.maximum(v, 0.0), simplex_projection(v))
        return Fit.inversion(positive / positive.sum(axis=-1, keepdims=True))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer INV-N."""
    return [InvN]
