"""The diagnosis of one estimate: how it came about, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    unknown. See `ldpsql.estimates.verdict.judged`.
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
