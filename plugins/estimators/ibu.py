"""The iterative Bayesian update: maximum likelihood, exact and certified.

ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update and applications to mechanisms for privacy
protection", 2020; first as EM reconstruction in Agrawal, Aggarwal, PODS 2001.
"""

from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from ldpsql import Estimator, Fit, InvalidParameter, Likelihood, Status, hookimpl
from ldpsql.mle import em_step, maximise, uniform
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
    max_iterations: Annotated[int, Field(ge=1, le=10_000_000)] = Field(10_000, description="most steps")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Maximise the likelihood of every group, or stop on the way as asked."""
        if self.stop != "certified":
            return self._step_by_step(likelihood)
        exact = likelihood.operator.maximum(likelihood.shares)
        if exact is not None:
            return self._judged(likelihood, exact, np.zeros(len(exact), np.int64))
        parts = [self._maximum(likelihood.group(i)) for i in range(len(likelihood.counts))]
        return self._judged(likelihood, np.concatenate([p[0] for p in parts]), np.array([p[1] for p in parts]))

    def _maximum(self, one: Likelihood) -> tuple[Floats, int]:
        # A gap of 1e-4/n leaves every linear functional within a hundredth of its standard error.
        target = min(self.tolerance, max(1e-4 / float(one.n[0]), 1e-12))
        return maximise(one, uniform(one), target, self.max_iterations)

    def _judged(self, likelihood: Likelihood, theta: Floats, iterations: np.ndarray) -> Fit:
        reached = likelihood.gap(theta) <= self.tolerance
        return Fit(theta, iterations, tuple(Status.CERTIFIED if ok else Status.OUT_OF_STEPS for ok in reached))

    def _step_by_step(self, likelihood: Likelihood) -> Fit:
        parts = [self._stepped(likelihood.group(i)) for i in range(len(likelihood.counts))]
        theta = np.concatenate([p[0] for p in parts])
        return Fit(theta, np.array([p[1] for p in parts]), tuple(p[2] for p in parts))

    def _stepped(self, one: Likelihood) -> tuple[Floats, int, Status]:
        theta, height = uniform(one), -np.inf
        limit = self.max_iterations if self.stop == "paper" else int(self.stop)
        for step in range(limit):
            risen = float(one.log_likelihood(theta)[0])
            if self.stop == "paper" and abs(risen - height) < self.tolerance:
                return theta, step, Status.STOPPED
            theta, height = em_step(one, theta), risen
        return theta, limit, Status.OUT_OF_STEPS if self.stop == "paper" else Status.STOPPED


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer IBU."""
    return [Ibu]
