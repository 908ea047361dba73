"""The estimator that predicts held-out reports best."""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql import Estimator, Fit, Likelihood, hookimpl
from ldpsql.errors import IllConditioned, NotApplicable
from ldpsql.iteration import IterativeEstimator
from ldpsql.operators import Floats
from ldpsql.registry import registry
from ldpsql.resampling import folds

PLAIN = "ibu"
SHRUNK = ("empirical_bayes(loss='absolute')", "empirical_bayes", "pool")
STOPPED = ("ibu(stop='held_out')",)  # for channels without votes, where noise is large at fine detail: thousands of steps
SMOOTHED = ("ems(stop='held_out')",)
LEAST_GAIN = 1.0  # in log-likelihood: less is gained by any choice among so many


class Best(Estimator):
    """The maximum of the likelihood, or an estimator that predicts held-out reports better: it says which, and by how much.

    Each rival in turn takes the place of the best so far where the log-likelihood of the held-out reports rises by more than
    1 and than ``margin`` standard errors of the rise, so that without evidence the plain maximum stays. ``ldp.diagnose``
    shows the choice as ``chosen`` and ``reason``. Every rival is fitted once for each of ``splits`` folds, which takes from
    ten milliseconds to a second a group.

    >>> from ldpsql.operators import KeepOrSpreadOperator
    >>> few = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[60.0, 40.0]]))
    >>> Best().fit(few).chosen
    ('ibu()',)
    """

    name = "best"
    margin: Annotated[float, Field(ge=0, le=10)] = Field(0.5, description="least gain to leave ibu, in standard errors")
    splits: Annotated[int, Field(ge=2, le=20)] = Field(5, description="folds that the reports are split into")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Choose for every group, and estimate with the choice."""
        return Fit.joined([self._chosen(likelihood.group(i)) for i in range(len(likelihood.counts))])

    def _chosen(self, one: Likelihood) -> Fit:
        learnt, held_out = folds(one, self.splits)
        chosen, reason = registry().estimator(PLAIN), "no rival predicts held-out reports better"
        height = predicted(chosen, learnt, held_out)[1]
        for text in rivals(one):
            try:
                rival, found = predicted(registry().estimator(text), learnt, held_out)
            except (NotApplicable, IllConditioned):
                continue
            gain, error = gained(held_out, height, found)
            if gain > max(LEAST_GAIN, self.margin * error):
                reason = f"log-likelihood of held-out reports {gain:+.1f} +- {error:.1f} over {chosen.name}"
                chosen, height = rival, found
        fit = chosen.fit(one)
        return Fit(fit.theta, fit.iterations, fit.status, (str(chosen),), (reason,))


def rivals(one: Likelihood) -> tuple[str, ...]:
    """Return the estimators that may do better than the plain maximum, the most cautious first."""
    return SHRUNK + (() if one.operator.votes else STOPPED) + (SMOOTHED if one.layout else ())


def predicted(estimator: Estimator, learnt: Likelihood, held_out: Likelihood) -> tuple[Estimator, Floats]:
    """Return the estimator, a stop found by the same folds, and the chances it gives to the held-out reports of each fold."""
    if isinstance(estimator, IterativeEstimator) and estimator.stop == "held_out":
        steps = estimator.held_out_steps(learnt, held_out, estimator.started(learnt)[:1], estimator.limits())[0]
        estimator = registry().estimator({"estimator": estimator.name, "stop": steps})
    return estimator, learnt.operator.forward(estimator.fit(learnt).theta)


def gained(held_out: Likelihood, before: Floats, after: Floats) -> tuple[float, float]:
    """Return by how much the log-likelihood of the held-out reports rises, and the standard error of that."""
    seen = held_out.counts > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(seen, np.log(np.where(seen, after, 1.0)) - np.log(np.where(seen, before, 1.0)), 0.0)
    rise = np.nan_to_num(rise, nan=0.0, posinf=50.0, neginf=-50.0)  # a chance of zero: as bad as e^-50
    total, n = float((held_out.counts * rise).sum()), max(1.0, float(held_out.n.sum()))
    return total, float(np.sqrt(max((held_out.counts * rise**2).sum() - total**2 / n, 0.0)))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the choice by held-out reports."""
    return [Best]
