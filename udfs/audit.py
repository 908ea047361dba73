"""Checks of privacy: what the reports of a mechanism reveal, the SQL in a database, and the balances of a ledger."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from ldpsql.engine.arguments import Takes, lists_of, structs_with
from ldpsql.errors import NotReleased
from ldpsql.functions import (
    MECHANISMS,
    Column,
    Doubles,
    Handles,
    Macros,
    Scalar,
    Wholes,
    by_row,
    guarded,
    hookimpl,
    struct_type,
)
from ldpsql.ledger.guard import GIVE_LEDGER, guard_at
from ldpsql.mechanisms import (
    Information,
    InvalidParameter,
    Mechanism,
    RepeatedError,
    audit,
    certify,
    information_of,
    repeated_error,
)
from ldpsql.mechanisms.audit import Shuffled, shuffled
from ldpsql.sql.lint import Finding, Object, lint_objects
from ldpsql.sql.recorded import of_rows as recorded_tables

_CELLS = pa.list_(pa.struct({"value": pa.int32(), "report": pa.string(), "exact": pa.string(), "probability": pa.float64()}))
_CELL = "STRUCT(value INTEGER, report VARCHAR, exact VARCHAR, probability DOUBLE)[]"


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


@by_row(Handles, Column, Doubles)
def information(handle: int, prior: pa.Scalar, beta: float | None) -> dict[str, Any]:
    """Return what a report reveals under a prior, with a lower bound where there is a slope."""
    return asdict(_information(handle, tuple(_numbers(prior)), beta))


@lru_cache(maxsize=16)  # `unnest` of a STRUCT asks for each field
def _information(handle: int, prior: tuple[float, ...], beta: float | None) -> Information:
    if beta is not None and not isfinite(beta):
        raise InvalidParameter("beta must be a number", "for example 1.0")
    return information_of(MECHANISMS.thing(handle), np.array(prior), beta)


@by_row(Handles, Doubles)
@lru_cache(maxsize=256)  # `unnest` of a STRUCT asks for each field
def repeated(handle: int, reports: float | None) -> dict[str, float]:
    """Return how surely a number of reports of one value identifies it."""
    whole = int(reports) if reports is not None and reports.is_integer() else 0
    return asdict(repeated_error(MECHANISMS.thing(handle), whole))


@by_row(Handles, Wholes, Doubles)
@lru_cache(maxsize=256)  # `unnest` of a STRUCT asks for each field
def shuffling(handle: int, reports: int | None, delta: float | None) -> dict[str, Any] | None:
    """Return the central privacy of the shuffled reports of a mechanism."""
    if reports is None or delta is None:
        return None
    return asdict(shuffled(MECHANISMS.thing(handle), reports=reports, delta=delta))


def _numbers(prior: pa.Scalar) -> np.ndarray:
    try:
        return np.asarray(prior.values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (AttributeError, pa.ArrowException):
        raise InvalidParameter("a prior must be a list of numbers", "one for each value of the domain") from None


# The lint for the database of a statement: what draws again, and what uses reports as if they were the values.

_Objects = Annotated[Column, Takes("the objects of a database", lists_of(structs_with(*Object.__annotations__)))]
_Tables = Annotated[Column, Takes("the tables of a database", lists_of(structs_with("path", "columns")))]


@by_row(_Objects, _Tables)
def lint(listed: list[dict[str, str]] | None, recorded: list[dict[str, Any]] | None) -> list[dict[str, str]]:
    """Return the findings about the views, macros, generated columns and checks of a database."""
    tables = recorded_tables((*table["path"], table["columns"]) for table in recorded or [])
    return [vars(finding) for finding in lint_objects((Object(**one) for one in listed or []), tables)]


# The budget that the ledger of a connection has spent, and what is left.

_BALANCE = (
    "STRUCT(unit VARCHAR, dataset VARCHAR, part VARCHAR, column_group VARCHAR, currency VARCHAR, people BIGINT, "
    "spent VARCHAR, remaining VARCHAR, spent_delta VARCHAR)[]"
)


@by_row(Wholes)
def budget(number: int | None) -> list[dict[str, object]]:
    """Return the balances of the ledger of a guard."""
    guard = guard_at(number)
    if guard is None or guard.ledger is None:
        raise NotReleased("this connection has no ledger", GIVE_LEDGER)
    return [asdict(balance) for balance in guard.ledger.balances()]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.channel``, ``ldp.information``, ``ldp.repeated_error``, ``ldp.shuffled``, ``ldp.lint`` and ``ldp.budget``."""
    return [
        Scalar("__ldp_channel", channel, _CELL),
        Scalar("__ldp_information", information, struct_type(Information)),
        Scalar("__ldp_repeated_error", repeated, struct_type(RepeatedError)),
        Scalar("__ldp_shuffled", shuffling, struct_type(Shuffled)),
        Scalar("__ldp_lint", lint, f"{struct_type(Finding)}[]"),
        Scalar("__ldp_budget", budget, _BALANCE, volatile=True, draws=False),
        Macros.beside(__file__),
    ]
