"""Baselines: the uniform distribution, which uses no reports, and their own shares, as if they were not perturbed.

Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples", PoPETs 2018,
section 5.1 (Uniform and ObfDat).
"""

from ldpsql.estimators import Estimator, Fit, Likelihood, NotApplicable, Status, hookimpl, uniform


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


class Observed(Estimator):
    """Shares of the reports themselves: a biased baseline, for mechanisms whose reports are values of the domain.

    >>> import numpy as np
    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> coin = KeepOrSpreadOperator(2, 0.75, 0.25)
    >>> Observed().fit(Likelihood(coin, np.array([[90.0, 10.0]]), named=np.arange(2))).theta.tolist()
    [[0.9, 0.1]]
    """

    name = "observed"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Return the shares of the reports.

        Raises:
            NotApplicable: if reports are not values of the domain.

        """
        shares = likelihood.named_shares()
        if shares is None:
            raise NotApplicable("these reports are not values of the domain, so their shares mean nothing", "use ibu or best")
        return Fit.plain(shares, Status.BASELINE)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the baselines."""
    return [Uniform, Observed]
