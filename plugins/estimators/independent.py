"""The product of the margins of a table, and the way from there to the maximum of the likelihood."""

from ldpsql.estimators import Estimator, Floats, Likelihood, TableEstimator, hookimpl, outer, shares_of
from ldpsql.functions import registry


class Independent(TableEstimator):
    """Product of the margins: the joint table if columns were independent, corrected as far as held-out reports say.

    The shares of each column are estimated from its own reports by ``best``. From their product, steps of IBU lead to the
    maximum of the likelihood; 'held_out' takes as many as best predict held-out reports, ``stop := 0`` returns the product.
    Small tables gain little; of large ones, most cells are too rare to be estimated by themselves. One column is estimated by
    ``best``.

    >>> import ldpsql
    >>> two = "row(a=krr(8, [0, 1]), b=krr(8, [0, 1]))"
    >>> rows = [{"a": 0, "b": 0}] * 600 + [{"a": 1, "b": 0}] * 200 + [{"a": 0, "b": 1}] * 200
    >>> ldpsql.estimate(rows, two, "independent(stop=0)").estimate.round(1).tolist()
    [0.6, 0.2, 0.2, 0.0]
    """

    name = "independent"

    def model(self, likelihood: Likelihood) -> Floats:
        """Return the product of the margins."""
        single = self.plain()
        return outer([shares_of(likelihood, [j], single) for j in range(len(likelihood.variables))])

    def plain(self) -> Estimator:
        """Return the estimator of single columns."""
        return registry().estimator("best")


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the product of the margins."""
    return [Independent]
