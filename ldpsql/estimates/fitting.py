"""One call of an estimator: reports that cannot be fitted are refused, and an estimator that fails is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ldpsql.channels import SetChannel
from ldpsql.errors import LdpError, NoReports, OutOfTime, raised_by
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource, on_large_map, operator_of
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators.supports import MOST_PAIRS
from ldpsql.inference.outcome import Fit
from ldpsql.mechanisms.base import CertifiedRow, CertifiedStrings, Mechanism, certify
from ldpsql.names import EMPIRICAL_BAYES, IBU
from ldpsql.privacy.claims import of_core
from ldpsql.reports import impossible


def fitted(estimator: Estimator, likelihood: Likelihood) -> Fit:
    """Return the fit, or equal shares if there is no time for one."""
    try:
        with named(estimator):
            return estimator.fit(likelihood)
    except OutOfTime:
        return estimator.unfitted(likelihood)


SHRUNK = f"{EMPIRICAL_BAYES}(prior='any')"  # the estimator of the most frequent of many values


def estimator_of_shares(source: Mechanism | ReportSource) -> str:
    """Return the estimator of the shares of values if nobody names one.

    The maximum of the likelihood for a large map is far, and a set of spikes: there, steps end where they predict best.
    """
    return f"{IBU}(stop='held_out')" if isinstance(source, Mechanism) and on_large_map(source) else IBU


def estimator_of_top(source: Mechanism | ReportSource) -> str:
    """Return the estimator of the most frequent values if nobody names one.

    The maximum of the likelihood gives rare values shares that it takes from the frequent ones. Over many values of which
    reports are votes, the inverted shares are shrunk: the largest of them are largest partly by luck.
    """
    certified = certify(source) if isinstance(source, Mechanism) else None
    channel = None if certified is None or isinstance(certified, CertifiedRow | CertifiedStrings) else certified.response
    if not isinstance(source, Mechanism) or channel is None or channel.inputs <= MOST_PAIRS:
        return estimator_of_shares(source)
    votes = isinstance(channel, SetChannel) or operator_of(source).votes
    return SHRUNK if votes else estimator_of_shares(source)


@contextmanager
def named(estimator: Estimator) -> Iterator[None]:
    """Name an estimator of a third party that fails.

    Raises:
        PluginError: with its name, file and line.

    """
    try:
        yield
    except Exception as error:
        if isinstance(error, LdpError) or of_core(type(estimator)):
            raise
        raise raised_by("estimator", estimator.name, estimator, error) from None


def check_possible(likelihood: Likelihood) -> None:
    """Refuse an empty group, and a report that has probability zero."""
    if not len(likelihood.counts) or not (likelihood.n > 0).all():
        raise NoReports()
    if (likelihood.counts[:, ~likelihood.operator.reachable()] > 0).any():  # in the alphabet, but no value can give it
        raise impossible()
