"""Collect in two phases: the estimate from some of the people is the prior of the mechanism of the others.

Source: Steinberger, "Efficiency in local differential privacy", Annals of Statistics 2024, section 4: the second mechanism may
depend on the first reports, since nobody reports twice, and estimates from both are as exact as if the prior was known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.bulk.charging import Charged
from ldpsql.bulk.frames import estimate
from ldpsql.bulk.run import column_run
from ldpsql.bulk.sources import Column
from ldpsql.channels.randomness import random_words
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidDomain, InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimators.base import Estimator
from ldpsql.inference.score_intervals import deviations
from ldpsql.ledger.policy import Cost
from ldpsql.mechanisms.base import Mechanism, certify, certify_values
from ldpsql.outcomes.corrected import unbiased
from ldpsql.registry.registry import registry

FIRST, SECOND = "first", "second"
_FEWEST = 2  # reports of a phase, for a standard error


@dataclass(frozen=True)
class UnbiasedMean:
    """A mean with its standard error and the ends of its interval, in the unit of the values."""

    estimate: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class TwoPhases:
    """The reports of two phases in random order, structs (level, report), and the mechanism of each level."""

    reports: pa.Array
    mechanisms: Mapping[str, Mechanism]

    def estimate(self, estimator: Estimator | str | None = None) -> Estimate:
        """Return the shares of the values from the reports of both phases: `ldpsql.estimate` with mechanisms by level."""
        return estimate(self.reports, self.mechanisms, estimator)

    def mean(self, confidence: float = 0.95) -> UnbiasedMean:
        """Return the unbiased mean of numbers: those of both phases, each weighted by the inverse of its variance.

        Given the first reports, that of the second phase is unbiased whatever they chose, so the interval holds.
        """
        means, variances = np.array([self._mean_of(level) for level in self.mechanisms]).T
        weights = (1 / variances) / (1 / variances).sum()
        middle, error = float(weights @ means), float(np.sqrt(weights**2 @ variances))
        half = deviations(confidence) * error
        return UnbiasedMean(middle, error, middle - half, middle + half)

    def _mean_of(self, level: str) -> tuple[float, float]:
        """Return the unbiased mean of a phase and its variance."""
        own = self.reports.field("report").filter(pa.array(np.array(self.reports.field("level")) == level))
        _, numbers = unbiased(self.mechanisms[level], own)
        variance = float(numbers.var(ddof=1)) / len(numbers) if len(numbers) >= _FEWEST else inf
        return float(numbers.mean()), variance


@withheld
def two_phases(
    column: Column,
    first: Mechanism | str,
    second: str,
    *,
    share: float = 0.2,
    estimator: Estimator | str | None = None,
    charge: Charged = None,
    **options: Any,
) -> TwoPhases:
    """Draw one report for each value: some people with one mechanism, the others with one made for the estimate from these.

    Args:
        column: a list, an Arrow or NumPy array, a Polars or pandas series.
        first: a mechanism that is good whatever the distribution is.
        second: the name of a mechanism with a ``prior``, such as ``optimal_mean``. It has the parameters of the first one, and
            the estimate as its prior. If every value would then give the same report, or a report would cost more than one of
            the first mechanism, the first mechanism draws both phases.
        share: the share of the people in the first phase, drawn at random.
        estimator: the estimator of the first phase, such as ``ems`` for numbers; `ibu` by default.
        charge: the ledger that is charged, as in `perturb`: once for all rows, before the first phase. Each row reports once,
            at the cost of the first mechanism, under which the history has the release.
        **options: further parameters of the second mechanism, such as ``loss`` of ``optimal``.

    Raises:
        UnknownName: if there is no second mechanism of this name.
        InvalidParameter: if it has no prior, costs more than the first one, or cannot be made for equal shares; if the two have
            different types of reports, or a phase has fewer than two people.
        InvalidDomain: if the mechanisms have different values.
        MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed.
        BudgetExceeded: if the budget would be exceeded. Then nothing is charged, as with all of these errors.

    """
    general = registry().mechanism(first)
    following = _following(general, second, options)
    _check(general, following, estimator)
    batch, _, charging = column_run(column, general, charge, following)
    values, order, size = batch.column(0), np.argsort(random_words(len(batch))), _size(share, len(batch))
    charging.whole([batch])
    people = {FIRST: values.take(pa.array(order[:size])), SECOND: values.take(pa.array(order[size:]))}
    drawn = {FIRST: certify(general).perturb(people[FIRST])}
    mechanisms = {FIRST: general, SECOND: _made_for(estimate(drawn[FIRST], general, estimator), following, general)}
    drawn[SECOND] = certify(mechanisms[SECOND]).perturb(people[SECOND])
    charging.end()
    levels = pa.array(np.repeat(list(drawn), [len(reports) for reports in drawn.values()]))
    reports = pa.StructArray.from_arrays([levels, pa.concat_arrays(drawn.values())], ["level", "report"])
    return TwoPhases(reports.take(pa.array(np.argsort(random_words(len(values))))), mechanisms)


def _size(share: float, people: int) -> int:
    """Return the number of people in the first phase."""
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise InvalidParameter("the share of the first phase must be a number between 0 and 1", "for example 0.2")
    size = round(share * people)
    if not _FEWEST <= size <= people - _FEWEST:
        raise InvalidParameter("each phase needs at least two people", "collect from more people, or take another share")
    return size


def _following(general: Mechanism, name: str, options: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism of the second phase for equal shares."""
    kind = registry().mechanisms.get(name)
    fields = set() if kind is None else set(kind.model_fields)
    if kind is not None and "prior" not in fields:
        raise InvalidParameter(f"{name} is not made for a prior", "optimal, optimal_mean and blahut_arimoto are")
    own = {name: value for name, value in general.given().items() if name in fields}
    return registry().mechanism({"mechanism": name, "prior": [1] * len(certify_values(general).values), **own, **options})


def _check(general: Mechanism, following: Mechanism, estimator: Estimator | str | None) -> None:
    """Refuse what would end the second phase after the first one."""
    if certify_values(general).values != following.values():
        raise InvalidDomain("the mechanisms of the two phases have different values", "declare the same domain for both")
    reports, others = general.alphabet(), following.alphabet()
    if not (isinstance(reports, Domain) and isinstance(others, Domain)) or reports.values.type != others.values.type:
        raise InvalidParameter(
            "the mechanisms of the two phases have reports of different types",
            "take krr for listed values, and square_wave for numbers, in the first phase",
        )
    if not _costs_at_most(following, general):
        raise InvalidParameter(
            "a report of the second mechanism costs more than one of the first", "give both the same epsilon and kind of claim"
        )
    estimate(reports.values, general, estimator)  # each report once: an estimator that does not fit refuses these too


def _costs_at_most(mechanism: Mechanism, other: Mechanism) -> bool:
    """Whether a report of a mechanism costs no more than one of another; claims of different kinds cannot be compared."""
    cost, most = (Cost.of(certify(one).certificate.claim) for one in (mechanism, other))
    return cost.currency == most.currency and cost.epsilon <= most.epsilon and cost.delta <= most.delta


def _made_for(estimated: Estimate, following: Mechanism, general: Mechanism) -> Mechanism:
    """Return the mechanism with the estimate as its prior; the general one if that reports nothing, or costs more."""
    made = following.changed(prior=np.maximum(estimated.estimate, 0.0).tolist())
    try:
        return made if _costs_at_most(made, general) else general
    except InvalidParameter:
        return general
