"""From likelihoods to estimates with their errors, and their answers in Python: the path that SQL and Python share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.columns import finite_or_null
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter, LdpError, NoReports, NotApplicable, NotReports, OutOfTime, raised_by
from ldpsql.estimates.diagnosis import MISFIT, OF_RANGES, Diagnosis, Learnt, Verdict, large_map, learnt, unknown_shares
from ldpsql.estimates.functionals import (
    FALSE_ALARM,
    Intervals,
    best_fit,
    goodness_of_fit,
    intervals,
    intervals_together,
    no_intervals,
    suspicious,
)
from ldpsql.estimates.shown import Tabular, rounded
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import (
    Described,
    ReportSource,
    SomeColumns,
    column_likelihood,
    likelihoods,
    margin,
    on_large_map,
    operator_of,
    table_likelihood,
)
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import soonest, until
from ldpsql.inference.mixed import of_lists
from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.supports import MOST_PAIRS
from ldpsql.inference.outcome import Fit, Status, simplex_projection
from ldpsql.inference.score_intervals import of_each
from ldpsql.inference.solver.interior import identified, unique
from ldpsql.mechanisms.base import CertifiedRow, CertifiedStrings, Mechanism, certify
from ldpsql.mechanisms.families import KeyValueMechanism
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


class Answer(NamedTuple):
    """A number with its standard error and its interval; the error is infinite if the reports say nothing about the number."""

    estimate: float
    std_error: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the number with its interval, both rounded to the width of the interval."""
        return rounded(self.estimate, self.low, self.high)


class TestedAnswer(NamedTuple):
    """A difference with its standard error and interval, and the p-value of the hypothesis that there is none."""

    estimate: float
    std_error: float
    low: float
    high: float
    p_value: float


class Answers:
    """The answers of an estimate; conditions are values, lists or ``{"low": .., "high": ..}`` by the names of columns.

    For an estimate of one column, a condition is a value, a list or a range without a name.
    """

    of: Estimates
    group: int

    def share(self, of: Any, given: Any = None) -> Answer:
        """Return the share of some values, of all or where a condition on other columns holds.

        Raises:
            InvalidParameter: if a condition names a column or a value that the estimate does not have.

        """
        return Answer(*self.ask("share", of=of, given=given))

    def mean(self, of: str | None = None, given: Any = None) -> Answer:
        """Return the mean of a column: of dates in days, of times in seconds since 1970.

        Raises:
            InvalidDomain: if the values have no order.

        """
        return Answer(*self.ask("mean", of=of, given=given))

    def variance(self, of: str | None = None, given: Any = None) -> Answer:
        """Return the variance of a column, in the unit of `mean` squared.

        Raises:
            InvalidDomain: if the values have no order.

        """
        return Answer(*self.ask("variance", of=of, given=given))

    def quantile(self, q: float, of: str | None = None, given: Any = None) -> Answer:
        """Return the value of a column below which a share q lies, on the scale of `mean`; `ask` takes several shares.

        Raises:
            InvalidDomain: if the values have no order.
            InvalidParameter: if q is not between 0 and 1.

        """
        return Answer(*self.ask("quantile", q=q, of=of, given=given)[1:])

    def ask(self, question: str, **arguments: Any) -> Any:
        """Return the answer to a question of any plugin, a named tuple, or a list of them: the same as in SQL.

        Args:
            question: the name of the question, such as 'median'.
            arguments: its arguments. Dates are numbers of days, times are seconds since 1970.

        Raises:
            UnknownName: if there is no such question.
            InvalidParameter: if the arguments are not those of the question, or do not fit the values.

        """
        from ldpsql.estimates.question import answered, question_named  # noqa: PLC0415  # questions are about estimates

        kind = question_named(question)
        if kind.raw:
            raise InvalidParameter(
                f"'{kind.name}' is about raw columns, which an estimate does not have",
                f"ldpsql.estimate(frame, m, question='{kind.name}', {next(iter(kind.raw))}='premium')",
            )
        kind.check_arguments(arguments)
        return answered(kind.asked(**arguments), self.of, self.group)

    def margin(self, columns: Sequence[str] | str, given: Sequence[str] | str | None = None) -> pa.Table:
        """Return the table of some columns: a column for each, estimate, std_error, low, high; unknown errors are NULL.

        Args:
            columns: the names of the columns.
            given: some of them: shares are then of the rows with the same values of these.

        """
        return self._table("margin", columns=columns, given=given)

    def _table(self, question: str, **arguments: Any) -> pa.Table:
        from ldpsql.estimates.question import answer_table, question_named  # noqa: PLC0415  # see `ask`

        return answer_table(question_named(question).asked(**arguments), self.of, self.group)

    def difference(self, of: Any, given: Any, versus: Any) -> TestedAnswer:
        """Return the difference of a share, or of the mean of a column, between two conditions, with its p-value.

        Args:
            of: a condition, whose share is compared, or the name of a column, whose mean is.
            given: the first condition.
            versus: the second condition.

        """
        return TestedAnswer(*self.ask("difference", of=of, given=given, versus=versus))

    def independence(self, columns: Sequence[str]) -> Any:
        """Return a test of whether two columns are independent of each other, and their mutual information in bits.

        Raises:
            InvalidParameter: unless two columns are named.
            NotApplicable: if the table of all columns has too many cells.

        """
        return self.ask("independence", columns=columns)

    def compare(self, other: Answers, of: Any = None, given: Any = None) -> TestedAnswer:
        """Return the same difference between this estimate and that of other people, with the same values.

        Raises:
            InvalidParameter: if the values differ.

        """
        from ldpsql.estimates.question import answered_apart, question_named  # noqa: PLC0415  # see `ask`

        if self.of.values != other.of.values:
            raise InvalidParameter(
                "the two estimates have different values", "use mechanisms with the same columns and domains"
            )
        asked = question_named("compare").asked(of=of, given=given)
        measured = answered_apart(asked, (self.of, self.group), (other.of, other.group))
        return TestedAnswer(*(float(getattr(measured, name)[0]) for name in TestedAnswer._fields))


