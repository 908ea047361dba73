"""The iterative Bayesian update: maximum likelihood, exact and certified.

ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update and applications to mechanisms for privacy
protection", 2020; first as EM reconstruction in Agrawal, Aggarwal, PODS 2001.
"""

from ldpsql.estimators import Estimator, Fit, IterativeEstimator, Likelihood, Status, hookimpl


class Ibu(IterativeEstimator):
    """Iterative Bayesian update: the distribution that makes the reports most likely.

    By default the maximum itself, with a certified gap: in closed form for k-RR, by Newton steps otherwise. With a number as
    ``stop``, that many steps of theta <- theta * g (eq. 6); with 'paper', steps until the log-likelihood moves by less than
    ``tolerance``; with 'held_out', as many as best predict reports that were held out, which is closer to the truth where the
    reports are noisy.

    >>> from ldpsql.registry.registry import registry
    >>> coin = registry().mechanism("krr(epsilon=1, domain=['heads', 'tails'])")
    >>> import ldpsql
    >>> ldpsql.estimate(["heads"] * 6 + ["tails"] * 4, coin).estimate.round(3).tolist()
    [0.716, 0.284]
    """

    name = "ibu"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Maximise the likelihood of every group, or stop on the way as asked."""
        return self.stepped(likelihood, Status.STOPPED)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer IBU."""
    return [Ibu]
