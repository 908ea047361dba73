"""The privacy of a mechanism and the information in its reports: channel, audit, mutual information, distortion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Doubles,
    Handles,
    Macros,
    Scalar,
    Shuffled,
    Wholes,
    audit,
    guarded,
    hookimpl,
    information,
    plain,
    shuffled,
    struct_type,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism, certify

_CELLS = pa.list_(
    pa.struct(
        {
            "value": pa.int32(),
            "report": pa.string(),
            "exact": pa.string(),
            "probability": pa.float64(),
        }
    )
)
_CELL = "STRUCT(value INTEGER, report VARCHAR, exact VARCHAR, probability DOUBLE)[]"


@guarded
def analytic(handles: Handles) -> pa.Array:
    """Return the analytic audit of each mechanism."""
    return pa.array(MECHANISMS.each(handles, lambda mechanism: asdict(audit.analytic(mechanism))))


@guarded
def channel(handles: Handles) -> pa.Array:
    """Return the cells of each channel: positions counted from 1, the report as text, the exact and the rounded probability."""
    tables = MECHANISMS.each(handles, _cells)
    ends = np.cumsum([0, *map(len, tables)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.concat_arrays(tables) if tables else pa.array([], _CELLS.value_type))


def _cells(mechanism: Mechanism) -> pa.StructArray:
    certified, listing = certify(mechanism), audit.listed(mechanism)
    values, reports = listing.codes.shape
    place, codes = np.tile(np.arange(reports, dtype=np.int32), values), listing.codes.ravel()
    exact, numbers = pa.array([str(one) for one in listing.exact]), np.array([float(one) for one in listing.exact])
    columns = [
        pa.array(np.repeat(np.arange(1, values + 1, dtype=np.int32), reports)),
        pa.array([certified.report_text(y) for y in range(reports)]).take(pa.array(place)),
        exact.take(pa.array(codes)),
        pa.array(numbers.take(codes)),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_CELLS.value_type))


@guarded
def mutual_information(handles: Handles, priors: Column) -> pa.Array:
    """Return the mutual information of value and report under each prior, in nats."""
    return pa.array(_over(information.mutual_information, handles, priors), pa.float64())


@guarded
def entropies(handles: Handles, priors: Column) -> pa.Array:
    """Return the entropies of the value before and after its report under each prior."""
    return pa.array(_over(lambda *asked: asdict(information.entropies(*asked)), handles, priors))


@guarded
def repeated_error(handles: Handles, reports: Doubles) -> pa.Array:
    """Return how surely each number of reports of one value identifies it."""
    rows = zip(plain(handles).to_pylist(), plain(reports).to_pylist(), strict=True)
    return pa.array([_repeated(*row) for row in rows])


@lru_cache(maxsize=256)  # `unnest` of a STRUCT asks for each field
def _repeated(handle: int, reports: float | None) -> dict[str, float]:
    whole = int(reports) if reports is not None and reports.is_integer() else 0
    return asdict(information.repeated_error(MECHANISMS.thing(handle), whole))


@guarded
def average_distortion(handles: Handles, priors: Column) -> pa.Array:
    """Return the mean distance from value to report under each prior."""
    return pa.array(_over(information.average_distortion, handles, priors), pa.float64())


@guarded
def rate_distortion(handles: Handles, priors: Column, betas: Doubles) -> pa.Array:
    """Return mutual information, distortion, and a lower bound on the information for that distortion."""
    slopes = iter(plain(betas).to_pylist())

    def bounds(mechanism: Mechanism, prior: np.ndarray) -> dict[str, float]:
        if (slope := next(slopes)) is None:
            raise InvalidParameter("beta must be a number", "for example 1.0")
        return asdict(information.rate_distortion(mechanism, prior, slope))

    return pa.array(_over(bounds, handles, priors))


@guarded
def shuffling(handles: Handles, reports: Wholes, deltas: Doubles) -> pa.Array:
    """Return the central privacy of the shuffled reports of each mechanism."""
    rows = zip(*(plain(column).to_pylist() for column in (handles, reports, deltas)), strict=True)
    return pa.array([_central(*row) for row in rows])


@lru_cache(maxsize=256)  # `unnest` of a STRUCT asks for each field
def _central(handle: int, reports: int | None, delta: float | None) -> dict[str, Any] | None:
    if reports is None or delta is None:
        return None
    return asdict(shuffled(MECHANISMS.thing(handle), reports=reports, delta=delta))


def _over(measure: Callable[[Mechanism, np.ndarray], Any], handles: Handles, priors: Column) -> list[Any]:
    rows = zip(plain(handles).to_pylist(), plain(priors), strict=True)
    return [measure(MECHANISMS.thing(handle), _numbers(prior)) for handle, prior in rows]


def _numbers(prior: pa.Scalar) -> np.ndarray:
    try:
        return np.asarray(prior.values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (AttributeError, pa.ArrowException):
        raise InvalidParameter("a prior must be a list of numbers", "one for each value of the domain") from None


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.channel``, ``ldp.audit``, ``ldp.shuffled``, and the information and the distortion of reports."""
    return [
        Scalar("__ldp_audit", analytic, struct_type(audit.AnalyticAudit)),
        Scalar("__ldp_channel", channel, _CELL),
        Scalar("__ldp_mutual_information", mutual_information, "DOUBLE"),
        Scalar("__ldp_entropies", entropies, struct_type(information.Entropies)),
        Scalar("__ldp_repeated_error", repeated_error, struct_type(information.RepeatedError)),
        Scalar("__ldp_average_distortion", average_distortion, "DOUBLE"),
        Scalar("__ldp_rate_distortion", rate_distortion, struct_type(information.RateDistortion)),
        Scalar("__ldp_shuffled", shuffling, struct_type(Shuffled)),
        Macros.beside(__file__),
    ]
