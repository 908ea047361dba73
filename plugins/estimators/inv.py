"""Matrix inversion: the unbiased estimator (INV), normalised (INV-N), and projected on the simplex (INV-P, NormSub).

Agrawal, Srikant, Thomas, "Privacy preserving OLAP", SIGMOD 2005 (INV). Kairouz, Bonawitz, Ramage, "Discrete distribution
estimation under local privacy", ICML 2016, section 4 (INV-N and INV-P).
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Floats, Likelihood, hookimpl, simplex_projection


class Inversion(Estimator):
    """What the inversions share: the unbiased shares, and how reports of several mechanisms weigh in them."""

    weigh: Literal["reports", "mechanisms"] = Field(
        "reports", description="what weighs the same if several mechanisms drew: each of the 'reports' or of the 'mechanisms'"
    )

    def weighed(self, likelihood: Likelihood) -> Likelihood:
        """Return the likelihood that inverts with these weights."""
        if self.weigh == "reports":
            return likelihood
        return replace(likelihood, operator=likelihood.operator.evenly())

    def inverted(self, likelihood: Likelihood) -> Floats:
        """Return v with v A = q for every group."""
        return self.weighed(likelihood).operator.invert(likelihood.shares)


class Inv(Inversion):
    """Matrix inversion: unbiased, sums to one, may be negative.

    If several mechanisms drew the reports, their inverses are averaged by the numbers of reports. ``weigh := 'mechanisms'``
    averages them evenly: equation 13 of Murakami, Hino and Sakuma (PoPETs 2018). That is more precise if the mechanisms with
    few reports are the exact ones, and less precise if all are alike.

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
        return Fit.inversion(self.inverted(likelihood))


class InvN(Inversion):
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
        v = self.inverted(likelihood)
        positive = np.where(v.max(axis=-1, keepdims=True) > 0, np.maximum(v, 0.0), simplex_projection(v))
        return Fit.inversion(positive / positive.sum(axis=-1, keepdims=True))


class InvP(Inversion):
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
        return Fit.inversion(simplex_projection(self.inverted(likelihood)))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the inversion as it is, normalised and projected."""
    return [Inv, InvN, InvP]
