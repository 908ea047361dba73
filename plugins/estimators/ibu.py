"""The iterative Bayesian update: maximum likelihood, exact and certified.

ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update and applications to mechanisms for privacy
protection", 2020; first as EM reconstruction in Agrawal, Aggarwal, PODS 2001.
"""

from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from ldpsql import Estimator, Fit, InvalidParameter, Likelihood, Status, hookimpl
from ldpsql.budget import Budget
from ldpsql.mle import em_step, maximum_likelihood, uniform
from ldpsql.operators import Floats


def _stop(given: object) -> str:
    text = str(given)
    if text not in ("certified", "paper") and not (text.isdecimal() and text.isascii() and len(text) <= 7):
        raise InvalidParameter("stop must be 'certified', 'paper' or a number of steps", "for example stop := 100")
    return text


class Ibu(Estimator):
    """Iterative Bayesian update: the distribution that makes the reports most likely.

    By default the maximum itself, with a certified gap: in closed form for k-RR, by Newton steps otherwise. With a number as
    ``stop``, that many steps of theta <- theta * g from the uniform distribution (eq. 6); with 'paper', steps until the
    log-likelihood moves by less than ``tolerance``.

    >>> from ldpsql.registry import registry
    >>> coin = registry().mechanism("krr(epsilon=1, domain=['heads', 'tails'])")
    >>> import ldpsql
    >>> ldpsql.estimate(["heads"] * 6 + ["tails"] * 4, coin).estimate.round(3).tolist()
    [0.716, 0.284]
    """

    name = "ibu"
    stop: Annotated[str, BeforeValidator(_stop)] = Field("certified", description="'certified', 'paper' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-9, description="largest gap, or change of log-likelihood")
    max_iterations: Annotated[int, Field(ge=1, le=10_000_000)] = Field(10_000, description="most steps for each group")
    deadline: Annotated[float, Field(gt=0)] | None = Field(None, description="most seconds for all groups; NULL: no limit")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Maximise the likelihood of every group, or stop on the way as asked."""
        if self.stop != "certified":
            return self._step_by_step(likelihood)
        return maximum_likelihood(likelihood, self.tolerance, Budget(self.max_iterations, self.deadline))

    def _step_by_step(self, likelihood: Likelihood) -> Fit:
        budget = Budget(self.max_iterations if self.stop == "paper" else int(self.stop), self.deadline)
        parts = [self._stepped(likelihood.group(i), budget) for i in range(len(likelihood.counts))]
        theta = np.concatenate([p[0] for p in parts])
        return Fit(theta, np.array([p[1] for p in parts]), tuple(p[2] for p in parts))

    def _stepped(self, one: Likelihood, budget: Budget) -> tuple[Floats, int, Status]:
        theta, height = uniform(one), -np.inf
        budget.renew()
        while budget.take():
            risen = float(one.log_likelihood(theta)[0])
            if self.stop == "paper" and abs(risen - height) < self.tolerance:
                return theta, budget.steps - 1, Status.STOPPED
            theta, height = em_step(one, theta), risen
        asked = self.stop != "paper" and not budget.late
        return theta, budget.steps, Status.STOPPED if asked else budget.status


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer IBU."""
    return [Ibu]
