"""What shuffling adds to the privacy of a mechanism: the central epsilon and delta of all reports together."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.privacy.shuffling import central

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
