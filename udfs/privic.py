"""PRIVIC in SQL: the first mechanism, and the step from the reports of a cycle to the next mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.engine.functions import struct_fields
from ldpsql.estimators import Floats
from ldpsql.functions import (
    MECHANISMS,
    Column,
    Macros,
    Scalar,
    Settings,
    Texts,
    WholeLists,
    Wholes,
    by_row,
    check_counts,
    guarded,
    hookimpl,
    one_thread,
    plain,
    struct_type,
)
from ldpsql.inference.counting import aligned
from ldpsql.mechanisms import Domain, InvalidParameter, Mechanism, certify
from ldpsql.mechanisms.audit import AnalyticAudit
from ldpsql.privic import Summary, full_prior, step
from ldpsql.questions import GroupedCounts

_STEP_TYPE = f'STRUCT(theta DOUBLE[], {struct_fields(Summary)}, "certificate" {struct_type(AnalyticAudit)})'


@by_row(Settings, Wholes, returns=pa.list_(pa.float64()))
def prior(shares: Any, size: int | None) -> list[float]:
    """Return a first prior, checked; the uniform prior for NULL."""
    return full_prior(shares, size or 0)


@guarded
@one_thread
def advance(counts: Column, handles: WholeLists, stops: Texts) -> pa.Array:
    """Return the step of each group of cycles (a list of counts and a list of mechanisms); NULL for a group without reports.

    Raises:
        BadCounts: if the counts are not maps.

    """
    groups = plain(counts)
    check_counts(groups.type.value_type if pa.types.is_list(groups.type) else groups.type)
    rows = zip(groups, plain(handles).to_pylist(), plain(stops).to_pylist(), strict=True)
    return pa.array([_advanced(maps, numbers, stop) for maps, numbers, stop in rows])


def _advanced(maps: pa.ListScalar, handles: list[int] | None, stop: str | None) -> dict[str, Any] | None:
    if not maps.is_valid or handles is None or not sum(len(counted) for counted in maps.values if counted.is_valid):
        return None
    mechanisms = [MECHANISMS.thing(handle) for handle in handles]
    cycles = [(mechanism, _counts(mechanism, counted)) for mechanism, counted in zip(mechanisms, maps.values, strict=True)]
    return step(cycles, stop or "").row()


def _counts(mechanism: Mechanism, counted: pa.MapScalar) -> Floats:
    reports = certify(mechanism).reports
    if not isinstance(reports, Domain):
        raise InvalidParameter(f"{mechanism.name} is not made for a prior", "start with ldp.privic_start")
    if not counted.is_valid:
        return np.zeros(len(reports))
    entries = counted.values
    return aligned(GroupedCounts.of(entries.field(0), entries.field(1)), mechanism)[0]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.privic_start`` and ``ldp.privic_step``, also over counts and over several cycles."""
    return [
        Scalar("__ldp_prior", prior, "DOUBLE[]"),
        Scalar("__ldp_privic", advance, _STEP_TYPE),
        Macros.beside(__file__),
    ]
