"""What error to expect before anything is collected: by mechanism and epsilon, for a number of reports and of values.

The error is that of the unbiased inversion under the uniform distribution, in which no share is near the border; the maximum
likelihood estimate has the same error there and a smaller one where shares are near zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import numpy as np

from ldpsql.channels import SetChannel
from ldpsql.errors import InvalidParameter, LdpError
from ldpsql.inference.counting import operator_of
from ldpsql.mechanisms.base import CategoricalMechanism, Mechanism, certify
from ldpsql.privacy.claims import Epsilon

MAX_VALUES = 20_000


@dataclass(frozen=True)
class Expected:
    """The expected error of one mechanism at one epsilon.

    ``std_error`` is the root mean square over the values of a share's standard error, ``total_variation`` the expected distance
    to the truth, ``reports_needed`` how many reports make the standard error one percent. All are None where the reports do not
    determine the shares.
    """

    mechanism: str
    epsilon: float
    std_error: float | None
    total_variation: float | None
    reports_needed: int | None


def expected_error(mechanism: Mechanism, reports: int) -> Expected:
    """Return the error to expect from this many reports of a mechanism.

    Raises:
        InvalidParameter: for less than one report.

    """
    if reports < 1:
        raise InvalidParameter("a plan needs at least one report", "for example 100000")
    one = _std_errors(mechanism)  # of a single report: errors fall with the root of their number
    epsilon = float(certify(mechanism).certificate.claim.epsilon)
    if not np.isfinite(one).all():
        return Expected(mechanism.name, epsilon, None, None, None)
    root_mean_square = float(np.sqrt(np.mean(one**2)))
    return Expected(
        mechanism=mechanism.name,
        epsilon=epsilon,
        std_error=root_mean_square / np.sqrt(reports),
        total_variation=min(1.0, float(one.sum()) / np.sqrt(2 * np.pi * reports)),  # E|N(0, s^2)| = s sqrt(2/pi)
        reports_needed=int(np.ceil((root_mean_square / 0.01) ** 2)),
    )


def _std_errors(mechanism: Mechanism) -> np.ndarray:
    """Return the standard error of every share from a single report, under the uniform distribution."""
    channel = certify(mechanism).channel
    size = channel.inputs
    if isinstance(channel, SetChannel):
        # A share is (C/n - miss)/(hit - miss) for the number C of reports that support the value: C is binomial.
        hit, miss = float(channel.hit), float(channel.miss)
        chance = (hit + (size - 1) * miss) / size
        return np.full(size, np.sqrt(chance * (1 - chance)) / abs(hit - miss))
    model = operator_of(mechanism)
    uniform = np.full((1, size), 1.0 / size)
    return model.interval(model.forward(uniform), np.ones(1), uniform, 1.0)[0][0]


def compare(epsilons: Sequence[str], reports: int, mechanisms: Sequence[Mechanism]) -> list[Expected]:
    """Return the expected errors of every mechanism at every epsilon (texts, so that they stay exact), the smallest first.

    A mechanism that cannot be had at an epsilon is left out there.

    Raises:
        InvalidParameter, InvalidEpsilon: where nothing can be compared.

    """
    known = [Epsilon.parse(epsilon) for epsilon in epsilons]
    plans = [plan for epsilon in known for plan in sorted(_at(mechanisms, epsilon, reports), key=_by_error)]
    if not plans:
        raise InvalidParameter("none of these mechanisms can be had at any of these epsilons", "raise epsilon")
    return plans


def over_declared_values(classes: Mapping[str, type[Mechanism]], values: int, only: Sequence[str] = ()) -> list[Mechanism]:
    """Return the mechanisms that need nothing but an epsilon and a domain, all or those named, on this many values."""
    if not 2 <= values <= MAX_VALUES:
        raise InvalidParameter(f"a plan needs from 2 to {MAX_VALUES} values", "the size of the domain")
    return [
        cls(epsilon="1", domain=range(values))
        for name, cls in sorted(classes.items())
        if issubclass(cls, CategoricalMechanism) and _needs_no_more(cls) and (not only or name in only)
    ]


def _needs_no_more(cls: type[Mechanism]) -> bool:
    return {p.name for p in cls.parameters() if p.required} == {"epsilon", "domain"}


def _at(mechanisms: Sequence[Mechanism], epsilon: Epsilon, reports: int) -> Iterator[Expected]:
    for mechanism in mechanisms:
        with suppress(LdpError):  # some epsilons are too small for some mechanisms
            yield expected_error(type(mechanism)(**{**mechanism.given(), "epsilon": str(epsilon)}), reports)


def _by_error(plan: Expected) -> float:
    return inf if plan.std_error is None else plan.std_error
