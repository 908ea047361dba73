"""Perturb and estimate columns in Python: lists, Arrow and NumPy arrays, Polars and pandas series and frames."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import polars as pl
import pyarrow as pa

from ldpsql.bulk.batches import drawn
from ldpsql.bulk.counts import Counts, partial_counts
from ldpsql.bulk.fingerprints import compare, of_frame
from ldpsql.domains.arrays import column_of, is_frame, is_pandas_series, like_series
from ldpsql.engine.threads import one_thread
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import Estimate, estimate_likelihood
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import column_likelihood, counted_likelihood
from ldpsql.inference.likelihood import Likelihood
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.mechanisms.key_value import KeyValueMechanism
from ldpsql.names import IBU
from ldpsql.pairs.estimation import KeyValueEstimate, estimate_key_value, of_symbols
from ldpsql.registry.fingerprint import check
from ldpsql.registry.registry import registry

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from duckdb import DuckDBPyRelation

Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pd.DataFrame | pa.Table | pa.RecordBatchReader | DuckDBPyRelation"
Column: TypeAlias = "pa.Array | pa.ChunkedArray | pl.Series | pd.Series | pd.Index | np.ndarray[Any, Any] | Sequence[Any]"


@overload
def perturb(column: pl.Series, mechanism: Mechanism | str) -> pl.Series: ...
@overload
def perturb(column: Column, mechanism: Mechanism | str) -> Any: ...
@withheld
def perturb(column: Column, mechanism: Mechanism | str) -> Any:
    """Draw one report for each value of a column.

    Args:
        column: a list, an Arrow or NumPy array, a Polars or pandas series. NaN of pandas and NumPy is NULL.
        mechanism: what draws.

    Returns:
        A Polars series for a Polars series, a pandas series with the same index for a pandas series, else an Arrow array.

    Raises:
        MissingValue, OutsideDomain, WrongType: where a value cannot be perturbed; then nothing is.

    """
    reports = drawn(certify(registry().mechanism(mechanism)), column_of(column), getattr(column, "name", None))
    if isinstance(column, pl.Series):
        return pl.Series(column.name, reports)
    return like_series(reports, column) if is_pandas_series(column) else reports


@overload
def estimate(reports: Frame, column: str, mechanism: Mechanism | str, estimator: Estimator | str = IBU) -> Estimate: ...
@overload
def estimate(reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str = IBU) -> Estimate: ...
@withheld
def estimate(reports: Any, *arguments: Any, **named: Any) -> Estimate:
    """Estimate the distribution of the values from reports; NULL reports are left out.

        estimate(reports, mechanism, estimator="ibu")           a list, an Arrow, NumPy, Polars or pandas column, or `Counts`
        estimate(frame, column, mechanism, estimator="ibu")     a Polars or pandas frame, an Arrow table or stream, a relation

    A frame is counted by its own engine, a stream batch by batch, so it need not fit into memory. A table of DuckDB, an Arrow
    table and a stream say which mechanism drew their reports; if they do not, a warning says so once.

    Raises:
        ImpossibleReport, NotReports, NoReports: where these cannot be reports of the mechanism.
        OtherMechanism: if another mechanism drew them, and their frame or their counts say so.

    """
    frame = is_frame(reports)
    call = _of_frame if frame else _of_reports
    try:
        signature(call).bind(reports, *arguments, **named)
        fits = frame or len(arguments) < 2 or not _is_mechanism(arguments[1])  # else there is a name of a column before it
    except TypeError:
        fits = False
    if not fits:
        what, needed = ("frame", "frame, 'city', mechanism") if frame else ("column", "frame['city'], mechanism")
        raise InvalidParameter(f"these are not the arguments for a {what} of reports", f"ldpsql.estimate({needed})")
    return call(reports, *arguments, **named)


def _is_mechanism(argument: Any) -> bool:
    name = argument.partition("(")[0].strip() if isinstance(argument, str) else None
    return isinstance(argument, Mechanism) or name in registry().mechanisms or name in registry().named


def _of_frame(reports: Frame, column: str, mechanism: Mechanism | str, estimator: Estimator | str = IBU) -> Estimate:
    made = registry().mechanism(mechanism)
    compare(of_frame(reports, column), made)
    return _of_reports(_counted(reports, column), made, estimator)


@one_thread
def _of_reports(reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str = IBU) -> Estimate:
    known = registry().mechanism(mechanism)
    if isinstance(known, KeyValueMechanism):
        raise InvalidParameter("these are reports of sets of pairs", "use ldpsql.key_value")
    return estimate_likelihood(known, _likelihood(reports, known), registry().estimator(estimator))[0]


@withheld
@one_thread
def key_value(
    reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str = "unbiased"
) -> KeyValueEstimate:
    """Estimate frequency and mean of every key from a column of reports of sets of pairs; NULL reports are left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: where the column cannot hold reports of the mechanism.

    """
    known = registry().mechanism(mechanism)
    return estimate_key_value(known, _likelihood(reports, known), registry().estimator(of_symbols(estimator)))[0]


def _likelihood(reports: Column | Counts, mechanism: Mechanism) -> Likelihood:
    if isinstance(reports, Counts):
        check(reports.fingerprints, mechanism)
        return counted_likelihood(reports.one_group(), mechanism)
    return column_likelihood(column_of(reports), mechanism)


def _counted(frame: Frame, column: str) -> Counts:
    if not isinstance(frame, pl.LazyFrame | pl.DataFrame):
        return partial_counts(frame, column)
    lazy = frame.lazy().select(report=pl.col(column))
    if lazy.collect_schema()["report"].is_nested():
        return partial_counts(lazy.collect(engine="streaming"), "report")
    return Counts.from_arrow(lazy.group_by("report").agg(n=pl.len()).collect(engine="streaming"))
