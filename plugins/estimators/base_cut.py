"""BaseCut: keep what stands out from the noise.

Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency estimation with consistency", NDSS 2020;
both rules as in Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS
2025, section V-A and appendix E.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Floats, Likelihood, absent_error, hookimpl, simplex_projection


class BaseCut(Estimator):
    """Matrix inversion, then small shares become zero: those below ``cut`` standard deviations of an absent value.

    With ``rule := 'total'``, the largest shares are kept until their sum reaches one, and all others become zero. The shares
    that are kept are not scaled, so they need not sum to one.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[72.0, 28.0]]))
    >>> BaseCut().fit(coin).theta.round(2).tolist()
    [[0.94, 0.0]]
    >>> BaseCut(rule="total").fit(coin).theta.round(2).tolist()
    [[0.94, 0.06]]
    """

    name = "base_cut"
    distribution = False
    cut: Annotated[float, Field(ge=0, le=100)] = Field(2.0, description="threshold, in standard deviations")
    rule: Literal["noise", "total"] = Field(
        "noise",
        description="what stays: shares above the threshold ('noise'), or the largest until they sum to one ('total')",
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Invert every group and cut."""
        v = likelihood.operator.invert(likelihood.shares)
        if self.rule == "total":
            return Fit.inversion(np.where(largest(v), v, 0.0))
        return Fit.inversion(np.where(v > self.cut * absent_error(likelihood, simplex_projection(v)), v, 0.0))


def largest(shares: Floats) -> NDArray[np.bool_]:
    """Return which shares of each group are positive and among the largest, which are counted until they sum to one."""
    order = np.argsort(-shares, axis=-1, kind="stable")
    falling = np.take_along_axis(shares, order, axis=-1)
    before = falling.cumsum(axis=-1) - falling
    kept = np.zeros(shares.shape, dtype=bool)
    np.put_along_axis(kept, order, (before < 1.0) & (falling > 0), axis=-1)
    return kept


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer BaseCut."""
    return [BaseCut]
