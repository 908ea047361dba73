"""The information in the reports of a mechanism: entropies, distortion, and repeated reports, and what shuffling adds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TableChannel
from ldpsql.channels.costs import Cost
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import Mechanism, certify, certify_values
from ldpsql.privacy.shuffling import central

_CELL = Cost(1e-8, 64)  # of a table of probabilities, and of what is computed from it
_ROUNDING = 1e-12  # of sums over the reports: it must not make a bound too small
_POWERS = np.arange(1, 8) / 8  # any power between 0 and 1 gives a valid bound; 1/2 is the best one for symmetric channels


@dataclass(frozen=True)
class Information:
    """What one report reveals about a value on average.

    Attributes:
        entropy: nats of uncertainty about the value before its report.
        residual_entropy: the same after it.
        mutual_information: the difference.
        average_distortion: the mean distance from value to report, None if reports are not values of the domain.
        least_information: the least nats that a channel with this distortion can reveal, None without a slope.

    """

    entropy: float
    residual_entropy: float
    mutual_information: float
    average_distortion: float | None
    least_information: float | None


@dataclass(frozen=True)
class RepeatedError:
    """How surely repeated reports of one value identify it.

    Attributes:
        divergence: the Chernoff information of the two values that are hardest to tell apart, in bits.
        error: at most this is the probability that the most likely value, given all reports, is not the true one.
        types_error: the same from the method of types, which is much larger for few reports.

    """

    divergence: float
    error: float
    types_error: float


def _prior(mechanism: Mechanism, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.asarray(prior, dtype=np.float64)
    size = certify_values(mechanism).channel.inputs
    if weights.shape != (size,) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise InvalidParameter(f"a prior of {mechanism.name} must hold {size} numbers, none negative, not all zero")
    return weights / weights.sum()


def _table(mechanism: Mechanism) -> NDArray[np.float64]:
    channel = certify_values(mechanism).channel
    if not isinstance(channel, TableChannel):
        raise InvalidParameter(f"{mechanism.name} has no table of probabilities", "use a mechanism with listed reports")
    (_CELL * (channel.inputs * channel.outputs)).check(
        f"a table of {channel.inputs:,} x {channel.outputs:,} probabilities", "use fewer values or larger cells"
    )
    return channel.probabilities()


def mutual_information(mechanism: Mechanism, prior: NDArray[np.float64]) -> float:
    """Return I(value; report) in nats under a prior over the values, shape (values,), scaled to sum to one.

    Raises:
        InvalidParameter: if the prior does not fit, or there is no table of probabilities, as for reports of sets or hashes.

    """
    shares, table = _prior(mechanism, prior), _table(mechanism)
    outcome = shares @ table
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(table > 0, np.log(table / outcome), 0.0)
    return float(shares @ (table * logs).sum(axis=1))


def information_of(mechanism: Mechanism, prior: NDArray[np.float64], beta: float | None = None) -> Information:
    """Return what one report reveals under a prior, shape (values,), scaled to sum to one.

    With a slope ``beta`` it has Blahut's lower bound: any channel with this distortion D has information at least
    -beta D - sum_x pi(x) log A(x) - log max_y alpha(y), where A(x) = sum_y c(y) e^(-beta d(x,y)),
    alpha(y) = sum_x pi(x) e^(-beta d(x,y)) / A(x), and c is any distribution: here that of the reports.
    Source: Blahut 1972, theorem 6.

    Raises:
        InvalidParameter: as `mutual_information`; with ``beta`` as `average_distortion`.

    """
    shares = _prior(mechanism, prior)
    some = shares[shares > 0]
    before, revealed = -float(some @ np.log(some)), mutual_information(mechanism, prior)
    after = max(0.0, before - revealed)
    if beta is None:
        distortion = average_distortion(mechanism, prior) if _are_values(mechanism) else None
        return Information(before, after, revealed, distortion, None)
    distortion, near = average_distortion(mechanism, prior), np.exp(-beta * _distortion(mechanism))
    scale = near @ (shares @ _table(mechanism))
    tilt = float(np.log(((shares / scale) @ near).max()))
    least = -beta * distortion - float(shares @ np.log(scale)) - tilt
    return Information(before, after, revealed, distortion, max(0.0, least))


def average_distortion(mechanism: Mechanism, prior: NDArray[np.float64]) -> float:
    """Return the mean distance from value to report under a prior, in units of the metric.

    Without a metric it is the probability that they differ.

    Raises:
        InvalidParameter: as `mutual_information`, and for a mechanism whose reports are not the values of its domain.

    """
    return float((_prior(mechanism, prior) @ (_table(mechanism) * _distortion(mechanism))).sum())


def _distortion(mechanism: Mechanism) -> NDArray[np.float64]:
    """Return the distances between values and reports: those of the claim's metric, else 0 or 1."""
    if not _are_values(mechanism):
        raise InvalidParameter(f"the reports of {mechanism.name} are not values of its domain", "distortion needs them to be")
    certified = certify_values(mechanism)
    metric = getattr(certified.certificate.claimed, "metric", None)
    return metric.matrix() if metric is not None else 1.0 - np.eye(len(certified.values))


