"""Which mechanism answers a question about numbers or places best: the error to expect of means, ranges, rectangles and others.

The numbers are whole steps in order, such as years of age, days or minutes. If reports distinguish them, the estimate is the
debiased one, and its error is computed. If they hardly distinguish neighbours, a mean has the error of its weights. All else is
then estimated with smoothing from simulated reports, as its error is mostly the bias of smoothing: on two model distributions,
one smooth and one in which a third of all people have one value.

Rectangles are asked of a grid of cells, which reports distinguish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from ldpsql.channels import SetChannel
from ldpsql.errors import DataError, InvalidParameter, NotPrivate, UsageError
from ldpsql.estimates.asked import Asked, Question, in_steps, models, on_a_line, places
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

_COARSE = 128  # bins of a mechanism that has bins: errors hardly depend on their number
_LISTED = 1024  # values of a mechanism whose cost grows with them
_DRAWS = 3


@dataclass(frozen=True)
class Answer:
    """How well a mechanism answers a question at one epsilon.

    ``error`` is the expected error: of the mean in steps; of the distribution its Wasserstein distance to the truth in steps;
    of a random range or rectangle the error of its share; of the quartiles in steps. ``estimator`` is the one that has this
    error, and ``recommended`` whether no other mechanism has a smaller one at this epsilon.
    """

    question: str
    mechanism: str
    estimator: str
    epsilon: float
    error: float
    recommended: bool = False


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
            mechanism = _over_steps(cls, str(epsilon), asked)
            if mechanism is None or not isinstance(mechanism.claim(), PureLdp):
                continue
            error, estimator = _error(asked, mechanism, smoothing)
        except (UsageError, NotPrivate, DataError):
            continue  # it does not exist at this epsilon or for so many values
        if error < inf:
            yield Answer(asked.question, mechanism.name, estimator, float(epsilon), error)


def _over_steps(cls: type[Mechanism], epsilon: str, asked: Asked) -> Mechanism | None:
    """Return a mechanism over so many whole numbers or cells; None if it is not over them, or costs too much for so many."""
    steps = asked.steps
    parameters = {parameter.name: parameter for parameter in cls.parameters()}
    needed = {name for name, parameter in parameters.items() if parameter.required}
    if asked.width is not None and needed == {"epsilon", "columns", "rows"}:
        return cls(**{"epsilon": epsilon} | {"columns": asked.width, "rows": steps // asked.width})
    if asked.width is None and needed == {"epsilon", "low", "high"} and "step" in parameters:
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
        return in_steps(asked, _listed(asked, certified)), INV
    operator = operator_of(mechanism)
    if operator.bounding_weights is None:
        return in_steps(asked, _determined(asked, operator)), IBU
    if question is Question.MEAN:
        return mean_error(mechanism, asked.reports) or inf, INV
    if question is Question.RECTANGLES:
        return inf, INV  # the models are on a line
    return in_steps(asked, _smoothed(question, mechanism, asked.reports, smoothing)), smoothing.name


def _listed(asked: Asked, certified: CertifiedValues) -> Floats:
    """Return the mean squared errors if the shares of all values have equal and independent errors, but sum to one."""
    c = asked.functionals()
    spread = (c**2).mean(axis=0) - c.mean(axis=0) ** 2
    return np.asarray(share_error(certified, asked.reports) ** 2 * len(certified.values) * spread)


def _determined(asked: Asked, operator: Operator) -> Floats:
    """Return the variances of the debiased estimates if all values are equally common."""
    uniform = np.full((1, operator.inputs), 1.0 / operator.inputs)
    c = asked.functionals(operator.inputs)
    return operator.functionals(operator.forward(uniform), np.array([float(asked.reports)]), uniform, c)[1][0]


def _smoothed(question: Question, mechanism: Mechanism, reports: int, smoothing: Estimator) -> Floats:
    """Return the mean squared errors of a smoothed estimate on the model distributions."""
    operator = operator_of(mechanism)
    u = places(operator.inputs)
    c, squared = on_a_line(question, u), []
    for theta in models(u):
        rng = generator(np.rint(theta * reports))  # the same plan has the same errors
        counts = rng.multinomial(reports, operator.forward(theta[None])[0], _DRAWS).astype(np.float64)
        estimated = estimate_counts(mechanism, counts, smoothing).fit.theta
        squared.append(((estimated - theta) @ c) ** 2)
    return np.asarray(np.concatenate(squared).mean(axis=0))
