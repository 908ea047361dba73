"""From counts of reports to an estimate with its errors: the one path that SQL and Python share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domain import Domain, plain
from ldpsql.errors import BadCounts, ImpossibleReport, NoReports, NotReports
from ldpsql.estimator import Estimator, Fit, Status, simplex_projection
from ldpsql.likelihood import Likelihood
from ldpsql.mechanism import Mechanism, certify
from ldpsql.operators import Floats, Operator, collapsed, observed, operator, packed
from ldpsql.reports import HashReports, SetReports, distinct, impossible
from ldpsql.solver.uniqueness import identified, unique
from ldpsql.uncertainty import (
    FALSE_ALARM,
    Intervals,
    best_fit,
    goodness_of_fit,
    intervals,
    suspicious,
)

MAX_COUNT = 2**53 - 1  # doubles hold whole numbers exactly up to here
_MISFIT = "these values do not fit this mechanism: pass its reports, not a raw column, and the epsilon they were drawn with"


@lru_cache(maxsize=256)
def operator_of(mechanism: Mechanism) -> Operator:
    """Return the operator of a mechanism's certified channel; the last 256 are kept."""
    return operator(certify(mechanism).channel.estimated)


@dataclass(frozen=True)
class Diagnosis:
    """What can be said about one estimate; see `Estimate.diagnosis`."""

    reports: int
    iterations: int
    log_likelihood: float
    gap: float
    status: str
    remedy: str
    chosen: str
    reason: str
    unique: bool
    fit_statistic: float
    fit_p_value: float
    influence: float
    effective_reports: float
    condition_number: float
    realised_epsilon: float
    impossible: int = 0


class Described(Protocol):
    """What an estimate tells of the mechanism, or the mechanisms, that its reports come from."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def values(self) -> Domain:
        """The values that were perturbed."""

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of a report."""


class Source(Described, Protocol):
    """Several mechanisms together, that reports come from."""

    def likelihoods(
        self, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
    ) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of (report, number, group) triples; see `likelihoods`."""

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Tell which reports can occur; see `possible`."""


@dataclass(frozen=True)
class Estimates:
    """The estimates of several groups under one source of reports, by one estimator."""

    source: Described
    estimator: Estimator
    likelihood: Likelihood
    fit: Fit

    @cached_property
    def intervals(self) -> Intervals:
        """Standard errors and intervals of all shares."""
        return intervals(self.likelihood, self.fit, self.estimator.pointwise(self.likelihood.operator.inputs))

    def __getitem__(self, group: int) -> Estimate:
        return Estimate(self, group)


@dataclass(frozen=True)
class Estimate:
    """The estimated distribution of one group: values, shares, errors, and how far they can be trusted."""

    of: Estimates
    group: int

    @property
    def values(self) -> Domain:
        """The values of the domain, in order."""
        return self.of.source.values

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
        return one.operator.covariance(one.shares[0], best_fit(one)[0]) / float(one.n[0])

    @cached_property
    def identified(self) -> tuple[Floats, Floats]:
        """Smallest and largest share of every value among all maxima of the likelihood: equal where it is unique."""
        if self.diagnosis.unique:
            return self.estimate, self.estimate
        return identified(self.likelihood, self._theta)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Steps, likelihood, certified gap, status with its remedy, uniqueness, fit and influence.

        ``gap`` bounds what is missing to the maximum: max L - L <= reports * log(1 + gap); an inversion that is no
        distribution is judged by the nearest one. ``fit_p_value`` is an upper bound of the chance that honest reports are as
        far from any distribution. Where nearly all reports differ it compares how many values they support, and how often each
        value is supported, with what the mechanism allows. ``influence`` is how far one replaced report can move a share.
        ``effective_reports`` is how many unperturbed values would leave the same total variance of the shares, sum of
        theta (1 - theta) over sum of std_error^2. ``impossible`` counts the reports that cannot occur under the mechanism,
        where these were left out. ``chosen`` is the estimator
        that was used, ``reason`` why.
        """
        model, fit = self.likelihood, self.of.fit
        theta = simplex_projection(self._theta)
        maximum = self._status in (Status.CERTIFIED, Status.OUT_OF_STEPS)
        misfit, log_p = goodness_of_fit(model)
        variance = float((self.std_error**2).sum())
        return Diagnosis(
            reports=round(float(model.n[0])),
            iterations=int(fit.iterations[self.group]),
            log_likelihood=float(model.log_likelihood(theta)[0]),
            gap=max(0.0, float(model.gap(theta)[0])),
            status=self._status.value,
            remedy=_MISFIT if log_p < np.log(FALSE_ALARM) else self._status.remedy,
            chosen=fit.chosen[self.group] if fit.chosen else self.of.estimator.name,
            reason=fit.reasons[self.group] if fit.reasons else "asked for",
            unique=unique(model, theta) if maximum else model.operator.condition < 1e12,
            fit_statistic=misfit,
            fit_p_value=float(np.exp(log_p)),
            influence=model.operator.influence / float(model.n[0]),
            effective_reports=float((theta * (1 - theta)).sum()) / variance if variance else 0.0,
            condition_number=model.operator.condition,
            realised_epsilon=self.of.source.epsilon,
        )

    def to_arrow(self) -> pa.Table:
        """Return the estimate as a table: value, estimate, std_error, low, high."""
        columns = [self.estimate, self.std_error, self.low, self.high]
        return pa.table([self.values.values, *columns], ["value", "estimate", "std_error", "low", "high"])

    def to_dict(self) -> dict[str, Any]:
        """Return rows and diagnosis as plain Python values."""
        return {"rows": self.to_arrow().to_pylist(), "diagnosis": asdict(self.diagnosis)}

    def __repr__(self) -> str:
        told = self.diagnosis
        head = f"{self.of.estimator.name} of {told.reports} reports under {self.of.source.name}: {told.status}"
        rows = zip(self.values.texts, self.estimate, self.std_error, strict=True)
        return "\n".join([head, *(f"  {value:<16} {share:8.4f} +- {error:.4f}" for value, share, error in rows)])

    def _repr_html_(self) -> str:
        from ldpsql.notebook import html  # noqa: PLC0415  # only a notebook needs it

        return html(self)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of this group's reports."""
        return self.of.likelihood.group(self.group)

    @property
    def _theta(self) -> Floats:
        return self.of.fit.theta[self.group : self.group + 1]

    @property
    def _status(self) -> Status:
        return self.of.fit.status[self.group]


