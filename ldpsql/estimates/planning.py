"""The error to expect before anything is collected: by mechanism and epsilon, for a number of reports and of values.

The error is that of the unbiased inversion under the uniform distribution, in which no share is near the border. The maximum
likelihood estimate has the same error there and a smaller one for shares near zero. For key-value mechanisms it is the
error of a key's frequency, if all keys are equally frequent and everybody has as many pairs as the padding. For strings that
are not listed it is the error of a rare string of the largest length; shorter ones have smaller errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import singledispatch
from math import inf

import numpy as np

from ldpsql.channels import OrthogonalHash, SetChannel
from ldpsql.channels.costs import Cost
from ldpsql.channels.galois import quicker_symbols
from ldpsql.errors import DataError, InternalError, InvalidParameter, NotPrivate, UsageError
from ldpsql.estimates.scale import scale_of
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import (
    CategoricalMechanism,
    CertifiedMechanism,
    CertifiedOne,
    CertifiedPairs,
    CertifiedRow,
    CertifiedStrings,
    CertifiedValues,
    Mechanism,
    certify,
    certify_values,
)
from ldpsql.mechanisms.families import NumberMechanism
from ldpsql.privacy.claims import Epsilon

MAX_VALUES = 1 << 20
_ALIKE, _CHEAP = 1.02, 5.0  # errors within two percent are equal, and costs up to five times the least
_DEVIATIONS = 1.96  # of the interval that is to be short


@dataclass(frozen=True)
class Expected:
    """The expected error of one mechanism at one epsilon.

    ``std_error`` is the root mean square over the values of a share's standard error, or over the keys of a frequency's;
    ``total_variation`` is the expected distance to the truth, None for frequencies, which do not form a distribution;
    ``reports_needed`` is how many reports make the standard error one percent. These are None if the reports do not determine
    the shares. ``mean_error`` is the standard error of the mean of numbers, in their unit; None for other mechanisms.
    """

    mechanism: str
    epsilon: float
    std_error: float | None
    total_variation: float | None
    reports_needed: int | None
    mean_error: float | None = None


def expected_error(mechanism: Mechanism, reports: int) -> Expected:
    """Return the error to expect from this many reports of a mechanism."""
    if reports < 1:
        raise InvalidParameter("a plan needs at least one report", "for example 100000")
    certified = certify(mechanism)
    one = _single(certified)  # of a single report: errors fall with the root of their number
    epsilon, mean = float(certified.certificate.claim.epsilon), mean_error(mechanism, reports)
    root_mean_square = float(np.sqrt(np.mean(one**2)))
    if not root_mean_square < np.sqrt(reports):  # an error above 1 says nothing about a share
        return Expected(mechanism.name, epsilon, None, None, None, mean)
    return Expected(
        mechanism=mechanism.name,
        epsilon=epsilon,
        std_error=root_mean_square / np.sqrt(reports),
        total_variation=_total_variation(one, reports) if isinstance(certified, CertifiedValues | CertifiedRow) else None,
        reports_needed=int(np.ceil((root_mean_square / 0.01) ** 2)),
        mean_error=mean,
    )


def share_error(certified: CertifiedMechanism, reports: int) -> float:
    """Return the root mean square over the values of a share's standard error."""
    return float(np.sqrt(np.mean(_single(certified) ** 2) / reports))


def mean_error(mechanism: Mechanism, reports: int, shares: Floats | None = None) -> float | None:
    """Return the standard error of the mean of numbers, under the shares, shape (1, values), or the uniform distribution."""
    if not isinstance(mechanism, NumberMechanism):
        return None
    operator, x = operator_of(mechanism), scale_of(certify_values(mechanism).values)
    truth = np.full((1, len(x)), 1.0 / len(x)) if shares is None else shares
    law = operator.forward(truth)
    if operator.bounding_weights is None:
        _, variance = operator.functionals(law, np.array([float(reports)]), truth, x[:, None])
        return float(np.sqrt(variance[0, 0]))
    weights = operator.bounding_weights.majorants(x[:, None], reports, _DEVIATIONS, sets=False).weights[0]
    return float(np.sqrt((law[0] @ weights**2 - (law[0] @ weights) ** 2) / reports))


def _total_variation(one: np.ndarray, reports: int) -> float:
    return min(1.0, float(one.sum()) / np.sqrt(2 * np.pi * reports))  # E|N| = s sqrt(2/pi)


@singledispatch
def _single(certified: CertifiedMechanism) -> np.ndarray:
    """Return the standard errors of everything that is estimated, from a single report."""
    raise InternalError(f"{type(certified).__name__} is not registered here", "register it next to the other kinds")


@_single.register
def _(certified: CertifiedPairs) -> np.ndarray:
    """Return the standard error of every frequency: padding (C/n - other)/lift, for the binomial number C that show the key."""
    channel, law = certified.channel, certified.channel.response.key_law()
    chance = float(law.other + law.lift / max(channel.padding, channel.keys))
    return np.full(channel.keys, channel.padding * np.sqrt(chance * (1 - chance)) / float(law.lift))


@_single.register
def _(certified: CertifiedStrings) -> np.ndarray:
    """Return the standard error of the share of a rare string, which only reports of the last level show."""
    channel = certified.channel
    hit, miss = float(channel.hit), float(channel.miss)
    return np.array([np.sqrt(channel.levels * miss * (1 - miss)) / (hit - miss)])


@_single.register
def _(certified: CertifiedOne) -> np.ndarray:
    """Return infinite errors: reports of one column say nothing about cells."""
    return np.full(len(certified.parts), inf)


