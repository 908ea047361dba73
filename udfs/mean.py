"""Mean, variance, quantile and share of a range of the values behind the reports, with errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MEASURES,
    PLANS,
    Aggregate,
    Functional,
    Macros,
    Mean,
    Quantile,
    RangeShare,
    Scalar,
    Variance,
    aggregates,
    bound_of,
    check_ordered,
    counts_of,
    estimated,
    family,
    guarded,
    hookimpl,
    once_a_run,
    plain,
    without_inversion,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism, certify_values

_ERRORS = ("std_error", "low", "high")  # NULL if the reports say nothing about the number
_FIELDS = ("estimate", *_ERRORS)


@guarded
def functional_handle(names: pa.ChunkedArray, plans: pa.ChunkedArray, *arguments: pa.ChunkedArray) -> pa.Array:
    """Return the handle of each functional, with its arguments, under a plan."""
    out, columns = [], [plain(argument) for argument in arguments]
    for row, (name, handle) in enumerate(zip(plain(names).to_pylist(), plain(plans).to_pylist(), strict=True)):
        plan = PLANS.thing(handle)
        mechanism = plan[0]
        if not isinstance(mechanism, Mechanism):
            raise InvalidParameter("these numbers can be estimated for one mechanism only", "use ldp.mean on its reports")
        check_ordered(mechanism)
        unbiased = without_inversion(mechanism, plan[1]) if name in ("mean", "variance") else None
        functional = _functional(name, mechanism, [column[row] for column in columns], unbiased=unbiased is not None)
        out.append(MEASURES.number(((mechanism, unbiased or plan[1]), functional)))
    return pa.array(out, pa.int64())


def _functional(name: str, mechanism: Mechanism, arguments: list[pa.Scalar], *, unbiased: bool) -> Functional:
    match name:
        case "mean":
            return Mean(unbiased)
        case "variance":
            return Variance(unbiased)
        case "quantile":
            share = arguments[0]
            if family(share.type) != "number" or not share.is_valid:
                raise InvalidParameter("a quantile needs a share between 0 and 1", "for example 0.5 for the median")
            return Quantile(float(share.as_py()))
        case _:
            return RangeShare(*(bound_of(end, certify_values(mechanism).values) for end in arguments))


@guarded
@once_a_run
def measure(histograms: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Return (estimate, std_error, low, high) of the functional of each group; NULL if it is empty."""
    return _measured(histograms, handles, _FIELDS)


@guarded
@once_a_run
def measure_positions(histograms: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Return the same for quantiles, as positions in the domain, and the largest distance of a number from its position."""
    return _measured(histograms, handles, (*_FIELDS, "rounding"))


def _measured(histograms: pa.ChunkedArray, handles: pa.ChunkedArray, fields: tuple[str, ...]) -> pa.Array:
    out = np.zeros((len(histograms), len(fields)))
    empty = np.ones(len(histograms), dtype=np.bool_)
    for handle, counts in counts_of(histograms, handles):
        (source, estimator), functional = MEASURES.thing(handle)
        for rows, estimates in estimated(source, counts, estimator):
            measured = functional.measure(estimates)
            out[rows] = np.stack(np.broadcast_arrays(*(getattr(measured, field) for field in fields)), axis=-1)
            empty[rows] = False
    unknown = np.isinf(out[:, fields.index("std_error")])
    columns = [pa.array(column, mask=unknown & (name in _ERRORS)) for name, column in zip(fields, out.T.copy(), strict=True)]
    return pa.StructArray.from_arrays(columns, fields, mask=pa.array(empty))


_ESTIMATOR = {"estimator": "'ibu'"}
_AGGREGATES = (
    Aggregate(
        "mean",
        "ldp._in_unit(ldp._kind(m), __ldp_measure({counts}, __ldp_functional('mean', ldp._plan(estimator, m))))",
        {"m": None, **_ESTIMATOR},
        "the mean of the values, with its error and interval",
    ),
    Aggregate(
        "variance",
        "__ldp_measure({counts}, __ldp_functional('variance', ldp._plan(estimator, m)))",
        {"m": None, **_ESTIMATOR},
        "the variance of the values, with its error and interval",
    ),
    Aggregate(
        "quantile",
        "ldp._at(ldp._domain(m), __ldp_measure_positions({counts}, __ldp_functional('quantile', ldp._plan(estimator, m), q)))",
        {"m": None, "q": None, **_ESTIMATOR},
        "the value below which a share q of all values lies, with its interval",
    ),
    Aggregate(
        "range_share",
        "__ldp_measure({counts}, __ldp_functional('range_share', ldp._plan(estimator, m), low, high))",
        {"m": None, "low": None, "high": None, **_ESTIMATOR},
        "the share of the values from low to high, with its error and interval",
    ),
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.mean``, ``ldp.variance``, ``ldp.quantile`` and ``ldp.range_share``."""
    return [
        Scalar("__ldp_functional", functional_handle, "BIGINT"),
        Scalar("__ldp_measure", measure, "STRUCT(estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE)"),
        Scalar(
            "__ldp_measure_positions",
            measure_positions,
            "STRUCT(estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE, rounding DOUBLE)",
        ),
        Macros.beside(__file__),
        aggregates(*_AGGREGATES),
    ]
