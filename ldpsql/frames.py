"""Perturb and estimate columns in Python: lists, Arrow arrays and Polars series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from ldpsql.domain import plain
from ldpsql.errors import InvalidParameter, WrongType
from ldpsql.estimation import Estimate, column_likelihood, estimate_column
from ldpsql.estimator import Estimator
from ldpsql.mechanism import Mechanism, certify
from ldpsql.pair_estimation import KeyValueEstimate, estimate_key_value, named
from ldpsql.pair_families import KeyValueMechanism
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


def key_value(reports: Column, mechanism: Mechanism | str, estimator: Estimator | str = "unbiased") -> KeyValueEstimate:
    """Estimate frequency and mean of every key from a column of reports of sets of pairs; NULL reports are left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: where the column cannot hold reports of the mechanism.

    """
    return _key_value(reports, mechanism, estimator)


@guarded
def _perturb(column: Column, mechanism: Mechanism | str) -> pa.Array | pl.Series:
    reports = certify(registry().mechanism(mechanism)).perturb(_arrow(column))
    return pl.Series(column.name, reports) if isinstance(column, pl.Series) else reports


@guarded
def _estimate(reports: Column, mechanism: Mechanism | str, estimator: Estimator | str) -> Estimate:
    known = registry().mechanism(mechanism)
    if isinstance(known, KeyValueMechanism):
        raise InvalidParameter("these are reports of sets of pairs", "use ldpsql.key_value")
    return estimate_column(_arrow(reports), known, registry().estimator(estimator))


@guarded
def _key_value(reports: Column, mechanism: Mechanism | str, estimator: Estimator | str) -> KeyValueEstimate:
    known = registry().mechanism(mechanism)
    return estimate_key_value(known, column_likelihood(_arrow(reports), known), named(estimator))[0]


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
