"""BaseCut: keep what stands out from the noise.

Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency estimation with consistency", NDSS 2020;
the threshold as in Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS
2025, section V-A.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Likelihood, absent_error, hookimpl, simplex_projection


class BaseCut(Estimator):
    """Matrix inversion, then shares below ``cut`` standard deviations of an absent value become zero.

    The shares that are kept are unbiased and not scaled, so they need not sum to one.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[72.0, 28.0]]))
    >>> BaseCut().fit(coin).theta.round(2).tolist()
    [[0.94, 0.0]]
    """

    name = "base_cut"
    distribution = False
    cut: Annotated[float, Field(ge=0, le=100)] = Field(2.0, description="threshold, in standard deviations")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Invert every group and cut."""
        v = likelihood.operator.invert(likelihood.shares)
        return Fit.inversion(np.where(v > self.cut * absent_error(likelihood, simplex_projection(v)), v, 0.0))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer BaseCut."""
    return [BaseCut]
