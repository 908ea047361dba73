"""Estimates of groups as rows, a row for each value: their form on the way into a table of DuckDB or a frame of Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import finite_or_null
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.estimate import Estimates
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counts import GroupedCounts

CELL, PLACE = "ldp cell", "ldp place"  # the number of the group, and the position of the value in the domain
COLUMNS = ("value", "estimate", "std_error", "low", "high", "n")  # of the result, after the keys
BORROWED = "borrowed"  # the column after these, if the estimator shares anything between groups


def check_keys(report: str, keys: Sequence[str]) -> None:
    """Check the names of the column of reports and of the columns that define the groups.

    Raises:
        InvalidParameter: unless they are names, and those of the groups at least one and different.

    """
    if isinstance(keys, str) or not isinstance(keys, Sequence) or not all(isinstance(name, str) for name in (report, *keys)):
        raise InvalidParameter("the column of the reports and the keys must be names of columns", "keys=['region']")
    if not keys:
        raise InvalidParameter("at least one column must define the groups", "for one estimate use ldp.estimate")
    if len({name.casefold() for name in keys}) < len(keys):
        raise InvalidParameter("a key is named twice", "name each column once")


def result_columns(estimator: Estimator) -> tuple[str, ...]:
    """Return the names of the columns of the result, after the keys."""
    return (*COLUMNS, BORROWED) if estimator.borrows else COLUMNS


def numbers_of(estimator: Estimator) -> list[pa.Field]:
    """Return the columns of the result after the value."""
    return [pa.field(name, pa.int64() if name == "n" else pa.float64()) for name in result_columns(estimator)[1:]]


def keys_named(keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the names of the keys in the result, as in SQL: one named like a column of the result becomes ``value_1``."""
    return [f"{key}_1" if key.casefold() in columns else key for key in keys]


def schema_of(estimator: Estimator) -> pa.Schema:
    """Return the schema of what `rows_of` returns."""
    return pa.schema([(CELL, pa.int64()), (PLACE, pa.int32()), *numbers_of(estimator)])


def rows_of(counts: GroupedCounts, groups: NDArray[np.int64], estimates: Estimates, schema: pa.Schema) -> pa.Table:
    """Return a row for each of these groups and each value, with this `schema_of`."""
    errors, shape = estimates.intervals, estimates.fit.theta.shape
    n = np.bincount(counts.group, weights=counts.numbers)[np.searchsorted(counts.groups, groups)].astype(np.int64)
    cells = [np.repeat(groups, shape[1]), np.tile(np.arange(shape[1], dtype=np.int32), shape[0])]
    shares = [finite_or_null(part.ravel()) for part in (estimates.fit.theta, errors.std_error, errors.low, errors.high)]
    columns = [*cells, *shares, np.repeat(n, shape[1])]
    if BORROWED in schema.names:
        columns.append(np.repeat(np.array(estimates.fit.borrowed or np.zeros(shape[0])), shape[1]))
    return pa.table(columns, schema=schema)
