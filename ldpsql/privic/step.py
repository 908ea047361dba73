"""One step of PRIVIC: from the reports of a cycle to the estimate, and to the mechanism of the next cycle.

Source: Biswas, Palamidessi, "PRIVIC: a privacy-preserving method for incremental collection of location data", PETS 2024,
algorithm 1. A cycle draws everybody's report with a mechanism that is made for a prior, updates the prior by the iterative
Bayesian update from these reports, and makes the mechanism for the new prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ldpsql.errors import InvalidParameter, NotReports
from ldpsql.estimates.fitting import check_possible
from ldpsql.estimates.uncertainty import suspicious
from ldpsql.estimators.iteration import IterativeEstimator
from ldpsql.inference.counting import operator_of
from ldpsql.inference.likelihood import Likelihood, joined
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.solver.mle import em_step
from ldpsql.mechanisms.audit import AnalyticAudit, analytic
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.families import PriorMechanism
from ldpsql.mechanisms.information import average_distortion, mutual_information
from ldpsql.names import IBU

STEPS = 5  # of IBU and of Blahut-Arimoto, as in the paper's tables for San Francisco
_PROBING = 50
_TINY = 1e-300  # rounding must not make a share zero
_ROUNDING = 2.0**-53


@dataclass(frozen=True)
class Summary:
    """How the estimate of a cycle was computed, and how private and how exact the next mechanism is.

    ``gap`` bounds the distance of theta from the maximum of the likelihood, as in `Likelihood.gap`. ``mutual_information``
    (nats) and ``average_distortion`` (units of the metric) are those of the next mechanism under theta. ``tight_epsilon`` is
    the epsilon per unit of distance of its channel in doubles, ``realised_epsilon`` that of the channel in whole numbers, which
    draws.
    """

    reports: int
    iterations: int
    status: str
    gap: float
    mutual_information: float
    average_distortion: float
    tight_epsilon: float
    realised_epsilon: float


@dataclass(frozen=True)
class Step:
    """The result of a cycle: the estimate, shape (values,), and the next mechanism with the certificate of its privacy."""

    theta: Floats
    next: PriorMechanism
    summary: Summary
    certificate: AnalyticAudit

    def row(self) -> dict[str, Any]:
        """Return the estimate, the summary and the certificate as SQL takes them."""
        return {"theta": self.theta.tolist(), **asdict(self.summary), "certificate": asdict(self.certificate)}


def step(cycles: Sequence[tuple[Mechanism, Floats]], stop: str = str(STEPS)) -> Step:
    """Update the estimate from the reports of a cycle, or of several together, and make the next mechanism.

    IBU starts at the prior of the last cycle's mechanism. The likelihoods of several cycles are multiplied: their channels are
    stacked, each with the share of its reports.

    Args:
        cycles: the mechanism of each cycle, oldest first, and the counts of its reports, shape (reports of the alphabet,).
        stop: a number of steps of IBU, or 'certified' for the maximum of the likelihood.

    Raises:
        InvalidParameter: if a mechanism is not made for a prior, or the cycles have different values.
        NoReports, ImpossibleReport, NotReports: if the counts cannot be those of the mechanisms' reports.

    """
    last = _made_for_prior(cycles[-1][0])
    _check_one_run(cycles, last)
    parts = [Likelihood(operator_of(mechanism), counts[None]) for mechanism, counts in cycles]
    for part in parts:
        check_possible(part)
    pooled = joined(parts)
    fit = _updated(pooled, last, stop)
    theta = fit.theta
    if not all(_plausible(part, theta) for part in parts):
        raise NotReports(
            "these reports were not drawn by this cycle's mechanism: no distribution explains them",
            "pass the reports of one cycle with the mechanism that drew them",
        )
    following = last.with_prior(theta[0])
    audit = analytic(following)
    summary = Summary(
        reports=int(pooled.n[0]),
        iterations=int(fit.iterations[0]),
        status=fit.status[0].value,
        gap=max(0.0, float(pooled.gap(theta)[0])),
        mutual_information=mutual_information(following, theta[0]),
        average_distortion=average_distortion(following, theta[0]),
        tight_epsilon=following.tight(),
        realised_epsilon=audit.epsilon,
    )
    return Step(theta[0], following, summary, audit)


def _made_for_prior(mechanism: Mechanism) -> PriorMechanism:
    if not isinstance(mechanism, PriorMechanism):
        raise InvalidParameter(f"{mechanism.name} is not made for a prior", "start with ldp.privic_start")
    return mechanism


def _check_one_run(cycles: Sequence[tuple[Mechanism, Floats]], last: PriorMechanism) -> None:
    """Refuse cycles whose mechanisms differ in more than their priors."""
    earlier = [_made_for_prior(mechanism).with_prior(last.shares) for mechanism, _ in cycles[:-1]]
    if earlier and set(earlier) != {last.with_prior(last.shares)}:
        raise InvalidParameter("the mechanisms of the cycles differ in more than their priors", "pool the cycles of one run")


class _FromPrior(IterativeEstimator):
    """IBU from the prior ``start``, with ``stop`` steps."""

    name = IBU

    def fit(self, likelihood: Likelihood) -> Fit:
        """Take the steps."""
        return self.stepped(likelihood, Status.STOPPED)


def _updated(likelihood: Likelihood, mechanism: PriorMechanism, stop: str) -> Fit:
    """Return the estimate of IBU that starts at the mechanism's prior."""
    prior = mechanism.shares
    if stop == "certified":
        prior = 0.999 * prior + 0.001 / len(prior)  # a share of zero would stay zero
    else:
        stop = str(read_steps(stop))
    if not prior.all():
        raise InvalidParameter("the prior of some value is zero, and steps of IBU leave it zero", "start with a full prior")
    fit = _FromPrior(stop=stop, start=tuple(np.clip(prior, _TINY, 1.0 - _ROUNDING).tolist())).fit(likelihood)
    return replace(fit, theta=np.maximum(fit.theta, _TINY)) if fit.status == (Status.STOPPED,) else fit


def _plausible(likelihood: Likelihood, theta: Floats) -> bool:
    """Return whether some distribution explains the reports; a few more steps show it sooner than the maximum does."""
    for _ in range(_PROBING):
        theta = em_step(likelihood, theta)
    return not suspicious(likelihood, theta).any()


def read_steps(stop: str) -> int:
    """Return the number of steps that a text holds.

    Raises:
        InvalidParameter: if the text is anything else.

    """
    if not (stop.isdecimal() and stop.isascii() and 1 <= len(stop) <= 6 and int(stop)):
        raise InvalidParameter("stop must be 'certified' or a number of steps", f"the default is {STEPS}")
    return int(stop)


def full_prior(prior: Sequence[object] | None, size: int) -> list[float]:
    """Return the shares of a prior as floats; None stands for the uniform prior.

    Raises:
        InvalidParameter: if it does not hold a positive share for each value, or they do not sum to 1.

    """
    if prior is None:
        return [1.0 / size] * size
    try:
        shares = [float(share) for share in prior]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        shares = []
    if len(shares) != size or not all(share > 0 for share in shares) or not abs(sum(shares) - 1.0) <= 1e-9:
        raise InvalidParameter(
            f"the first prior must hold {size} positive shares that sum to 1", "leave it out for the uniform one"
        )
    return shares
