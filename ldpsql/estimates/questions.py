"""Which mechanism answers a question about numbers or places best: the error to expect of means, ranges, rectangles and others.

The numbers are whole steps in order, such as years of age, days or minutes. If reports distinguish them, the estimate is the
debiased one, and its error is computed. If they hardly distinguish neighbours, a mean has the error of its weights. All else is
then estimated with smoothing from simulated reports, as its error is mostly the bias of smoothing: on two model distributions,
one smooth and one in which a third of all people have one value. With an example of such data, the errors of means are computed
for it, and all others come from simulated reports of people like those of the example.

Rectangles are asked of a grid of cells, which reports distinguish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from ldpsql.channels import SetChannel
from ldpsql.channels.costs import Cost
from ldpsql.domains.domain import Domain
from ldpsql.errors import DataError, InvalidParameter, NotPrivate, UsageError
from ldpsql.estimates.asked import Asked, PlanQuestion, in_steps, models, on_a_line, places
from ldpsql.estimates.estimate import estimate_counts
from ldpsql.estimates.example import quartile_errors, rebinned
from ldpsql.estimates.planning import mean_error, share_error
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.resampling import generator
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Floats, Operator
from ldpsql.mechanisms.base import CategoricalMechanism, CertifiedValues, Mechanism, certify_values
from ldpsql.mechanisms.families import IntervalMechanism
from ldpsql.names import IBU, INV
from ldpsql.privacy.claims import Epsilon, PureLdp
from ldpsql.reports import HashReports, NumberedReports

_COARSE = 128  # bins of a mechanism that has bins: errors hardly depend on their number
_LISTED = 1024  # values of a mechanism whose cost grows with them
_DRAWS = 3
_SECONDS = {  # of an epsilon, and of each value
    PlanQuestion.MEAN: (0.03, 1.5e-6),
    PlanQuestion.QUANTILES: (0.35, 1.8e-6),
    PlanQuestion.RANGES: (0.35, 3.4e-6),
    PlanQuestion.RECTANGLES: (0.35, 3.4e-6),
    PlanQuestion.DISTRIBUTION: (0.35, 4.7e-6),
}


@dataclass(frozen=True)
class Candidate:
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


class Estimators(NamedTuple):
    """How simulated reports are estimated: those that distinguish all values, and those that hardly distinguish neighbours."""

    likeliest: Estimator
    smoothing: Estimator


def answers_to(
    asked: Asked, epsilons: Sequence[str | float], classes: Mapping[str, type[Mechanism]], estimators: Estimators
) -> list[Candidate]:
    """Return how well each mechanism answers a question about numbers, the best first, epsilon by epsilon.

    Args:
        asked: the question.
        epsilons: those to compare.
        classes: the mechanisms to compare; those that are not over numbers or listed values are left out.
        estimators: the estimators of simulated reports.

    Raises:
        InvalidParameter: if the question cannot be answered, or no mechanism answers it at any epsilon.
        InvalidEpsilon: if one of the epsilons is not valid.

    """
    asked.checked()
    _cost(asked, len(epsilons)).check(
        f"a plan for {asked.steps:,} values at {len(epsilons):,} epsilons",
        "compare fewer epsilons at a time, or plan for fewer values: as parts of the range, errors hardly depend on it",
    )
    answers: list[Candidate] = []
    for epsilon in map(Epsilon.parse, epsilons):
        at_epsilon = sorted(_answers(asked, epsilon, classes, estimators), key=lambda answer: answer.error)
        answers += [replace(answer, recommended=not place) for place, answer in enumerate(at_epsilon)]
    if not answers:
        raise InvalidParameter("none of these mechanisms answers this at any of these epsilons", "leave out --mechanism")
    return answers


def _cost(asked: Asked, epsilons: int) -> Cost:
    """Return what a plan costs: at each epsilon simulated reports of few values, and a tree over all of them."""
    simulated, value = _SECONDS[PlanQuestion(asked.question)]
    return Cost(epsilons * (simulated + asked.steps * value))


def _answers(
    asked: Asked, epsilon: Epsilon, classes: Mapping[str, type[Mechanism]], estimators: Estimators
) -> Iterator[Candidate]:
    for cls in classes.values():
        try:
            mechanism = _over_steps(cls, str(epsilon), asked)
            if mechanism is None or not isinstance(mechanism.claim(), PureLdp):
                continue
            error, estimator = _error(asked, mechanism, estimators)
        except (UsageError, NotPrivate, DataError):
            continue  # it does not exist at this epsilon or for so many values
        if error < inf:
            yield Candidate(asked.question, mechanism.name, estimator, float(epsilon), error)


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


def _error(asked: Asked, mechanism: Mechanism, estimators: Estimators) -> tuple[float, str]:
    """Return the error of a mechanism for a question, and the name of the estimator that has it."""
    certified, question = certify_values(mechanism), PlanQuestion(asked.question)
    if isinstance(certified.channel, SetChannel) and asked.shares is None:
        return in_steps(asked, _listed(asked, certified)), INV
    if not isinstance(certified.reports, Domain | NumberedReports):
        return inf, INV  # sets are not simulated: they are hardly more accurate than hashes
    operator = operator_of(mechanism)
    determined = operator.bounding_weights is None
    if determined and (asked.shares is None or question is PlanQuestion.MEAN):
        return in_steps(asked, _determined(asked, operator)), IBU
    if question is PlanQuestion.MEAN:
        return mean_error(mechanism, asked.reports, _truth(asked, operator)) or inf, INV
    if question is PlanQuestion.RECTANGLES:
        return inf, INV  # the models are on a line
    estimator = estimators.likeliest if determined else estimators.smoothing
    return _simulated(asked, mechanism, estimator), estimator.name


def _listed(asked: Asked, certified: CertifiedValues) -> Floats:
    """Return the mean squared errors if the shares of all values have equal and independent errors, but sum to one."""
    c = asked.functionals()
    spread = (c**2).mean(axis=0) - c.mean(axis=0) ** 2
    return np.asarray(share_error(certified, asked.reports) ** 2 * len(certified.values) * spread)


def _determined(asked: Asked, operator: Operator) -> Floats:
    """Return the variances of the debiased estimates of an example, or if all values are equally common."""
    c = asked.functionals(operator.inputs)
    return operator.expected_variances(_truth(asked, operator)[0], float(asked.reports), c)


def _truth(asked: Asked, operator: Operator) -> Floats:
    """Return the shares of an example in the bins of a mechanism, or equal shares, shape (1, values)."""
    if asked.shares is None:
        return np.full((1, operator.inputs), 1.0 / operator.inputs)
    return rebinned(asked.shares[None], operator.inputs)


def _simulated(asked: Asked, mechanism: Mechanism, estimator: Estimator) -> float:
    """Return the error of an estimate from simulated reports of an example, or else of the model distributions."""
    question, inputs = PlanQuestion(asked.question), operator_of(mechanism).inputs
    if asked.shares is None:
        u = places(inputs)
        c = on_a_line(question, u)
        errors = [(_estimated(asked, mechanism, theta, estimator) - theta) @ c for theta in models(u)]
        return in_steps(asked, (np.concatenate(errors) ** 2).mean(axis=0))
    theta = rebinned(asked.shares[None], inputs)[0]
    estimated = rebinned(_estimated(asked, mechanism, theta, estimator), asked.steps)
    if question is PlanQuestion.QUANTILES:
        return float(np.sqrt(quartile_errors(estimated, asked.shares).mean()))
    return in_steps(asked, (((estimated - asked.shares) @ asked.functionals(asked.steps)) ** 2).mean(axis=0))


def _estimated(asked: Asked, mechanism: Mechanism, theta: Floats, estimator: Estimator) -> Floats:
    """Return estimates from simulated reports, shape (draws, values)."""
    rng = generator(np.rint(theta * asked.reports))  # the same plan has the same errors
    law = operator_of(mechanism).forward(theta[None])[0]
    counts = rng.multinomial(asked.reports, law / law.sum(), _DRAWS).astype(np.float64)
    return estimate_counts(mechanism, counts, estimator).fit.theta
