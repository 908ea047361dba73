"""The diagnosis of one estimate: how it came about, how far it can be trusted, and how much it says about the shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ldpsql.estimates.functionals import Linear, likeliest, linear, of_ranges
from ldpsql.inference.operators import Floats, Ranges
from ldpsql.inference.score_intervals import deviations

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates


MISFIT = "these values do not fit this mechanism: pass its reports, not a raw column, and the epsilon they were drawn with"
RECORDED, UNRECORDED = "recorded", "unrecorded"
UNKNOWN_RECORD = (
    "unrecorded: nothing says which mechanism drew these reports, so another one would not be refused; ldp.perturb_rows "
    "records it in their type, and perturb_table in a comment, which FROM ldp.estimate compares"
)
OF_RANGES = "for shares of ranges and quantiles, hierarchy is made"
_UNKNOWN = (
    "{remedy}; but the reports do not distinguish {unknown} of {values} values from others, so std_error is NULL, in "
    "Python infinite: use fewer bins, a larger epsilon, or olh over the listed values; ldp.mean, ldp.quantile and "
    "ldp.range_share have errors of their own, and if these are NULL too, the reports say nothing about that number"
)


@dataclass(frozen=True)
class Diagnosis:
    """Steps, likelihood, certified gap, status with its remedy, uniqueness, fit and influence of one estimate.

    ``gap`` bounds what is missing to the maximum: max L - L <= reports * log(1 + gap). For an inversion that is not a
    distribution it is the gap of the nearest one. ``fit_p_value`` is an upper bound of the probability that honest reports are
    as far from any distribution. If nearly all reports differ, it compares how many values they support, and how often each
    value is supported, with what the mechanism allows. ``influence`` is how far one replaced report can move a share.
    ``effective_reports`` is how many unperturbed values would leave the same total variance of the shares, sum of
    theta (1 - theta) over sum of std_error^2. ``weighted_reports`` is Kish's number: how many reports of equal weight are worth
    as much as these ``reports`` with their weights, (sum of w)^2 over sum of w^2. If there are weights, the log-likelihood and
    the gap are those of so many reports, and ``influence`` is a bound for that of the largest weight. ``impossible`` counts the
    reports that cannot occur under the mechanism, if these were left out. ``chosen`` is the estimator that was used, ``reason``
    why.
    ``record`` is recorded if the reports say which mechanism drew them, so that another one would have been refused.
    ``borrowed`` is which part of the estimate, from 0 to 1, comes from the reports of other groups.
    ``verdict`` is how much the reports say about the shares, whatever the status is: nothing learnt, only the largest values,
    or usable; unknown if no errors were computed. ``enough_reports`` is how many reports are enough for usable, None if that is
    unknown. See `ldpsql.estimates.diagnosis.judged`.
    """

    verdict: str
    enough_reports: int | None
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
    borrowed: float = 0.0
    record: str = RECORDED
    weighted_reports: float = 0.0

    def of_record(self, *, recorded: bool) -> Diagnosis:
        """Return the diagnosis of reports that record what drew them, or do not: its remedy then says what to do."""
        return self if recorded else replace(self, record=UNRECORDED, remedy=f"{self.remedy}; {UNKNOWN_RECORD}")


def unknown_shares(remedy: str, unknown: int, values: int) -> str:
    """Return the remedy of a status, followed by what to do about the shares of values whose error is infinite."""
    return _UNKNOWN.format(remedy=remedy, unknown=unknown, values=values)


def large_map(remedy: str, *, stopped: bool) -> str:
    """Return the remedy of a status for a map whose errors are not computed; ``stopped`` if no steps were left."""
    if stopped:
        remedy = "the maximum for so many cells is far: use stop := 'held_out' or best, or give a deadline for more steps"
    return f"{remedy}; no errors are computed for so many cells: use larger cells, wider bins or fewer columns"


_SURE = 0.995  # the chance that no value stands out if all shares are equal
_PART, _MOST = 1 / 3, 0.07  # a share is known if its standard error is at most this part of it, and at most this
_PEOPLE = 0.5  # the part of the people whose values have to be known
_SIGNAL, _CLEAR = 1 / 3, 4.0  # the part of the squared distance to equal shares that is no noise, and its standard errors
_RANGES, _SIDE = 4, 3  # ranges of a line, and blocks along each side of a map
_GUESS = 0.5  # the error of a share of which the reports say nothing: the largest that a number from 0 to 1 can have
_MOST_REPORTS = 1e15
_TOGETHER = 1024  # values up to which all debiased shares are computed if no inverse gives them


class Verdict(IntEnum):
    """How much was learnt about the shares, from least to most."""

    UNKNOWN = 0  # errors were not computed
    NOTHING = 1
    LARGEST = 2
    USABLE = 3

    @property
    def words(self) -> str:
        """The verdict in words."""
        return _WORDS[self]


_WORDS = ("unknown", "nothing learnt", "only the largest values", "usable")


_MEANING = {
    Verdict.NOTHING: "these reports do not distinguish the shares from equal ones",
    Verdict.LARGEST: "these reports show only the largest shares",
}


class Learnt(NamedTuple):
    """The verdict, and how many reports are enough for `Verdict.USABLE` if the shares are as estimated; infinite if unknown."""

    verdict: Verdict
    enough: float

    @property
    def reports(self) -> int | None:
        """How many reports are enough as a whole number; None if that is unknown."""
        return ceil(self.enough) if self.enough < _MOST_REPORTS else None

    @property
    def advice(self) -> str:
        """What to do about the verdict; empty if nothing."""
        if self.verdict not in _MEANING:
            return ""
        enough = "" if self.reports is None else f"about {self.reports:,} reports would be enough, or "
        return f"{_MEANING[self.verdict]}: {enough}use fewer values or a larger epsilon"


def learnt(estimates: Estimates) -> Learnt:
    """Return how much the reports of one group say about the shares.

    Reports that hardly distinguish neighbouring values may determine their distribution all the same. So the shares of four
    ranges of a line, or of nine blocks of a map, are judged too, and the better verdict counts; those of two halves as well if
    the reports only bound shares. A table whose columns are known, but not its cells, is at best `Verdict.LARGEST`.
    """
    reports, count = float(estimates.likelihood.of_people.n[0]), len(estimates.fit.theta[0])
    jump = estimates.likelihood.operator.influence / float(estimates.likelihood.n[0])
    fine = judged(*_of_values(estimates), reports, jump, _if_equal(estimates, np.eye(count, 1)))
    if fine.verdict is Verdict.USABLE or (count <= _RANGES and fine.verdict is not Verdict.UNKNOWN):
        return fine
    errors = (
        (part.centre[0], np.minimum(part.std_error[0], _GUESS), reports, jump, _if_equal(estimates, c))
        for part, c in _coarse(estimates)
        if np.isfinite(part.std_error).any()
    )
    coarse = [judged(*part) for part in errors]
    known = [part for part in coarse if part.verdict is not Verdict.UNKNOWN]
    if not known:
        return fine
    if estimates.likelihood.variables:
        return Learnt(min(max(part.verdict for part in [fine, *known]), Verdict.LARGEST), fine.enough)
    return max([fine, *known], key=lambda part: (part.verdict, -part.enough))


def judged(shares: Floats, error: Floats, reports: float, jump: float = 0.0, equal: Floats | float = 0.0) -> Learnt:
    """Return the verdict on unbiased shares with standard errors, each of shape (values,).

    Shares that differ from equal ones beyond noise count as they are, and all others as the mean of what is left. A share is
    known if its standard error is at most a third of it and at most .07. `Verdict.USABLE` means that half of the people have
    values with known shares; `Verdict.LARGEST` that a share stands out from equal ones, or that a third of the squared distance
    to them is no noise, by four standard errors.

    Args:
        shares: may be negative.
        error: their standard errors.
        reports: how many there are.
        jump: how far one report moves a share. Sums of few reports have longer tails than normal numbers, by the term of the
            third moment in Cornish, Fisher, "Moments and cumulants in the specification of distributions", 1938.
        equal: the standard error of a share if all are equal. That of the estimates is smaller if a few heavy rows agree.

    >>> judged(np.array([0.5, 0.3, 0.2]), np.array([0.02, 0.02, 0.02]), 1000.0).verdict.words
    'usable'
    >>> verdict, enough = judged(np.array([0.3, 0.4, 0.3]), np.array([0.1, 0.1, 0.1]), 1000.0)
    >>> verdict.words, round(enough)
    ('nothing learnt', 2041)
    """
    if not np.isfinite(error).all():
        return Learnt(Verdict.UNKNOWN, inf)
    away = shares - 1.0 / len(shares)
    z = deviations(_SURE ** (1.0 / len(shares)))
    apart = np.abs(away) > z * np.maximum(error, equal) + jump * (z**2 - 1.0) / 6.0
    rest = max(0.0, 1.0 - float(shares[apart].sum())) / max(1, int((~apart).sum()))
    size = np.where(apart, np.maximum(shares, 0.0), rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(error > 0, reports * (error / np.minimum(_PART * size, _MOST)) ** 2, 0.0)
    order = np.argsort(needed)
    people = np.cumsum(size[order])
    enough = float(needed[order][np.searchsorted(people, _PEOPLE * people[-1])])
    if enough <= reports:
        return Learnt(Verdict.USABLE, enough)
    variances, distance = np.maximum(error, equal) ** 2, float((away**2).sum())
    noise = float(variances.sum())
    spread = distance - noise > max(_SIGNAL * distance, _CLEAR * np.sqrt(2.0 * (variances**2).sum()))
    return Learnt(Verdict.LARGEST if spread or (apart & (away > 0)).any() else Verdict.NOTHING, enough)


def _if_equal(estimates: Estimates, c: Floats) -> Floats | float:
    """Return the standard errors of sums of shares, c: (values, sums), if all shares are equal.

    They are not needed, and 0, if the reports are no votes, as many count for each sum, or if the estimator has its own.
    """
    likelihood, equal = estimates.likelihood, np.full(len(c), 1.0 / len(c))
    if likelihood.operator.votes is None or estimates.fit.errors is not None:
        return 0.0
    return np.sqrt(likelihood.operator.expected_variances(equal, float(likelihood.n[0]), c))


def _of_values(estimates: Estimates) -> tuple[Floats, Floats]:
    """Return unbiased shares of all values and their standard errors, those of an estimator that has its own as they are."""
    likelihood, fit, error = estimates.likelihood, estimates.fit, estimates.intervals.std_error[0]
    if fit.errors is not None:
        return fit.theta[0], error
    if likelihood.operator.votes:
        return likelihood.operator.invert(likelihood.shares)[0], error
    if len(error) > _TOGETHER or likelihood.operator.bounding_weights is not None or not np.isfinite(error).all():
        return fit.theta[0], np.full_like(error, inf)
    return likelihood.functionals(likeliest(likelihood, fit), np.eye(len(error)))[0][0], error


def _coarse(estimates: Estimates) -> Iterator[tuple[Linear, Floats]]:
    """Yield the shares of ranges of a line, blocks of a map, or values of each column, and which values each share sums."""
    likelihood, size = estimates.likelihood, estimates.likelihood.operator.inputs
    if likelihood.variables:
        sizes = [column.size for column in likelihood.variables]
        for place in np.unravel_index(np.arange(size), sizes):
            yield linear(estimates, c := np.eye(int(place.max()) + 1)[place]), c
    elif len(likelihood.layout) == 1:
        for number in (_RANGES, 2) if likelihood.operator.bounding_weights else (_RANGES,):
            ends = np.rint(np.linspace(0, size, number + 1)).astype(np.int64)
            yield of_ranges(estimates, Ranges(ends[:-1], ends[1:])), np.repeat(np.eye(number), np.diff(ends), axis=0)
    elif likelihood.layout:
        row, column = (
            place * _SIDE // side for place, side in zip(np.indices(likelihood.layout), likelihood.layout, strict=True)
        )
        blocks = (row * _SIDE + column).ravel()
        yield linear(estimates, c := np.eye(_SIDE**2)[blocks][:, np.unique(blocks)]), c
