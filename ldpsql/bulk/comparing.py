"""Compare estimators in Python, by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import polars as pl
import pyarrow as pa

from ldpsql.engine.functions import arrow_fields
from ldpsql.engine.threads import one_thread
from ldpsql.estimates.bootstrap import RUNS, Metric, MetricName, SimulatedError, Simulation, simulated_errors
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimators.base import Estimator
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
