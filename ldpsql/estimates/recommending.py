"""Which mechanism answers a question about numbers or places best: the error to expect of means, ranges, rectangles and others.

The numbers are whole steps in order, such as years of age, days or minutes. If reports distinguish them, the estimate is the
debiased one, and its error is computed. If they hardly distinguish neighbours, a mean has the error of its weights. All else is
then estimated with smoothing from simulated reports, as its error is mostly the bias of smoothing: on two model distributions,
one smooth and one in which a third of all people have one value. With an example of such data, the errors of means are computed
for it, and all others come from simulated reports of people like those of the example, and of people who are only half so.

Rectangles are asked of a grid of cells, which reports distinguish.

Shares, outcomes and regressions are about single values, all equally common. An outcome is the mean of a raw column among the
people with a value, and a regression has the difference of two such means as its coefficient: their errors are in standard
deviations of the raw column, whose mean is the same for all values.

An example is read without any privacy, so it must not be the data that people are asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel, Subsets
from ldpsql.channels.costs import Cost
from ldpsql.domains.columns import family, plain
from ldpsql.domains.domain import Domain
from ldpsql.errors import DataError, InvalidParameter, NotPrivate, UsageError
from ldpsql.estimates.conditions import positions_of
from ldpsql.estimates.estimate import estimate_counts
from ldpsql.estimates.planning import mean_error, share_error
from ldpsql.estimators.base import Estimator, generator
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Floats, Operator
from ldpsql.mechanisms.base import CategoricalMechanism, CertifiedValues, Mechanism, certify_values
from ldpsql.mechanisms.families import IntervalMechanism
from ldpsql.names import IBU, INV
from ldpsql.privacy.claims import Epsilon, PureLdp
from ldpsql.reports import HashReports, NumberedReports

MOST_STEPS = 1 << 20
FEW = 1024  # values, up to which it costs little to ask for many ranges
_RANGES = 100
_GRID = "for 16 rows of 24 cells: 384 values, width 24"
_SIDES = np.array([0.856675, 0.733892, 0.628707, 0.538597])  # whose multiples, modulo 1, spread evenly in four dimensions


class PlanQuestion(StrEnum):
    """What is asked about numbers, about the cells of a grid, or about single values."""

    MEAN = "mean"
    DISTRIBUTION = "distribution"
    RANGES = "ranges"
    QUANTILES = "quantiles"
    RECTANGLES = "rectangles"
    SHARE = "share"
    OUTCOME = "outcome"
    REGRESSION = "regression"


_OF_VALUES = (PlanQuestion.SHARE, PlanQuestion.OUTCOME, PlanQuestion.REGRESSION)


class Asked(NamedTuple):
    """A question, one of `PlanQuestion`, that so many reports are to answer about so many numbers in order.

    For rectangles it is about so many cells of a grid, ``width`` cells to a row. ``shares`` are those of the values of an
    example, shape (steps,); see `Example`.
    """

    question: str
    reports: int
    steps: int
    width: int | None = None
    shares: Floats | None = None

    def checked(self) -> None:
        """Refuse what no plan answers."""
        if self.question not in list(PlanQuestion):
            questions = ", ".join(PlanQuestion)
            raise InvalidParameter(f"a plan answers one of these questions: {questions}", "the median is one of the quantiles")
        if not 2 <= self.steps <= MOST_STEPS or self.reports < 1:
            raise InvalidParameter(f"a plan needs a report and from 2 to {MOST_STEPS:,} values", "for example 100000 and 101")
        if (self.question == PlanQuestion.RECTANGLES) != (self.width is not None):
            raise InvalidParameter("a plan for rectangles, and no other, needs the width of the grid", _GRID)
        if self.question in _OF_VALUES and self.shares is not None:
            raise InvalidParameter(
                "an example is of numbers, and this question is about single values", "leave out the example"
            )
        if self.width is not None and self.shares is not None:
            raise InvalidParameter("an example is a column of numbers, and rectangles have two", "leave out the example")
        if not (self.width is None or (2 <= self.width <= self.steps // 2 and self.steps % self.width == 0)):
            raise InvalidParameter(
                f"{self.steps:,} values in rows of {self.width:,} make no grid of two or more full rows of two or more cells",
                _GRID,
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values, or of rows and columns."""
        return (self.steps,) if self.width is None else (self.steps // self.width, self.width)

    def functionals(self, inputs: int | None = None) -> Floats:
        """Return the functionals of the values that are asked for, shape (values, functionals).

        Args:
            inputs: how many values a mechanism has, whose bins may be fewer than the numbers; None: about a thousand at most,
                spread over the range or the grid.

        """
        if self.width is None:
            return on_a_line(PlanQuestion(self.question), places(inputs or min(self.steps, FEW)))
        most = self.steps if inputs else round(FEW**0.5)
        return _on_a_grid(*(min(size, most) for size in self.shape))


def places(count: int) -> Floats:
    """Return the places of the values on a scale from 0 to 1."""
    return np.linspace(0.0, 1.0, count)


def models(u: Floats) -> tuple[Floats, Floats]:
    """Return a smooth distribution over these places, and one in which a third of all people have one value."""
    smooth = u * (1 - u) ** 3 + 1e-3
    smooth /= smooth.sum()
    spiked = 2 / 3 * smooth
    spiked[round(0.3 * (len(u) - 1))] += 1 / 3
    return smooth, spiked


def on_a_line(question: PlanQuestion, u: Floats) -> Floats:
    """Return the functionals that a question is about, shape (places, functionals)."""
    if question is PlanQuestion.MEAN:
        return u[:, None]
    if question is PlanQuestion.RANGES:
        few = _RANGES if len(u) <= FEW else _RANGES // 10
        one, other = (np.arange(1, few + 1) * step % 1.0 for step in (0.618034, 0.754878))  # spread evenly
        return _inside(len(u), np.minimum(one, other), np.maximum(one, other)).astype(np.float64)
    ends = np.linspace(0.0, 1.0, 18)[1:-1] if question is PlanQuestion.DISTRIBUTION else _quartiles()[0]
    return (u[:, None] <= ends).astype(np.float64)


def _on_a_grid(rows: int, columns: int) -> Floats:
    """Return which cells of a grid lie in each of some rectangles, whose sides are spread evenly."""
    few = _RANGES if rows * columns <= FEW else _RANGES // 10
    ends = np.arange(1, few + 1)[:, None] * _SIDES % 1.0
    south, north, west, east = np.concatenate([np.sort(ends[:, :2]), np.sort(ends[:, 2:])], axis=1).T
    inside = _inside(rows, south, north)[:, None] & _inside(columns, west, east)
    return inside.reshape(-1, few).astype(np.float64)


def _inside(count: int, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Return whether the middle of each value lies in each range of a scale that so many values divide."""
    middle = (np.arange(count)[:, None] + 0.5) / count
    return np.asarray((middle >= low) & (middle <= high))


def _quartiles() -> tuple[Floats, Floats]:
    """Return the quartiles of the smooth model, and its density there."""
    u = places(FEW)
    smooth = models(u)[0]
    at = np.searchsorted(smooth.cumsum(), [0.25, 0.5, 0.75])
    return u[at], smooth[at] * len(u)


def in_steps(asked: Asked, squared: Floats) -> float:
    """Return the error of the answer from the mean squared errors of the functionals; that of a share for ranges."""
    match PlanQuestion(asked.question):
        case PlanQuestion.RANGES | PlanQuestion.RECTANGLES:
            return float(np.sqrt(squared.mean()))
        case PlanQuestion.QUANTILES:
            return float(np.sqrt((squared / _quartiles()[1] ** 2).mean())) * (asked.steps - 1)
        case PlanQuestion.DISTRIBUTION:
            return float(np.sqrt(2 / np.pi * squared).mean()) * (asked.steps - 1)  # E|N| = s sqrt(2/pi)
        case PlanQuestion.MEAN:
            return float(np.sqrt(squared[0])) * (asked.steps - 1)
        case PlanQuestion.SHARE | PlanQuestion.OUTCOME | PlanQuestion.REGRESSION:
            return float(np.sqrt(squared[0]))


_MOST_IN_EXAMPLE = 1024  # errors hardly depend on more
_HINT = "pass numbers, dates or timestamps with at least two different values"
_QUARTERS = np.array([0.25, 0.5, 0.75]) - 1e-9  # sums of shares are rounded


class Example(NamedTuple):
    """Shares of the steps from the smallest value of an example to its largest, and the length of a step.

    The step is in the unit of the values, that of dates in days, that of timestamps in seconds.
    """

    shares: Floats
    step: float


def example_of(column: pa.Array | pa.ChunkedArray, steps: int | None = None) -> Example:
    """Return the shares of the values of an example; NULL is left out.

    Args:
        column: numbers, dates or timestamps.
        steps: into how many steps they are put; by default whole numbers and dates have a step each, and others, or if there
            are more, 1,024 steps.
    """
    x, whole = _numbers(column)
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 0.0)
    if not 0 < high - low < inf:
        raise InvalidParameter("the example has no two different finite values", _HINT)
    if steps is None:
        steps = int(min(high - low + 1, _MOST_IN_EXAMPLE)) if whole else _MOST_IN_EXAMPLE
    if not 2 <= steps <= _MOST_IN_EXAMPLE:
        raise InvalidParameter(f"an example is put into 2 to {_MOST_IN_EXAMPLE:,} steps", "leave out the number of values")
    at = np.rint((x - low) / (high - low) * (steps - 1)).astype(np.int64)
    return Example(np.bincount(at, minlength=steps) / len(at), (high - low) / (steps - 1))


def _numbers(column: pa.Array | pa.ChunkedArray) -> tuple[Floats, bool]:
    """Return the values as numbers, and whether all are whole numbers or dates."""
    values = plain(column).drop_null()
    if family(values.type) in (None, "text", "boolean"):
        raise InvalidParameter("the example is not a column of numbers, dates or timestamps", _HINT)
    x = positions_of(values)
    return x, family(values.type) in ("number", "date") and bool((x == np.rint(x)).all())


def rebinned(shares: Floats, bins: int) -> Floats:
    """Return distributions over equal bins, shape (distributions, bins), over another number of such bins."""
    edges, running = np.linspace(0.0, 1.0, shares.shape[1] + 1), np.pad(shares.cumsum(axis=1), ((0, 0), (1, 0)))
    at = np.linspace(0.0, 1.0, bins + 1)
    return np.diff([np.interp(at, edges, row) for row in running], axis=1)


def quartile_errors(estimated: Floats, shares: Floats) -> Floats:
    """Return the squared errors of the quartiles of estimates, shape (estimates, steps), in steps."""
    found, truth = (np.array([np.searchsorted(row.cumsum(), _QUARTERS) for row in rows]) for rows in (estimated, shares[None]))
    return np.asarray((found - truth) ** 2.0)


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

    ``error`` is the expected error from so many ``reports``: of the mean in steps; of the distribution its Wasserstein distance
    to the truth in steps; of a random range or rectangle the error of its share; of the quartiles in steps; of an outcome and a
    coefficient in standard deviations. ``estimator`` is the one that has this error, and ``recommended`` whether no other
    mechanism has a smaller one at this epsilon or, for a wanted error, reaches it with a smaller epsilon or fewer reports.
    """

    question: str
    mechanism: str
    estimator: str
    epsilon: float
    error: float
    reports: int
    recommended: bool = False


class Estimators(NamedTuple):
    """How simulated reports are estimated: those that distinguish all values, and those that hardly distinguish neighbours."""

    likeliest: Estimator
    smoothing: Estimator


def answers_to(
    asked: Asked, epsilons: Sequence[str | float], classes: Mapping[str, type[Mechanism]], estimators: Estimators
) -> list[Candidate]:
    """Return how well each mechanism answers a question about numbers, the best first, epsilon by epsilon.

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


_EPSILONS = [mantissa / 10**places for places in (4, 3, 2) for mantissa in range(100, 801 if places == 2 else 1000)]
_REPORTS = [mantissa * 10**power for power in range(11) for mantissa in range(100, 1000)]


def smallest_for(
    asked: Asked, error: float, epsilons: Sequence[str | float], classes: Mapping[str, type[Mechanism]], estimators: Estimators
) -> list[Candidate]:
    """Return the smallest epsilon with which each mechanism reaches an error, or without reports how many it needs.

    Both have three digits. Epsilons are from 0.01 to 8: a larger one protects very little.

    Args:
        asked: the question; if its number of reports is 0, that is what is searched for, at each epsilon.
        error: the error to reach, in the unit of `Candidate.error`.
        epsilons: those to compare if the number of reports is searched for.
        classes: the mechanisms to compare.
        estimators: the estimators of simulated reports.

    Raises:
        InvalidParameter: if the question cannot be answered, or no mechanism reaches the error.
        InvalidEpsilon: if one of the epsilons is not valid.

    """
    if not 0 < error < inf:
        raise InvalidParameter("the error to reach must be a number above 0", "for example 0.02")
    asked._replace(reports=asked.reports or 1).checked()
    many = [_REPORTS] * len(epsilons) if not asked.reports else [_EPSILONS]
    tried = sum(len(grid).bit_length() for grid in many)
    _cost(asked, tried).check(f"a plan for {asked.steps:,} values", "plan for fewer values, or fewer epsilons at a time")
    answers: list[Candidate] = []
    for epsilon in map(Epsilon.parse, ["1"] if asked.reports else epsilons):
        reached = [_smallest(asked, error, epsilon, {name: cls}, estimators) for name, cls in classes.items()]
        best = sorted(filter(None, reached), key=lambda one: (one.epsilon, one.reports, one.error))
        answers += [replace(answer, recommended=not place) for place, answer in enumerate(best)]
    if not answers:
        raise InvalidParameter("none of these mechanisms reaches this error", "plan for more reports, or a larger error")
    return answers


def _smallest(
    asked: Asked, error: float, epsilon: Epsilon, only: Mapping[str, type[Mechanism]], estimators: Estimators
) -> Candidate | None:
    """Return what one mechanism needs to reach an error; None if it does not reach it."""

    def at(number: float) -> Candidate | None:
        own, so_many = (epsilon, int(number)) if not asked.reports else (Epsilon.parse(f"{number:.3g}"), asked.reports)
        return next(_answers(asked._replace(reports=so_many), own, only, estimators), None)

    grid: Sequence[float] = _EPSILONS if asked.reports else _REPORTS
    place = bisect_left(grid, True, key=lambda number: (one := at(number)) is not None and one.error <= error)
    return at(grid[place]) if place < len(grid) else None


def _cost(asked: Asked, epsilons: int) -> Cost:
    """Return what a plan costs: at each epsilon simulated reports of few values, and a tree over all of them."""
    simulated, value = _SECONDS.get(PlanQuestion(asked.question), _SECONDS[PlanQuestion.MEAN])
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
            yield Candidate(asked.question, mechanism.name, estimator, float(epsilon), error, asked.reports)


def _over_steps(cls: type[Mechanism], epsilon: str, asked: Asked) -> Mechanism | None:
    """Return a mechanism over as many whole numbers or cells as is asked; None if there is none, or it costs too much."""
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
        return cls(epsilon=epsilon, domain=np.arange(steps))
    return None


def _error(asked: Asked, mechanism: Mechanism, estimators: Estimators) -> tuple[float, str]:
    """Return the error of a mechanism for a question, and the name of the estimator that has it."""
    certified, question = certify_values(mechanism), PlanQuestion(asked.question)
    if question in _OF_VALUES or (isinstance(certified.channel, SetChannel) and asked.shares is None):
        of = _of_values if question in _OF_VALUES else _listed
        return in_steps(asked, of(asked, certified)), INV
    if not isinstance(certified.reports, Domain | NumberedReports):
        return inf, INV  # sets are not simulated: they are hardly more accurate than hashes
    operator = operator_of(mechanism)
    determined = operator.bounding_weights is None
    if determined and (asked.shares is None or question is PlanQuestion.MEAN):
        c = asked.functionals(operator.inputs)
        error = in_steps(asked, operator.expected_variances(_truth(asked, operator)[0], float(asked.reports), c))
        return error, INV if operator.consistent or operator.votes else IBU  # others have the errors of the likeliest shares
    if question is PlanQuestion.MEAN:
        return mean_error(mechanism, asked.reports, _truth(asked, operator)) or inf, INV
    if question is PlanQuestion.RECTANGLES or (not determined and operator.outputs == 2):
        return inf, INV  # the models are on a line; and two reports tell one number, which is the mean
    estimator = estimators.likeliest if determined else estimators.smoothing
    return _simulated(asked, mechanism, estimator), estimator.name


def _of_values(asked: Asked, certified: CertifiedValues) -> Floats:
    """Return the squared error of a share, an outcome or a coefficient by inversion if all values are equally common.

    Each is a mean of Q(z, .) over the reports z, for the inverse Q of the channel, times the outcome for the last two.
    """
    size, square = len(certified.values), share_error(certified, asked.reports) ** 2
    if asked.question == PlanQuestion.SHARE:
        return np.array([square])
    squares = square + 1 / (size**2 * asked.reports)  # without the square of the mean
    if asked.question == PlanQuestion.OUTCOME:
        return np.array([size**2 * squares])
    if isinstance(certified.reports, Domain | NumberedReports) and size <= FEW:
        contrast = np.eye(size)[:, [1]] - np.eye(size)[:, [0]]
        uniform = np.full(size, 1.0 / size)
        return size**2 * operator_of(certified.mechanism).expected_variances(uniform, float(asked.reports), contrast)
    # Sets hold two values independently, except sets of one size, whose shares sum to one.
    return np.array([2 * size**2 * (square * size / (size - 1) if isinstance(certified.channel, Subsets) else squares)])


def _listed(asked: Asked, certified: CertifiedValues) -> Floats:
    """Return the mean squared errors if the shares of all values have equal and independent errors, but sum to one."""
    c = asked.functionals()
    spread = (c**2).mean(axis=0) - c.mean(axis=0) ** 2
    return np.asarray(share_error(certified, asked.reports) ** 2 * len(certified.values) * spread)


def _truth(asked: Asked, operator: Operator) -> Floats:
    """Return the shares of an example in the bins of a mechanism, or equal shares, shape (1, values)."""
    if asked.shares is None:
        return np.full((1, operator.inputs), 1.0 / operator.inputs)
    return rebinned(asked.shares[None], operator.inputs)


def _simulated(asked: Asked, mechanism: Mechanism, estimator: Estimator) -> float:
    """Return the error of an estimate from simulated reports of people like an example, or else of the model distributions.

    Half of the people of an example are like it, and half of them halfway to the smooth model: an estimate that learns nothing
    has no error if the shares of the example are those with which it begins.
    """
    question, inputs = PlanQuestion(asked.question), operator_of(mechanism).inputs
    if asked.shares is None:
        u = places(inputs)
        c = on_a_line(question, u)
        errors = [(_estimated(asked, mechanism, theta, estimator) - theta) @ c for theta in models(u)]
        return in_steps(asked, (np.concatenate(errors) ** 2).mean(axis=0))
    squared = []
    for shares in (asked.shares, (asked.shares + models(places(asked.steps))[0]) / 2):
        theta = rebinned(shares[None], inputs)[0]
        estimated = rebinned(_estimated(asked, mechanism, theta, estimator), asked.steps)
        if question is PlanQuestion.QUANTILES:
            squared.append(quartile_errors(estimated, shares))
        else:
            squared.append(((estimated - shares) @ asked.functionals(asked.steps)) ** 2)
    both = np.concatenate(squared)
    return float(np.sqrt(both.mean())) if question is PlanQuestion.QUANTILES else in_steps(asked, both.mean(axis=0))


def _estimated(asked: Asked, mechanism: Mechanism, theta: Floats, estimator: Estimator) -> Floats:
    """Return estimates from simulated reports, shape (draws, values)."""
    rng = generator(np.rint(theta * asked.reports))  # the same plan has the same errors
    law = operator_of(mechanism).forward(theta[None])[0]
    counts = rng.multinomial(asked.reports, law / law.sum(), _DRAWS).astype(np.float64)
    return estimate_counts(mechanism, counts, estimator).fit.theta