def _are_values(mechanism: Mechanism) -> bool:
    certified = certify_values(mechanism)
    return isinstance(certified.reports, Domain) and certified.values.values.equals(certified.reports.values)


def repeated_error(mechanism: Mechanism, reports: int) -> RepeatedError:
    """Return how surely this many reports of one value, drawn independently, identify it.

    The sum over all other values bounds the error by Chernoff. The method of types bounds the probability that the shares of
    the reports diverge from the channel's row, and they must do so by ``divergence`` before another row is nearer.
    Source: ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update", 2020, section VI.C, equation 17.

    Raises:
        InvalidParameter: if there is no table of probabilities, or the reports are not a whole number of at least 1.

    """
    if isinstance(reports, bool) or not isinstance(reports, int) or reports < 1:
        raise InvalidParameter("reports must be a whole number of at least 1", "the number of reports of one person")
    table = _table(mechanism)
    (Cost(5e-7) * table.size + Cost(1e-10) * (len(_POWERS) * len(table) * table.size)).check(
        f"comparing the rows of {table.shape[0]:,} values", "use fewer values or larger cells"
    )
    with np.errstate(divide="ignore"):  # rows without a common report
        overlap = np.log2(np.minimum(_overlaps(table) * (1.0 + _ROUNDING), 1.0))
    np.fill_diagonal(overlap, -np.inf)
    others = np.exp2(reports * overlap).sum(axis=1)
    divergence = abs(float(overlap.max()))  # not -0.0
    types = table.shape[1] * np.log2(1.0 + reports) - reports * divergence
    return RepeatedError(divergence, min(1.0, float(others.max())), float(np.exp2(min(0.0, types))))


def _overlaps(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smallest sum over the reports of a^(1-s) b^s for each pair of rows a, b."""
    return reduce(np.minimum, ((table ** (1.0 - power)) @ (table**power).T for power in _POWERS))


# What shuffling adds to the privacy of a mechanism: the central epsilon and delta of all reports together.

_MOST_REPORTS = 10**10
_SMALLEST_DELTA = 1e-14


@dataclass(frozen=True)
class Shuffled:
    """The central privacy of the shuffled reports of a mechanism.

    All reports together, in random order and without ids, are (``epsilon``, ``delta``)-differentially private with respect to
    the value of one person. No analysis can prove less than ``epsilon_at_least``; it is 0 where no attack has been computed.
    ``local_epsilon`` is what one report keeps by itself.
    """

    mechanism: str
    reports: int
    delta: float
    epsilon: float
    epsilon_at_least: float
    local_epsilon: float


def shuffled(mechanism: Mechanism | str, *, reports: int, delta: float) -> Shuffled:
    """Return the central privacy of the shuffled reports of a mechanism, one report for each person.

    It holds against a reader who sees the reports in random order and without ids, and if all the people counted have sent a
    report that this mechanism drew. It is never applied by itself: the ledger charges local privacy.

    Source: Wang et al., "Privacy amplification via shuffling: unified, simplified, and tightened", VLDB 2024, with the exact
    largest ratio and total variation of the channel.

    Args:
        mechanism: the mechanism that draws the reports, its text, or its name in the settings.
        reports: the number of reports, at least 2 and at most 10^10.
        delta: the probability with which epsilon may be exceeded, at least 1e-14 and below 1.

    Raises:
        InvalidParameter: if a number is outside of its range.
        NotPrivate: if some report of the mechanism rules a value out.

    """
    if not isinstance(reports, int) or not 2 <= reports <= _MOST_REPORTS:
        raise InvalidParameter(f"reports must be a whole number from 2 to {_MOST_REPORTS}", "count one report for each person")
    if not isinstance(delta, int | float) or not _SMALLEST_DELTA <= delta < 1:
        raise InvalidParameter(f"delta must be at least {_SMALLEST_DELTA:g} and below 1", "less than 1 / reports, such as 1e-9")
    certified = certify(mechanism)
    epsilon, at_least, local = central(certified.channel, reports, delta)
    return Shuffled(certified.mechanism.name, reports, delta, epsilon, at_least, local)
