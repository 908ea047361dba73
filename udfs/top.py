"""The most frequent values of a domain: an aggregate with one row for each of them, however large the domain is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    PLANS,
    SOURCES,
    TOPS,
    Aggregate,
    Column,
    Handles,
    Macros,
    Scalar,
    Settings,
    Top,
    aggregates,
    checked_count,
    counts_of,
    estimated,
    estimator_of_top,
    finite_or_null,
    guarded,
    hookimpl,
    once_a_run,
    plain,
    tops,
)

_TYPES = {
    "rank": "BIGINT", "estimate": "DOUBLE", "std_error": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE", "best_rank": "BIGINT",
    "worst_rank": "BIGINT",
}  # fmt: skip
_ROW = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())


@guarded
def top_estimator(sources: Handles) -> pa.Array:
    """Return the name of the estimator of what drew each column of reports if nobody names one."""
    return pa.array([estimator_of_top(SOURCES.thing(handle)) for handle in plain(sources).to_pylist()], pa.string())


@guarded
def top_handle(plans: Handles, counts: Settings) -> pa.Array:
    """Return the handle of each plan with the number of values asked for."""
    rows = zip(plain(plans).to_pylist(), plain(counts).to_pylist(), strict=True)
    return pa.array([TOPS.number((PLANS.thing(plan), checked_count(count))) for plan, count in rows], pa.int64())


@guarded
@once_a_run
def top(histograms: Column, handles: Handles) -> pa.Array:
    """Return for each group the positions of its most frequent values, counted from 1, and their rows; NULL if it is empty."""
    ranked: list[Top | None] = [None] * len(histograms)
    for handle, counts in counts_of(histograms, handles):
        (source, estimator), count = TOPS.thing(handle)
        for rows, estimates in estimated(source, counts, estimator):
            for row, one in zip(rows, tops(estimates, count), strict=True):
                ranked[row] = one
    return _column(ranked)


def _column(ranked: list[Top | None]) -> pa.Array:
    """Return STRUCT(positions, rows) for each group."""
    ends = pa.array(np.cumsum([0, *(0 if one is None else len(one.places) for one in ranked)]), pa.int32())
    some = [one for one in ranked if one is not None]
    numbers = [np.concatenate([one.columns[name] for one in some] or [np.empty(0)]) for name in _TYPES]
    kinds = [pa.int64() if kind == "BIGINT" else pa.float64() for kind in _TYPES.values()]
    columns = [finite_or_null(column).cast(kind) for column, kind in zip(numbers, kinds, strict=True)]
    places = np.concatenate([one.places + 1 for one in some] or [np.empty(0, np.int64)])
    positions = pa.ListArray.from_arrays(ends, pa.array(places, pa.int64()))
    rows = pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(columns, list(_TYPES)))
    return pa.StructArray.from_arrays([positions, rows], ["positions", "rows"], mask=pa.array([one is None for one in ranked]))


_TOP = Aggregate(
    "top",
    "ldp._ranked(ldp._domain(m), __ldp_top({counts}, __ldp_top_handle("
    "ldp._plan(coalesce(estimator, __ldp_top_estimator(__ldp_source(m, NULL))), m, confidence), most)))",
    {"m": None, "most": None, "estimator": "NULL", "keep": "true", "confidence": "NULL"},
    "the most frequent values, with intervals that hold together, and the best and the worst rank that each may have",
    rows=True,
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.top``."""
    return [
        Scalar("__ldp_top_estimator", top_estimator, "VARCHAR"),
        Scalar("__ldp_top_handle", top_handle, "BIGINT"),
        Scalar("__ldp_top", top, f'STRUCT(positions BIGINT[], "rows" STRUCT({_ROW})[])'),
        Macros.beside(__file__),
        aggregates(_TOP),
    ]