_FEW = 4  # values up to which ranges are as good as values


@dataclass(frozen=True)
class Estimates:
    """The estimates of several groups under one source of reports, by one estimator."""

    source: Described
    estimator: Estimator
    likelihood: Likelihood
    fit: Fit
    end: float | None = None  # when there is no more time
    for_top: Estimator | None = None  # the estimator of the most frequent values, if it is another one
    recorded: bool = True  # whether the reports, if they were looked at, say which mechanism drew them

    @property
    def values(self) -> Domain:
        """The values of the domain, in order.

        Raises:
            InvalidParameter: if the shares are those of symbols, because the reports are of sets of pairs.

        """
        values = self.source.values
        if not isinstance(values, Domain):
            raise InvalidParameter("these are shares of the symbols of pairs, not of values", "use ldpsql.key_value")
        return values

    @cached_property
    def intervals(self) -> Intervals:
        """Standard errors and intervals of all shares; infinite if there was no time for them."""
        with until(self.end), suppress(OutOfTime):
            each = intervals(self.likelihood, self.fit, self.estimator.confidence)
            return replace(self.together, std_error=each.std_error) if self.estimator.intervals == "simultaneous" else each
        return no_intervals(self.fit.theta)

    @cached_property
    def together(self) -> Intervals:
        """Standard errors and intervals of all shares that hold together with the estimator's confidence."""
        with until(self.end), suppress(OutOfTime):
            return intervals_together(
                self.likelihood, self.fit, of_each(self.estimator.confidence, self.likelihood.operator.inputs)
            )
        return no_intervals(self.fit.theta)

    def __getitem__(self, group: int) -> Estimate:
        return Estimate(self, group)

    def only(self, group: int) -> Estimates:
        """Return the estimates of one group."""
        return replace(self, likelihood=self.likelihood.group(group), fit=self.fit.group(group))

    def of_columns(self, columns: SomeColumns) -> Estimates | None:
        """Return the estimates of some columns, from their reports alone; None if a group has none."""
        part = margin(self.likelihood, columns.places)
        if part is None:
            return None
        with until(self.end):
            return estimate_likelihood(columns, part, self.estimator)


