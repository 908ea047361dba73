"""Perturb and estimate columns in Python: lists, Arrow arrays and Polars series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from ldpsql.domain import plain
from ldpsql.errors import WrongType
from ldpsql.estimation import Estimate, estimate_column
from ldpsql.estimator import Estimator
from ldpsql.mechanism import Mechanism, certify
from ldpsql.registry import registry
from ldpsql.sql import guarded

Column: TypeAlias = "pa.Array | pa.ChunkedArray | pl.Series | Sequence[Any]"


def perturb(column: Column, mechanism: Mechanism | str) -> pa.Array | pl.Series:
    """Draw one report for each value of a column: a Polars series for a series, else an Arrow array.

    Raises:
        MissingValue, OutsideDomain, WrongType: where a value cannot be perturbed; then nothing is.

    """
    return _perturb(column, mechanism)


def estimate(reports: Column, mechanism: Mechanism | str, estimator: Estimator | str = "ibu") -> Estimate:
    """Estimate the distribution of the values from a column of reports; NULL reports are left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: where the column cannot hold reports of the mechanism.

    """
    return _estimate(reports, mechanism, estimator)


@guarded
def _perturb(column: Column, mechanism: Mechanism | str) -> pa.Array | pl.Series:
    reports = certify(registry().mechanism(mechanism)).perturb(_arrow(column))
    return pl.Series(column.name, reports) if isinstance(column, pl.Series) else reports


@guarded
def _estimate(reports: Column, mechanism: Mechanism | str, estimator: Estimator | str) -> Estimate:
    return estimate_column(_arrow(reports), registry().mechanism(mechanism), registry().estimator(estimator))


def _arrow(column: Column) -> pa.Array:
    if isinstance(column, pl.Series):
        return column.to_arrow()
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return plain(column)
    if isinstance(column, Sequence) and not isinstance(column, str | bytes):
        try:
            return pa.array(column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
    raise WrongType("this is not a column of values of one type", "pass a list or one column, such as frame['city']")