def estimate_counts(mechanism: Mechanism, counts: Floats, estimator: Estimator) -> Estimates:
    """Estimate every group from counts of shape (groups, reports of the alphabet): for reports that can be listed."""
    known = certify(mechanism)
    return estimate_likelihood(mechanism, Likelihood(operator_of(mechanism), counts, known.layout, known.named), estimator)


def estimate_likelihood(source: Mechanism | Described, likelihood: Likelihood, estimator: Estimator) -> Estimates:
    """Estimate every group from its likelihood.

    Raises:
        NoReports: where a group is empty.
        ImpossibleReport: where a report has no chance under the mechanism.
        NotReports: where a group's values cannot have been drawn by the mechanism, unless the estimator allows it.

    """
    check_possible(likelihood)
    fit = estimator.fit(likelihood)
    if estimator.misfit == "refuse" and suspicious(likelihood, fit.theta).any():
        raise NotReports(
            f"these values were not drawn by {source.name} with these parameters: no distribution explains them",
            "was a raw column passed, or another epsilon used? see ldp.diagnose, or misfit := 'allow'",
        )
    return Estimates(certify(source) if isinstance(source, Mechanism) else source, estimator, likelihood, fit)


def check_possible(likelihood: Likelihood) -> None:
    """Refuse a group without a report, and a report without a chance.

    Raises:
        NoReports, ImpossibleReport: where there is one.

    """
    if not len(likelihood.counts) or not (likelihood.n > 0).all():
        raise NoReports("there is not a single report to estimate from", "perturb some values first")
    everywhere = likelihood.operator.forward(np.ones((1, likelihood.operator.inputs)))
    if (likelihood.counts[:, everywhere[0] <= 0] > 0).any():  # in the alphabet, but without a chance from any value
        raise impossible()


def estimate_column(column: pa.Array | pa.ChunkedArray, mechanism: Mechanism, estimator: Estimator) -> Estimate:
    """Estimate from a column of reports; NULL reports are left out."""
    return estimate_likelihood(mechanism, column_likelihood(column, mechanism), estimator)[0]


def column_likelihood(column: pa.Array | pa.ChunkedArray, mechanism: Mechanism) -> Likelihood:
    """Return the likelihood of a column of reports; NULL reports are left out.

    Raises:
        NoReports, ImpossibleReport: where there is none, or one that cannot occur.

    """
    known = plain(column).drop_null()
    if not len(known):
        raise NoReports("there is not a single report to estimate from", "perturb some values first")
    first, number = distinct(known)
    return counted_likelihood(known.take(pa.array(first)), pa.array(np.bincount(number)), mechanism)