@dataclass(frozen=True, repr=False)
class Estimate(Answers, Tabular):
    """The estimated distribution of one group: values, shares, errors, and how far they can be trusted."""

    of: Estimates
    group: int

    @property
    def values(self) -> Domain:
        """The values of the domain, in order."""
        return self.of.values

    @property
    def estimate(self) -> Floats:
        """Share of every value."""
        return self.of.fit.theta[self.group]

    @property
    def std_error(self) -> Floats:
        """Standard error of every share."""
        return self.of.intervals.std_error[self.group]

    @property
    def low(self) -> Floats:
        """Lower end of every interval."""
        return self.of.intervals.low[self.group]

    @property
    def high(self) -> Floats:
        """Upper end of every interval."""
        return self.of.intervals.high[self.group]

    @property
    def covariance(self) -> Floats:
        """Covariance of the debiased shares, shape (values, values): the error of c'theta is the root of c' covariance c.

        It is that of one step from the maximum of the likelihood, whatever the estimator is; see `Operator.interval`.
        """
        one = self.likelihood
        return one.covariance(best_fit(one)[0])

    @cached_property
    def identified(self) -> tuple[Floats, Floats]:
        """Smallest and largest share of every value among all maxima of the likelihood: equal if the maximum is unique."""
        if self.diagnosis.unique:
            return self.estimate, self.estimate
        return identified(self.likelihood, self._theta)

    @cached_property
    def learnt(self) -> Learnt:
        """How much the reports say about the shares, and how many reports would be enough."""
        with until(self.of.end), suppress(OutOfTime):
            return learnt(self.of.only(self.group))
        return Learnt(Verdict.UNKNOWN, inf)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """How the estimate came about, how much was learnt, and how far it can be trusted."""
        return self.judged(self.learnt)

    def judged(self, about: Learnt) -> Diagnosis:
        """Return the diagnosis with what was learnt about the shares, or about others that follow from them."""
        model, fit = self.likelihood, self.of.fit
        theta = simplex_projection(self._theta)
        maximum = self._status in (Status.CERTIFIED, Status.OUT_OF_STEPS)
        misfit, log_p = self._goodness
        variance = float((self.std_error**2).sum())
        return Diagnosis(
            verdict=about.verdict.words,
            enough_reports=about.reports,
            reports=round(float(model.of_people.n[0])),
            iterations=int(fit.iterations[self.group]),
            log_likelihood=float(model.log_likelihood(theta)[0]),
            gap=max(0.0, float(model.gap(theta)[0])),
            status=self._status.value,
            remedy=self._advised(MISFIT if log_p < np.log(FALSE_ALARM) else self._remedy, about.advice),
            chosen=fit.chosen[self.group] if fit.chosen else self.of.estimator.name,
            reason=fit.reasons[self.group] if fit.reasons else "asked for",
            unique=unique(model, theta) if maximum else model.operator.condition < 1e12,
            fit_statistic=misfit,
            fit_p_value=float(np.exp(log_p)),
            influence=model.operator.influence / float(model.n[0]) ** (0.5 if model.weights else 1.0),
            effective_reports=float((theta * (1 - theta)).sum()) / variance if variance else 0.0,
            condition_number=model.operator.condition,
            realised_epsilon=self.of.source.epsilon,
            borrowed=fit.borrowed[self.group] if fit.borrowed else 0.0,
            weighted_reports=float(model.n[0]),
        ).of_record(recorded=self.of.recorded)

    def to_arrow(self) -> pa.Table:
        """Return the estimate as a table: value, estimate, std_error, low, high; infinite errors are NULL."""
        columns = [self.estimate, finite_or_null(self.std_error), self.low, self.high]
        return pa.table([self.values.values, *columns], ["value", "estimate", "std_error", "low", "high"])

    def top(self, count: int = 10) -> pa.Table:
        """Return the most frequent values: rank, value, estimate, std_error, low, high, best_rank, worst_rank.

        The intervals hold for all values of the domain together with the probability `confidence`, so they also hold for the
        values that the reports chose; so do the ranks, of which ``best_rank`` and ``worst_rank`` are the ends.

        Over many values, reports that were estimated without naming an estimator are estimated by inversion, as by ``ldp.top``.

        Raises:
            InvalidParameter: unless the count is a whole number from 1.

        """
        if self.of.for_top is not None:
            return estimate_likelihood(self.of.source, self.likelihood, self.of.for_top)[0].top(count)
        return self._table("top", most=count)

    @property
    def heading(self) -> str:
        """The estimator, the number of reports, the mechanism, how much was learnt and the status, in one line."""
        diagnosis = self.diagnosis
        record = "" if self.of.recorded else f", {diagnosis.record}"
        made = f"{self.of.estimator.name} of {diagnosis.reports} reports under {self.of.source.name}"
        return f"{made}: {diagnosis.verdict}, {diagnosis.status}{record}"

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of this group's reports."""
        return self.of.likelihood.group(self.group)

    @property
    def _theta(self) -> Floats:
        return self.of.fit.theta[self.group : self.group + 1]

    @property
    def _goodness(self) -> tuple[float, float]:
        """The statistic of misfit and the logarithm of its p-value, 0 and 0 if there is no time for them: 1 is a bound."""
        with until(self.of.end), suppress(OutOfTime):
            return goodness_of_fit(self.likelihood)
        return 0.0, 0.0

    @property
    def _remedy(self) -> str:
        """What to do about the status, and about shares whose error is infinite."""
        remedy, unknown = self._status.remedy, int(np.isinf(self.std_error).sum())
        if not unknown or self._status is Status.OUT_OF_TIME:
            return remedy
        if self.likelihood.operator.large:
            return large_map(remedy, stopped=self._status is Status.OUT_OF_STEPS)
        return unknown_shares(remedy, unknown, len(self.std_error))

    def _advised(self, remedy: str, advice: str) -> str:
        """Return a remedy with what to do about too few reports, and with the mechanism for ranges of values in order."""
        operator, in_order = self.likelihood.operator, len(self.likelihood.layout) == 1
        doubtful = bool(advice) or not np.isfinite(self.std_error).all()
        ranges = OF_RANGES if in_order and doubtful and not operator.lined and operator.inputs > _FEW else ""
        return "; ".join(filter(None, ["; but ".join(filter(None, [remedy, advice])), ranges]))

    @property
    def _status(self) -> Status:
        return self.of.fit.status[self.group]


