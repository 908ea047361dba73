"""Compare mechanisms and estimators in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import polars as pl
import pyarrow as pa

from ldpsql.domains.arrays import column_of
from ldpsql.engine.functions import arrow_fields
from ldpsql.engine.threads import one_thread
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.asked import Asked, Question
from ldpsql.estimates.bootstrap import RUNS, Metric, MetricName, SimulatedError, Simulation, simulated_errors
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimates.example import example_of
from ldpsql.estimates.questions import Candidate, Estimators, answers_to
from ldpsql.estimators.base import Estimator
from ldpsql.names import EMS, IBU
from ldpsql.registry.registry import registry


@one_thread
def compare_estimators(
    estimate: Estimate, estimators: Sequence[Estimator | str], metric: MetricName | Metric = "mae", runs: int = RUNS
) -> pl.DataFrame:
    """Compare estimators by simulation: reports are drawn from an estimate, and each estimator is applied to them.

    Args:
        estimate: what stands for the truth; ``ldpsql.estimate(reports, mechanism, "best")`` is a good start.
        estimators: those to compare, with their options.
        metric: the error of an estimate: 'mae', 'mse', 'total_variation', 'wasserstein', 'mean', 'variance', or a function of
            the true shares and the estimated ones.
        runs: how many times to simulate.

    Returns:
        A row for each estimator: ``error``, the mean over the runs, its ``std_error``, and whether it is among the ``best``:
        no other is lower by more than two standard errors of their difference. Errors are NULL if it does not suit the reports.

    Raises:
        InvalidParameter: if there are no estimators, too few or too many runs, or no such error.
        InvalidDomain: if the error needs positions, and the values have no order.

    """
    named = metric if isinstance(metric, str) else "mae"
    simulation = Simulation(tuple(map(registry().estimator, estimators)), named, runs)
    rows = simulated_errors(estimate, simulation, None if isinstance(metric, str) else metric)
    return pl.DataFrame([asdict(row) for row in rows], schema=pl.Schema(pa.schema(arrow_fields(SimulatedError))))


@withheld
@one_thread
def recommend(
    question: str,
    reports: int,
    values: int | None = None,
    *,
    like: Any = None,
    width: int | None = None,
    epsilons: Sequence[str | float] = ("0.5", "1", "2", "4"),
    mechanisms: Sequence[str] = (),
) -> pl.DataFrame:
    """Compare mechanisms for numbers, or for rectangles of a grid, by the error of what you ask, before anything is collected.

    Args:
        question: 'mean', 'distribution', 'ranges', 'quantiles' or 'rectangles'.
        reports: how many reports will be collected.
        values: how many numbers, dates or cells there are: 121 for 0 to 120. With an example, into how many steps its range is
            divided, at most 1,024; by default its whole numbers and dates have a step each.
        like: an example, a column of numbers, dates or timestamps. Errors are then those of simulated reports of people like
            them. It is read without privacy: take public or synthetic data, never the data that you will collect.
        width: for rectangles, how many cells are in a row.
        epsilons: the epsilons to compare.
        mechanisms: names of mechanisms to compare; by default all.

    Returns:
        A row for each mechanism and epsilon, the best first: ``question``, ``mechanism``, the ``estimator`` that has the error,
        ``epsilon``, ``error`` and ``recommended``. For ranges and rectangles it is the error of a share. That of the mean, of
        the distribution (its Wasserstein distance to the truth) and of the quartiles is in steps from one value to the next or,
        with an example, in the unit of the values: days for dates, seconds for timestamps.

    Raises:
        InvalidParameter: if the question cannot be answered, or no mechanism answers it at any epsilon.
        InvalidEpsilon: if one of the epsilons is not valid.

    """
    example = None if like is None else example_of(column_of(like), values)
    steps = values if example is None else len(example.shares)
    if steps is None:
        raise InvalidParameter("a plan needs the size of the domain", "for example 101 for the numbers 0 to 100")
    registered = registry().mechanisms
    if unknown := [name for name in mechanisms if name not in registered]:
        raise InvalidParameter(f"{len(unknown)} of the mechanisms are not names of mechanisms", "such as square_wave")
    asked = Asked(question, reports, steps, width, None if example is None else example.shares)
    estimators = Estimators(registry().estimator(IBU), registry().estimator(EMS))
    answers = answers_to(asked, epsilons, {name: registered[name] for name in mechanisms or registered}, estimators)
    if example is not None and question != Question.RANGES:
        answers = [replace(answer, error=answer.error * example.step) for answer in answers]
    return pl.DataFrame([asdict(answer) for answer in answers], schema=pl.Schema(pa.schema(arrow_fields(Candidate))))
