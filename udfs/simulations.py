"""Which estimator suits a question best, by simulated reports: an aggregate with one row for each estimator."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa

from ldpsql.functions import (
    PLANS,
    SIMULATIONS,
    Aggregate,
    Column,
    Handles,
    Macros,
    Scalar,
    Settings,
    SimulatedError,
    Simulation,
    Wholes,
    aggregates,
    arrow_fields,
    counts_of,
    estimated,
    guarded,
    hookimpl,
    once_a_run,
    plain,
    read_estimator,
    simulated_errors,
    struct_fields,
)
from ldpsql.mechanisms import InvalidParameter


@guarded
def simulation_handle(plans: Handles, estimators: Settings, metrics: Settings, runs: Wholes) -> pa.Array:
    """Return the handle of each plan with what is to be simulated."""
    rows = zip(*(plain(column).to_pylist() for column in (plans, estimators, metrics, runs)), strict=True)
    return pa.array([SIMULATIONS.number((PLANS.thing(plan), _simulation(*of))) for plan, *of in rows], pa.int64())


def _simulation(names: object, metric: object, runs: int | None) -> Simulation:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidParameter("the estimators must be a list of their names", "estimators := ['ibu', 'em_mr', 'best']")
    if not isinstance(metric, str) or runs is None:
        raise InvalidParameter("metric and runs may not be NULL", "metric := 'mae', runs := 20")
    return Simulation(tuple(map(read_estimator, names)), metric, runs)


@guarded
@once_a_run
def compared(histograms: Column, handles: Handles) -> pa.Array:
    """Return the simulated errors of all estimators for each group; NULL if it is empty."""
    out: list[list[dict[str, object]] | None] = [None] * len(histograms)
    for handle, counts in counts_of(histograms, handles):
        (source, estimator), simulation = SIMULATIONS.thing(handle)
        for rows, estimates in estimated(source, counts, estimator):
            for place, row in enumerate(rows):
                out[row] = [asdict(error) for error in simulated_errors(estimates[place], simulation)]
    return pa.array(out, pa.list_(pa.struct(arrow_fields(SimulatedError))))


_COMPARE = Aggregate(
    "compare_estimators",
    "__ldp_compared_estimators({counts}, __ldp_simulation(ldp._plan(estimator, m), estimators, metric, runs::BIGINT))",
    {"m": None, "estimators": None, "metric": "'mae'", "runs": "20", "estimator": "'best'"},
    "the errors of estimators on reports that are simulated from an estimate, which `estimator` makes",
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.compare_estimators``."""
    return [
        Scalar("__ldp_simulation", simulation_handle, "BIGINT"),
        Scalar("__ldp_compared_estimators", compared, f"STRUCT({struct_fields(SimulatedError)})[]"),
        aggregates(_COMPARE),
    ]