def estimate_counts(mechanism: Mechanism, counts: Floats, estimator: Estimator) -> Estimates:
    """Estimate every group from counts of shape (groups, reports of the alphabet): for reports that can be listed."""
    return estimate_likelihood(mechanism, table_likelihood(mechanism, counts), estimator)


def estimate_likelihood(source: Mechanism | Described, likelihood: Likelihood, estimator: Estimator) -> Estimates:
    """Estimate every group from its likelihood.

    Raises:
        NoReports: if a group is empty.
        ImpossibleReport: if a report has probability zero under the mechanism.
        NotReports: if a group's values cannot have been drawn by the mechanism, unless the estimator allows it.

    """
    estimator.check_size(likelihood.operator.inputs)
    likelihood = estimator.weighed(likelihood)
    check_possible(likelihood)
    end = soonest(estimator.deadline)
    with until(end, len(likelihood.counts)):
        fit = fitted(estimator, likelihood)
        misfit = estimator.misfit == "refuse" and suspicious(likelihood, fit.theta).any()
    if misfit:
        cause = "was a raw column passed, another epsilon, or another version of the domain"
        cause += "" if isinstance(source, Mechanism) else ", or do the levels depend on the values"
        raise NotReports(
            f"these values were not drawn by {source.name} with these parameters: no distribution explains them",
            f"{cause}? misfit := 'allow' estimates anyway",
        )
    return Estimates(certify(source) if isinstance(source, Mechanism) else source, estimator, likelihood, fit, end)


def estimate_column(column: pa.Array | pa.ChunkedArray, mechanism: Mechanism, estimator: Estimator) -> Estimate:
    """Estimate from a column of reports; NULL reports are left out.

    Raises:
        NoReports, ImpossibleReport, NotReports: see `estimate_likelihood`.

    """
    with until(soonest(estimator.deadline)):
        return estimate_likelihood(mechanism, column_likelihood(column, mechanism), estimator)[0]


def refuse_pairs(source: Mechanism | ReportSource) -> None:
    """Refuse reports of sets of pairs, which no estimator of a distribution takes."""
    if isinstance(source, KeyValueMechanism):
        raise InvalidParameter(
            "these are reports of sets of pairs",
            "estimate them in SQL, with ldp.key_value or ldp.key_value_diagnose (ldpsql sql)",
        )


def check_single(estimator: Estimator) -> None:
    """Refuse an estimator that has to learn from all groups first."""
    if estimator.needs_groups:
        raise NotApplicable(
            f"{estimator.name} learns from all groups of a table, and this sees one",
            f"FROM ldp.estimate(..., by := region, estimator := '{estimator.name}'), or a prior from ldp.prior(counts, m)",
        )


def check_size(source: Mechanism | ReportSource, estimator: Estimator) -> None:
    """Refuse a domain that is too large for an estimator, before its reports are read."""
    if estimator.most_values is None:
        return
    values = (certify(source) if isinstance(source, Mechanism) else source).values
    if isinstance(values, Domain):
        estimator.check_size(len(values))


def estimated(
    source: Mechanism | ReportSource, counts: GroupedCounts, estimator: Estimator
) -> Iterator[tuple[NDArray[np.int64], Estimates]]:
    """Yield the estimates of all groups in parts, each with the groups in it; the estimator's deadline is for all together.

    Raises:
        NotApplicable: if the estimator has to learn from all groups first.

    """
    source = of_lists(source, counts.reports.type)
    refuse_pairs(source)
    check_single(estimator)
    check_size(source, estimator)
    end, parts = soonest(estimator.deadline), likelihoods(source, counts)
    while True:
        with until(end, len(counts.groups)):  # building the operators counts, too
            part = next(parts, None)
            if part is None:
                return
            groups, estimates = part[0], estimate_likelihood(source, part[1], estimator)
        yield groups, estimates