def counted_likelihood(reports: pa.Array, numbers: pa.Array, mechanism: Mechanism) -> Likelihood:
    """Return the likelihood of distinct reports and how often each occurs, as one group.

    Raises:
        NoReports: where there is none.

    """
    if not len(reports):
        raise NoReports("there is not a single report to estimate from", "perturb some values first")
    _, likelihood = next(likelihoods(mechanism, reports, numbers, np.zeros(len(reports), dtype=np.int64), 1))
    return likelihood


def likelihoods(
    source: Mechanism | Source, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    """Yield the likelihoods of (report, number, group) triples with the groups they hold; every group has reports.

    Reports that can be listed share one operator for all groups; else every group has its own, of its observed reports.

    Raises:
        ImpossibleReport, BadCounts: where reports or numbers cannot be what they must be.

    """
    if isinstance(source, Mechanism):
        return _likelihoods(source, reports, numbers, group, groups)
    return source.likelihoods(reports, numbers, group, groups)


def _likelihoods(
    mechanism: Mechanism, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    known = certify(mechanism)
    if isinstance(known.reports, Domain):
        counts = align(reports, numbers, group, groups, known.reports)
        yield np.arange(groups), Likelihood(operator_of(mechanism), counts, known.layout, known.named)
        return
    weights, alphabet, channel = whole_numbers(numbers), known.reports, known.channel.estimated
    if not isinstance(alphabet, SetReports) and not (isinstance(alphabet, HashReports) and alphabet.listed is None):
        counts = alphabet.counts(reports, weights, group, groups)
        yield np.arange(groups), Likelihood(operator_of(mechanism), counts, known.layout)
        return
    words = alphabet.read(reports)
    if not isinstance(channel, SetChannel) or not channel.possible(words).all():
        raise impossible()
    for i in range(groups):
        at = np.flatnonzero(group == i) if groups > 1 else slice(None)
        octets, added = collapsed(packed(channel, words[at]), weights[at])
        yield np.array([i]), Likelihood(observed(channel, octets), added[None], known.layout)


def possible(source: Mechanism | Source, reports: pa.Array) -> NDArray[np.bool_]:
    """Tell which reports can occur.

    Raises:
        WrongType, ImpossibleReport: where the column cannot hold reports at all.

    """
    if not isinstance(source, Mechanism):
        return source.possible(reports)
    known = certify(source)
    if isinstance(known.reports, Domain):
        positions = known.reports.locate(reports)
        chance = operator_of(source).forward(np.ones(len(known.values))) > 0
        at = positions.fill_null(0).to_numpy(zero_copy_only=False)
        return positions.is_valid().to_numpy(zero_copy_only=False) & chance[at]
    fits = known.reports.possible(reports)
    channel = known.channel.estimated
    if isinstance(channel, SetChannel) and isinstance(known.reports, SetReports):
        fits[fits] = channel.possible(known.reports.read(reports.filter(pa.array(fits))))
    return fits


def align(reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int, alphabet: Domain) -> Floats:
    """Lay out (report, number, group) triples as counts of shape (groups, reports of the alphabet).

    Raises:
        ImpossibleReport: where a report is not in the alphabet. The message names no report: it may be a raw value.
        BadCounts: where a number is negative, NULL or not whole.

    """
    positions = alphabet.locate(reports)
    if positions.null_count:
        raise ImpossibleReport(
            f"some reports cannot occur under this mechanism: {positions.null_count} distinct",
            "check that these are its reports, and not another column or mechanism",
        )
    cells = group * len(alphabet) + positions.to_numpy(zero_copy_only=False)
    counts: Floats = np.bincount(cells, weights=whole_numbers(numbers), minlength=groups * len(alphabet)).astype(np.float64)
    return counts.reshape(groups, len(alphabet))


def whole_numbers(numbers: pa.Array) -> Floats:
    """Return counts as doubles, which hold them exactly up to 2**53 - 1.

    Raises:
        BadCounts: where one is negative, NULL, not whole, or larger.

    """
    try:
        whole = numbers.cast(pa.uint64())
    except pa.ArrowException:
        whole = pa.nulls(len(numbers), pa.uint64())
    exact = whole.fill_null(MAX_COUNT + 1).to_numpy(zero_copy_only=False)
    if (exact > np.uint64(MAX_COUNT)).any():
        raise BadCounts("counts must be whole numbers from 0 to 2^53 - 1", "use ldp.counts(report) or map(reports, numbers)")
    return np.asarray(exact, dtype=np.float64)