@_single.register
def _(certified: CertifiedRow) -> np.ndarray:
    """Return the standard error of every cell, under the uniform distribution: variances of the inverse are products."""
    second = np.ones(1)
    for part in certified.parts:
        single, size = _single(part), len(part.values)
        second = (second[:, None] * (single**2 + 1 / size**2)).ravel()
    return np.sqrt(np.maximum(second - 1 / len(second) ** 2, 0.0))


@_single.register
def _(certified: CertifiedValues) -> np.ndarray:
    """Return the standard error of every share, under the uniform distribution."""
    channel = certified.channel
    size = channel.inputs
    if isinstance(channel, SetChannel):
        # A share is (C/n - miss)/(hit - miss) for the number C of reports that support the value: C is binomial.
        hit, miss = float(channel.hit), float(channel.miss)
        chance = (hit + (size - 1) * miss) / size
        return np.full(size, np.sqrt(chance * (1 - chance)) / abs(hit - miss))
    model = operator_of(certified.mechanism)
    uniform = np.full((1, size), 1.0 / size)
    return model.interval(model.forward(uniform), np.ones(1), uniform, 1.0)[0][0]


def compare(epsilons: Sequence[str], reports: int, mechanisms: Sequence[Mechanism]) -> list[Expected]:
    """Return the expected errors of every mechanism at every epsilon (strings, so that they stay exact), the smallest first.

    If errors differ by less than two percent, a mechanism whose reports cost much less comes first.

    A mechanism that does not exist at an epsilon is left out there.

    Raises:
        InvalidParameter: if no mechanism exists at any epsilon.
        InvalidEpsilon: if a string is not an epsilon.

    """
    comparison: list[Expected] = []
    refusals: list[str] = []
    for epsilon in [Epsilon.parse(text) for text in epsilons]:
        comparison += _ranked(list(_at(mechanisms, epsilon, reports, refusals)))
    if not comparison:
        hint = next(iter(refusals), "name a mechanism")
        raise InvalidParameter("none of these mechanisms exists at any of these epsilons", hint)
    return comparison


def over_declared_values(classes: Mapping[str, type[Mechanism]], values: int, only: Sequence[str] = ()) -> list[Mechanism]:
    """Return the mechanisms ``only``, or all that need only an epsilon and a domain, on this many values.

    A mechanism over sets of pairs has this many keys.
    """
    if not 2 <= values <= MAX_VALUES:
        raise InvalidParameter(f"a plan needs from 2 to {MAX_VALUES} values", "the size of the domain")
    if not only:
        only = [
            name for name, cls in sorted(classes.items()) if issubclass(cls, CategoricalMechanism) and _list_of(cls) == "domain"
        ]
    return [_on_values(classes[name], values) for name in only]


def _on_values(cls: type[Mechanism], values: int) -> Mechanism:
    parameter = _list_of(cls)
    if parameter is None:
        hint = f"write it with its parameters: {cls.signature()}"
        raise InvalidParameter(f"{cls.name} needs more than an epsilon and a number of values", hint)
    return cls(**{"epsilon": "1", parameter: range(values)})


def _list_of(cls: type[Mechanism]) -> str | None:
    """Return the parameter that lists the values or the keys; None if the mechanism needs others besides it and epsilon."""
    needed = {p.name for p in cls.parameters() if p.required} - {"epsilon"}
    return next(iter(needed)) if needed in ({"domain"}, {"keys"}) else None


def _at(
    mechanisms: Sequence[Mechanism], epsilon: Epsilon, reports: int, refusals: list[str]
) -> Iterator[tuple[Expected, Cost]]:
    """Yield expected errors and the cost of a report; add a line to the refusals for each mechanism that refuses."""
    for mechanism in mechanisms:
        try:
            changed = mechanism.changed(epsilon=str(epsilon))
            yield expected_error(changed, reports), certify(changed).channel.per_report
        except (UsageError, NotPrivate, DataError) as refusal:
            refusals.append(f"{mechanism.name} at epsilon {epsilon}: {refusal.message}")


def _ranked(answers: Sequence[tuple[Expected, Cost]]) -> Iterator[Expected]:
    """Yield answers, the smallest error first; among errors that are as good as equal, those of cheap reports first."""
    left = sorted(answers, key=lambda answer: _by_error(answer[0]))
    while left:
        alike = [answer for answer in left if _by_error(answer[0]) <= _by_error(left[0][0]) * _ALIKE]
        cheap = _CHEAP * min(cost.seconds for _, cost in alike)
        yield from (one for one, _ in sorted(alike, key=lambda answer: answer[1].seconds > cheap))
        left = left[len(alike) :]


def _by_error(expected: Expected) -> float:
    return inf if expected.std_error is None else expected.std_error


# Symbols of orthogonal hashes with which estimates are much quicker, for those who have not collected reports yet.


def quicker(mechanisms: Sequence[Mechanism], epsilons: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each mechanism and epsilon for which other symbols make estimates far quicker."""
    for mechanism in mechanisms:
        for epsilon in epsilons:
            with suppress(UsageError, NotPrivate, DataError):
                if sentence := _advice(mechanism.changed(epsilon=epsilon)):
                    yield f"{mechanism.name} at epsilon {epsilon}: {sentence}"


def _advice(mechanism: Mechanism) -> str | None:
    certified = certify(mechanism)
    channel = certified.channel if isinstance(certified, CertifiedValues) else None
    if not isinstance(channel, OrthogonalHash):
        return None
    one = quicker_symbols(channel.ratio, channel.inputs, channel.response.size)
    return one and (
        f"with symbols={one.symbols}, estimates transform {one.fewer:.0f} times as few numbers, and errors are "
        f"{one.larger - 1:.0%} larger"
    )
