"""The uniform distribution: the baseline that uses no reports.

Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples", PoPETs 2018,
section 5.1 (Uniform).
"""

from ldpsql.estimators import Estimator, Fit, Likelihood, Status, hookimpl, uniform


class Uniform(Estimator):
    """Uniform distribution: a baseline; an estimator that does worse has learnt nothing from the reports.

    >>> import numpy as np
    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> Uniform().fit(Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[90.0, 10.0]]))).theta.tolist()
    [[0.5, 0.5]]
    """

    name = "uniform"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Return equal shares."""
        return Fit.plain(uniform(likelihood), Status.BASELINE)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the uniform baseline."""
    return [Uniform]
