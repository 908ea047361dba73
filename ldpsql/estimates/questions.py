"""Which mechanism answers a question about numbers best: the error to expect of means, distributions, ranges and quantiles.

The numbers are whole steps in order, such as years of age, days or minutes. If reports distinguish them, the estimate is the
debiased one, and its error is computed. If they hardly distinguish neighbours, a mean has the error of its weights. All else is
then estimated with smoothing from simulated reports, as its error is mostly the bias of smoothing: on two model distributions,
one smooth and one in which a third of all people have one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import NamedTuple

import numpy as np

from ldpsql.channels import SetChannel
from ldpsql.errors import DataError, InvalidParameter, NotPrivate, UsageError
from ldpsql.estimates.estimate import estimate_counts
from ldpsql.estimates.planning import mean_error, share_error
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.resampling import generator
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Floats, Operator
from ldpsql.mechanisms.base import CategoricalMechanism, CertifiedValues, Mechanism, certify_values
from ldpsql.mechanisms.families import IntervalMechanism
from ldpsql.names import IBU, INV
from ldpsql.privacy.claims import Epsilon, PureLdp
from ldpsql.reports import HashReports

MOST_STEPS = 1 << 20
_COARSE = 128  # bins of a mechanism that has bins: errors hardly depend on their number
_LISTED = 1024  # values of a mechanism whose cost grows with them
_RANGES, _DRAWS = 100, 3


class Question(StrEnum):
    """What is asked about numbers."""

    MEAN = "mean"
    DISTRIBUTION = "distribution"
    RANGES = "ranges"
    QUANTILES = "quantiles"


@dataclass(frozen=True)
class Answer:
    """How well a mechanism answers a question at one epsilon.

    ``error`` is the expected error: of the mean in steps; of the distribution its Wasserstein distance to the truth in steps;
    of a random range the error of its share; of the quartiles in steps. ``estimator`` is the one that has this error, and
    ``recommended`` whether no other mechanism has a smaller one at this epsilon.
    """

    question: str
    mechanism: str
    estimator: str
    epsilon: float
    error: float
    recommended: bool = False


class Asked(NamedTuple):
    """A question, one of `Question`, that so many reports are to answer about so many numbers in order."""

    question: str
    reports: int
    steps: int

    def checked(self) -> None:
        """Refuse what no plan answers.

        Raises:
            InvalidParameter: if the question is another, or there are too few or too many numbers or reports.

        """
        if self.question not in list(Question):
            raise InvalidParameter(f"a plan answers one of these questions: {', '.join(Question)}", "question := 'ranges'")
        if not 2 <= self.steps <= MOST_STEPS or self.reports < 1:
            raise InvalidParameter(f"a plan needs a report and from 2 to {MOST_STEPS:,} values", "for example 100000 and 101")


def recommend(
    asked: Asked, epsilons: Sequence[str], classes: Mapping[str, type[Mechanism]], smoothing: Estimator
) -> list[Answer]:
    """Return how well each mechanism answers a question about numbers, the best first, epsilon by epsilon.

    Args:
        asked: the question.
        epsilons: strings, so that they stay exact.
        classes: the mechanisms to compare; those that are not over numbers or listed values are left out.
        smoothing: the estimator for reports that hardly distinguish neighbours.

    Raises:
        InvalidParameter: if the question cannot be answered, or no mechanism answers it at any epsilon.
        InvalidEpsilon: if a string is not an epsilon.

    """
    asked.checked()
    answers: list[Answer] = []
    for epsilon in map(Epsilon.parse, epsilons):
        at_epsilon = sorted(_answers(asked, epsilon, classes, smoothing), key=lambda answer: answer.error)
        answers += [replace(answer, recommended=not place) for place, answer in enumerate(at_epsilon)]
    if not answers:
        raise InvalidParameter("none of these mechanisms answers this at any of these epsilons", "leave out --mechanism")
    return answers


def _answers(asked: Asked, epsilon: Epsilon, classes: Mapping[str, type[Mechanism]], smoothing: Estimator) -> Iterator[Answer]:
    for cls in classes.values():
        try:
            mechanism = _over_steps(cls, str(epsilon), asked.steps)
            if mechanism is None or not isinstance(mechanism.claim(), PureLdp):
                continue
            error, estimator = _error(asked, mechanism, smoothing)
        except (UsageError, NotPrivate, DataError):
            continue  # it does not exist at this epsilon or for so many values
        if error < inf:
            yield Answer(asked.question, mechanism.name, estimator, float(epsilon), error)


def _over_steps(cls: type[Mechanism], epsilon: str, steps: int) -> Mechanism | None:
    """Return a mechanism over so many whole numbers; None if it is not over numbers, or costs too much for so many."""
    parameters = {parameter.name: parameter for parameter in cls.parameters()}
    needed = {name for name, parameter in parameters.items() if parameter.required}
    if needed == {"epsilon", "low", "high"} and "step" in parameters:
        coarse = steps > _COARSE and issubclass(cls, IntervalMechanism)
        return cls(**{"epsilon": epsilon, "low": 0, "high": steps - 1} | ({"bins": _COARSE} if coarse else {"step": 1}))
    if (
        issubclass(cls, CategoricalMechanism)
        and needed == {"epsilon", "domain"}
        and (steps <= _LISTED or cls.sql_reports == HashReports.marker)
    ):
        return cls(epsilon=epsilon, domain=range(steps))
    return None


def _error(asked: Asked, mechanism: Mechanism, smoothing: Estimator) -> tuple[float, str]:
    """Return the error of a mechanism for a question, and the name of the estimator that has it."""
    certified, question = certify_values(mechanism), Question(asked.question)
    if isinstance(certified.channel, SetChannel):
        return _in_steps(asked, _listed(question, certified, asked.reports)), INV
    operator = operator_of(mechanism)
    if operator.bounding_weights is None:
        return _in_steps(asked, _determined(question, operator, asked.reports)), IBU
    if question is Question.MEAN:
        return mean_error(mechanism, asked.reports) or inf, INV
    return _in_steps(asked, _smoothed(question, mechanism, asked.reports, smoothing)), smoothing.name


def _listed(question: Question, certified: CertifiedValues, reports: int) -> Floats:
    """Return the mean squared errors if the shares of all values have equal and independent errors, but sum to one."""
    u = _places(min(len(certified.values), _LISTED))
    c = _functionals(question, u)
    spread = (c**2).mean(axis=0) - c.mean(axis=0) ** 2
    return np.asarray(share_error(certified, reports) ** 2 * len(certified.values) * spread)


def _determined(question: Question, operator: Operator, reports: int) -> Floats:
    """Return the variances of the debiased estimates if all values are equally common."""
    uniform = np.full((1, operator.inputs), 1.0 / operator.inputs)
    c = _functionals(question, _places(operator.inputs))
    return operator.functionals(operator.forward(uniform), np.array([float(reports)]), uniform, c)[1][0]


def _smoothed(question: Question, mechanism: Mechanism, reports: int, smoothing: Estimator) -> Floats:
    """Return the mean squared errors of a smoothed estimate on the model distributions."""
    operator = operator_of(mechanism)
    u = _places(operator.inputs)
    c, squared = _functionals(question, u), []
    for theta in _models(u):
        rng = generator(np.rint(theta * reports))  # the same plan has the same errors
        counts = rng.multinomial(reports, operator.forward(theta[None])[0], _DRAWS).astype(np.float64)
        estimated = estimate_counts(mechanism, counts, smoothing).fit.theta
        squared.append(((estimated - theta) @ c) ** 2)
    return np.asarray(np.concatenate(squared).mean(axis=0))


def _places(count: int) -> Floats:
    """Return the places of the values on a scale from 0 to 1."""
    return np.linspace(0.0, 1.0, count)


def _models(u: Floats) -> tuple[Floats, Floats]:
    """Return a smooth distribution over these places, and one in which a third of all people have one value."""
    smooth = u * (1 - u) ** 3 + 1e-3
    smooth /= smooth.sum()
    spiked = 2 / 3 * smooth
    spiked[round(0.3 * (len(u) - 1))] += 1 / 3
    return smooth, spiked


def _functionals(question: Question, u: Floats) -> Floats:
    """Return the functionals that a question is about, shape (places, functionals)."""
    if question is Question.MEAN:
        return u[:, None]
    if question is Question.RANGES:
        few = _RANGES if len(u) <= _LISTED else _RANGES // 10
        one, other = (np.arange(1, few + 1) * step % 1.0 for step in (0.618034, 0.754878))  # spread evenly
        low, high = np.minimum(one, other), np.maximum(one, other)
        return ((u[:, None] >= low) & (u[:, None] <= high)).astype(np.float64)
    ends = np.linspace(0.0, 1.0, 18)[1:-1] if question is Question.DISTRIBUTION else _quartiles()[0]
    return (u[:, None] <= ends).astype(np.float64)


def _quartiles() -> tuple[Floats, Floats]:
    """Return the quartiles of the smooth model, and its density there."""
    u = _places(_LISTED)
    smooth = _models(u)[0]
    places = np.searchsorted(smooth.cumsum(), [0.25, 0.5, 0.75])
    return u[places], smooth[places] * len(u)


def _in_steps(asked: Asked, squared: Floats) -> float:
    """Return the error of the answer from the mean squared errors of the functionals; that of a share for ranges."""
    match Question(asked.question):
        case Question.RANGES:
            return float(np.sqrt(squared.mean()))
        case Question.QUANTILES:
            return float(np.sqrt((squared / _quartiles()[1] ** 2).mean())) * (asked.steps - 1)
        case Question.DISTRIBUTION:
            return float(np.sqrt(2 / np.pi * squared).mean()) * (asked.steps - 1)  # E|N| = s sqrt(2/pi)
        case Question.MEAN:
            return float(np.sqrt(squared[0])) * (asked.steps - 1)
