"""The iterative Bayesian update: maximum likelihood, exact and certified.

ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update and applications to mechanisms for privacy
protection", 2020; first as EM reconstruction in Agrawal, Aggarwal, PODS 2001.
"""

from ldpsql.estimators import Estimator, Fit, IterativeEstimator, Likelihood, Status, hookimpl


class Ibu(IterativeEstimator):
    """Iterative Bayesian update: the distribution that makes the reports most likely.

    By default it returns the maximum itself, with a certified gap: in closed form for k-RR, by Newton steps otherwise. If
    ``stop`` is a number, it takes that many steps of theta <- theta * g (eq. 6); if 'paper', steps until the log-likelihood
    changes by less than ``tolerance``; if 'held_out', as many as best predict held-out reports, which is closer to the truth if
    reports are noisy.

    >>> from ldpsql.registry.registry import registry
    >>> coin = registry().mechanism("krr(epsilon=1, domain=['heads', 'tails'])")
    >>> import ldpsql
    >>> ldpsql.estimate(["heads"] * 6 + ["tails"] * 4, coin).estimate.round(3).tolist()
    [0.716, 0.284]
    """

    name = "ibu"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Maximise the likelihood of every group, or stop on the way as requested."""
        return self.stepped(likelihood, Status.STOPPED)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer IBU."""
    return [Ibu]
