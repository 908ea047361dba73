"""Perturb and estimate columns in Python: lists, Arrow arrays and Polars series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import polars as pl
import pyarrow as pa

from ldpsql.bulk.counts import Counts, partial_counts
from ldpsql.columns import plain
from ldpsql.counting import column_likelihood, counted_likelihood
from ldpsql.errors import NOT_PERTURBED, InvalidParameter, WrongType
from ldpsql.estimation import Estimate, estimate_likelihood
from ldpsql.estimator import Estimator
from ldpsql.likelihood import Likelihood
from ldpsql.mechanism import Mechanism, certify
from ldpsql.pairs.estimation import KeyValueEstimate, estimate_key_value, of_symbols
from ldpsql.pairs.families import KeyValueMechanism
from ldpsql.registry import registry
from ldpsql.sql import guarded
from ldpsql.threads import one_thread

Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pa.Table | pa.RecordBatchReader"
Column: TypeAlias = "pa.Array | pa.ChunkedArray | pl.Series | Sequence[Any]"


def perturb(column: Column, mechanism: Mechanism | str) -> pa.Array | pl.Series:
    """Draw one report for each value of a column: a Polars series for a series, else an Arrow array.

    Raises:
        MissingValue, OutsideDomain, WrongType: where a value cannot be perturbed; then nothing is.

    """
    return _perturb(column, mechanism)


@overload
def estimate(reports: Frame, column: str, mechanism: Mechanism | str, estimator: Estimator | str = "ibu") -> Estimate: ...
@overload
def estimate(reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str = "ibu") -> Estimate: ...
def estimate(reports: Any, *given: Any, **named: Any) -> Estimate:
    """Estimate the distribution of the values from reports; NULL reports are left out.

        estimate(reports, mechanism, estimator="ibu")           a list, an Arrow or Polars column, or `Counts`
        estimate(frame, column, mechanism, estimator="ibu")     a Polars frame, lazy or not, an Arrow table or stream

    A frame is counted by its own engine, a stream batch by batch, so it need not fit into memory.

    Raises:
        ImpossibleReport, NotReports, NoReports: where these cannot be reports of the mechanism.

    """
    if isinstance(reports, pl.DataFrame | pl.LazyFrame | pa.Table | pa.RecordBatchReader):
        return _of_frame(reports, *given, **named)
    return _of_reports(reports, *given, **named)


def _of_frame(reports: Frame, column: str, mechanism: Mechanism | str, estimator: Estimator | str = "ibu") -> Estimate:
    return _estimate(_counted(reports, column), mechanism, estimator)


def _of_reports(reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str = "ibu") -> Estimate:
    return _estimate(reports, mechanism, estimator)


def key_value(reports: Column, mechanism: Mechanism | str, estimator: Estimator | str = "unbiased") -> KeyValueEstimate:
    """Estimate frequency and mean of every key from a column of reports of sets of pairs; NULL reports are left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: where the column cannot hold reports of the mechanism.

    """
    return _key_value(reports, mechanism, estimator)


@guarded
def _perturb(column: Column, mechanism: Mechanism | str) -> pa.Array | pl.Series:
    try:
        reports = certify(registry().mechanism(mechanism)).perturb(_arrow(column))
    except NOT_PERTURBED as error:
        raise error.of_column(column.name) if isinstance(column, pl.Series) and column.name else error from None
    return pl.Series(column.name, reports) if isinstance(column, pl.Series) else reports


@guarded
@one_thread
def _estimate(reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str) -> Estimate:
    known = registry().mechanism(mechanism)
    if isinstance(known, KeyValueMechanism):
        raise InvalidParameter("these are reports of sets of pairs", "use ldpsql.key_value")
    return estimate_likelihood(known, _likelihood(reports, known), registry().estimator(estimator))[0]


@guarded
@one_thread
def _key_value(reports: Column | Counts, mechanism: Mechanism | str, estimator: Estimator | str) -> KeyValueEstimate:
    known = registry().mechanism(mechanism)
    return estimate_key_value(known, _likelihood(reports, known), registry().estimator(of_symbols(estimator)))[0]


def _likelihood(reports: Column | Counts, mechanism: Mechanism) -> Likelihood:
    if isinstance(reports, Counts):
        return counted_likelihood(reports.reports, reports.numbers, mechanism)
    return column_likelihood(_arrow(reports), mechanism)


@guarded
def _counted(frame: Frame, column: str) -> Counts:
    if not isinstance(frame, pl.LazyFrame | pl.DataFrame):
        return partial_counts(frame, column)
    lazy = frame.lazy().select(report=pl.col(column))
    if lazy.collect_schema()["report"].is_nested():
        return partial_counts(lazy.collect(engine="streaming"), "report")
    return Counts.from_arrow(lazy.group_by("report").agg(n=pl.len()).collect(engine="streaming"))


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
