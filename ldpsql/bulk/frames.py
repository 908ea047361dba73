"""Perturb and estimate columns in Python: lists, Arrow and NumPy arrays, Polars and pandas series and frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import duckdb
import polars as pl
import pyarrow as pa

from ldpsql.bulk.charging import Charge, Charged, charge_of
from ldpsql.bulk.columns.mechanisms import drawn_apart, row_of, row_part
from ldpsql.bulk.columns.projection import drawn
from ldpsql.bulk.counts import Counts, merge, partial_counts
from ldpsql.bulk.fingerprints import agreed, of_frame, of_source
from ldpsql.bulk.in_memory import Charging
from ldpsql.bulk.reading.sources import source_of
from ldpsql.bulk.reading.streams import batches_of, stream
from ldpsql.domains.arrays import column_of, is_frame, is_pandas_series, like_series, type_of_column
from ldpsql.domains.columns import plain
from ldpsql.engine.functions import arrow_fields
from ldpsql.engine.identity import Identity
from ldpsql.engine.threads import one_thread
from ldpsql.errors import InvalidParameter, NoReports
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import Estimate, estimate_likelihood
from ldpsql.estimates.fitting import estimator_of_top
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import column_likelihood, counted_likelihood
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.mechanisms.key_value import KeyValueMechanism
from ldpsql.names import IBU, INV
from ldpsql.pairs.estimation import KeyValueEstimate, estimate_key_value, of_symbols
from ldpsql.places import Place
from ldpsql.registry.agreement import Fingerprints, check_agreement, of_type
from ldpsql.registry.recorded import recorded
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies
from ldpsql.strings.hitters import HeavyHitter, HeavyHitters, strings_of
from ldpsql.strings.hitters import heavy_hitters as search_groups

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from duckdb import DuckDBPyRelation

Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pd.DataFrame | pa.Table | pa.RecordBatchReader | DuckDBPyRelation"
Column: TypeAlias = "pa.Array | pa.ChunkedArray | pl.Series | pd.Series | pd.Index | np.ndarray[Any, Any] | Sequence[Any]"


@overload
def perturb(column: pl.Series, mechanism: Mechanism | str, *, charge: Charged = None) -> pl.Series: ...
@overload
def perturb(column: Column, mechanism: Mechanism | str, *, charge: Charged = None) -> Any: ...
@withheld
def perturb(column: Column, mechanism: Mechanism | str, *, charge: Charged = None) -> Any:
    """Draw one report for each value of a column.

    Args:
        column: a list, an Arrow or NumPy array, a Polars or pandas series. NaN of pandas and NumPy is NULL.
        mechanism: the mechanism that draws the reports.
        charge: the ledger that is charged before they are drawn, each row as a person; or the name of the people, for the
            ledger of ``ldpsql.toml``. If the ledger charges by user, pass a frame to `perturb_batches`.

    Returns:
        A Polars series for a Polars series, a pandas series with the same index for a pandas series, else an Arrow array.

    Raises:
        MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed; then no value is perturbed.
        BudgetExceeded: if the budget would be exceeded; then no value is perturbed.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    certified, name = certify(registry().mechanism(mechanism)), getattr(column, "name", None)
    charged, drawn_by = _by_row(charge_of(charge)), {name if isinstance(name, str) else "": certified.mechanism}
    check_policies(Identity.named(charged.dataset) if charged else Identity("", ()), drawn_by)
    charging = Charging(charged, drawn_by)
    values = column_of(column)
    drawn(certified, values[:0] if charged is None else values, name, CertifiedMechanism.check)
    charging.whole(rows=len(values))
    reports = drawn(certified, values, name, CertifiedMechanism.perturb)
    charging.end()
    return _like(reports, column)


def perturb_uncharged(column: pl.Series, mechanism: Mechanism) -> pl.Series:
    """Draw one report for each value of a part of a column, whose caller has noticed that no ledger is charged."""
    return pl.Series(column.name, drawn(certify(mechanism), column_of(column), column.name, CertifiedMechanism.perturb))


def _like(reports: pa.Array, column: Column) -> Any:
    if isinstance(column, pl.Series):
        return pl.Series(column.name, reports)
    return like_series(reports, column) if is_pandas_series(column) else reports


def _by_row(charge: Charge | None) -> Charge | None:
    if charge is not None and charge.user is not None:
        hint = "pass a frame that has them: ldpsql.perturb_batches, or frame.ldp.perturb of Polars"
        raise InvalidParameter("the ledger charges by user, and a single column has no user ids", hint)
    return charge


@overload
def estimate(
    reports: Frame | os.PathLike[str],
    column: str | Sequence[str],
    mechanism: Mechanism | str | None = None,
    estimator: Estimator | str | None = None,
) -> Estimate: ...
@overload
def estimate(
    reports: Column | Counts, mechanism: Mechanism | str | None = None, estimator: Estimator | str | None = None
) -> Estimate: ...
@withheld
def estimate(reports: Any, *arguments: Any, **options: Any) -> Estimate:
    """Estimate the distribution of the values from reports; NULL reports are left out.

        estimate(reports, mechanism, estimator=None)            a list, an Arrow, NumPy, Polars or pandas column, or `Counts`
        estimate(frame, column, mechanism, estimator=None)      a Polars or pandas frame, an Arrow table or stream, a relation
        estimate(Path(...), column, mechanism, estimator=None)  a Parquet, CSV, JSON or Arrow file, or a folder of Parquet files

    For the mechanism of a row, ``column`` may also be the list of its columns.

    A frame is counted by its own engine, and a stream batch by batch, so neither has to fit into memory. A table of DuckDB, an
    Arrow table, a stream, a file and counts may name the mechanism that drew their reports. Then ``mechanism`` may be left out.
    If they name none, a warning says so once. The estimator is ``ibu`` if it is left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: if the values cannot be reports of the mechanism.
        OtherMechanism: if the frame or the counts name another mechanism that drew them.
        MechanismUnrecorded: if no mechanism is passed, and none is named.
        InvalidParameter: if the arguments are not those for a column, or for a frame.

    """
    frame = isinstance(reports, str | os.PathLike) or is_frame(reports)
    call = _of_frame if frame else _of_reports
    try:
        signature(call).bind(reports, *arguments, **options)
        # The name of a column precedes the mechanism for a frame, and only for a frame.
        fits = _may_name_columns(*arguments[:1], **options) if frame else len(arguments) < 2 or not _is_mechanism(arguments[1])
    except TypeError:
        fits = False
    if not fits:
        what, needed = ("frame", "frame, 'city', mechanism") if frame else ("column", "frame['city'], mechanism")
        raise InvalidParameter(f"these are not the arguments for a {what} of reports", f"ldpsql.estimate({needed})")
    return call(reports, *arguments, **options)


def _is_mechanism(argument: Any) -> bool:
    name = argument.partition("(")[0].strip() if isinstance(argument, str) else None
    return isinstance(argument, Mechanism) or name in registry().mechanisms or name in registry().named


def _may_name_columns(column: Any = "", **_: Any) -> bool:
    """Return whether this is text or a sequence, and not the text of a mechanism: a column may have the name of one."""
    return isinstance(column, Sequence) and not (_is_mechanism(column) and "(" in column)


def _of_frame(
    reports: Frame | str | os.PathLike[str],
    column: str | Sequence[str],
    mechanism: Mechanism | str | None = None,
    estimator: Estimator | str | None = None,
) -> Estimate:
    columns = [column] if isinstance(column, str) else list(column)
    if isinstance(reports, str | os.PathLike):
        counted, drawn_by, recorded = _counted_file(os.fspath(reports), columns, mechanism)
        return _of_reports(counted, drawn_by, estimator, recorded=recorded)
    drawn_by, recorded = drawn_by_columns(columns, mechanism, lambda name: of_frame(reports, name))
    if len(columns) == 1:
        return _of_reports(_counted(reports, columns[0]), drawn_by, estimator, recorded=recorded)
    batches = stream(reports.collect() if isinstance(reports, pl.LazyFrame) else reports, columns)
    return _of_reports(partial_counts(*_structs(batches, columns)), drawn_by, estimator, recorded=recorded)


def drawn_by_columns(
    columns: list[str], mechanism: Mechanism | str | None, recorded_by: Callable[[str], Fingerprints | None]
) -> tuple[Mechanism, bool]:
    """Return the mechanism that drew reports, of several columns that of their row, and whether each column records its own."""
    records = {name: recorded_by(name) for name in columns}
    recorded = all(records.values())
    if len(columns) == 1:
        return agreed(records[columns[0]], mechanism), recorded
    if mechanism is None:
        return row_of({name: agreed(record, None) for name, record in records.items()}), recorded
    made = registry().mechanism(mechanism)
    for name, part in drawn_apart(columns, made).items():
        agreed(records[name], part)
    return row_part(columns, made), recorded


def _counted_file(path: str, columns: list[str], mechanism: Mechanism | str | None) -> tuple[Counts, Mechanism, bool]:
    """Return the counts of the reports in files, the mechanism that drew them, and whether the files record it."""
    with duckdb.connect() as con:
        source = source_of(con, Place.of(path))
        source.check(columns)
        drawn_by, recorded = drawn_by_columns(columns, mechanism, lambda name: of_source(con, path, name))
        read = (_structs(part.read(columns, [], columns), columns) for part in source.parts)
        return merge(partial_counts(*one) for one in read), drawn_by, recorded


def _structs(batches: pa.RecordBatchReader, columns: list[str]) -> tuple[pa.RecordBatchReader, str]:
    """Return a stream in which several columns are one column of structs, and the name of the column."""
    if len(columns) == 1:
        return batches, columns[0]
    nothing = _struct(batches.schema.empty_table(), columns)
    structs = (pa.record_batch([_struct(batch, columns)], ["report"]) for batch in batches_of(batches))
    return pa.RecordBatchReader.from_batches(pa.schema([("report", nothing.type)]), structs), "report"


def _struct(batch: pa.RecordBatch | pa.Table, columns: list[str]) -> pa.Array:
    return pa.StructArray.from_arrays([plain(batch.column(name)) for name in columns], columns)


@one_thread
def _of_reports(
    reports: Column | Counts,
    mechanism: Mechanism | str | None = None,
    estimator: Estimator | str | None = None,
    *,
    recorded: bool = False,
) -> Estimate:
    drawn_by = _mechanism(reports, mechanism)
    if isinstance(drawn_by, KeyValueMechanism):
        raise InvalidParameter("these are reports of sets of pairs", "use ldpsql.key_value")
    estimates = estimate_likelihood(drawn_by, _likelihood(reports, drawn_by), registry().estimator(estimator or IBU))
    if estimator is None and estimator_of_top(drawn_by) == INV:
        estimates = replace(estimates, for_top=registry().estimator(INV))
    return replace(estimates, recorded=recorded or bool(_fingerprints(reports)))[0]


def _fingerprints(reports: Column | Counts) -> Fingerprints:
    return reports.fingerprints if isinstance(reports, Counts) else of_type(type_of_column(reports))


def _mechanism(reports: Column | Counts, mechanism: Mechanism | str | None) -> Mechanism:
    """Return the mechanism that is passed, or that counts or the type of a column record.

    Raises:
        OtherMechanism: if they record another one.

    """
    fingerprints = _fingerprints(reports)
    if mechanism is None:
        return recorded(fingerprints)
    drawn_by = registry().mechanism(mechanism)
    check_agreement(fingerprints, drawn_by)
    return drawn_by


@withheld
@one_thread
def key_value(
    reports: Column | Counts, mechanism: Mechanism | str | None = None, estimator: Estimator | str = "unbiased"
) -> KeyValueEstimate:
    """Estimate the frequency and the mean of every key from a column of reports of sets of pairs; NULL reports are left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: if the column cannot hold reports of the mechanism.

    """
    drawn_by = _mechanism(reports, mechanism)
    return estimate_key_value(drawn_by, _likelihood(reports, drawn_by), registry().estimator(of_symbols(estimator)))[0]


@withheld
@one_thread
def heavy_hitters(reports: Column | Counts, mechanism: Mechanism | str, top: int = 20, **options: Any) -> pl.DataFrame:
    """Find the most frequent strings behind a column of reports, without a list of strings; NULL reports are left out.

    Args:
        reports: reports of a mechanism over strings that are not listed, such as ``pem``, or `Counts` of them.
        mechanism: the mechanism that drew them.
        top: most strings to return.
        **options: ``confidence``, ``certain``, ``kept`` and ``deadline``, as of ``ldp.heavy_hitters`` in SQL.

    Returns:
        A row for each string, the most frequent first: ``value``, ``estimate``, ``std_error``, the interval from ``low`` to
        ``high``, ``level`` and ``reports``. All intervals hold together with probability ``confidence``.

    Raises:
        ImpossibleReport, NoReports: if the column cannot hold reports of the mechanism, or holds none.
        OutOfTime: if ``deadline`` seconds pass.

    """
    drawn_by = _mechanism(reports, mechanism)
    if isinstance(reports, Counts):
        counted = reports.one_group()
    else:
        column = column_of(reports).drop_null()
        counted = GroupedCounts.of(column, pa.repeat(pa.scalar(1, pa.uint64()), len(column)))
    strings_of(drawn_by)
    if not len(counted.reports):
        raise NoReports()
    _, hitters = next(search_groups(drawn_by, counted, HeavyHitters(top=top, **options)))
    return pl.DataFrame([asdict(hitter) for hitter in hitters], schema=pl.Schema(pa.schema(arrow_fields(HeavyHitter))))


def _likelihood(reports: Column | Counts, mechanism: Mechanism) -> Likelihood:
    if isinstance(reports, Counts):
        return counted_likelihood(reports.one_group(), mechanism)
    return column_likelihood(column_of(reports), mechanism)


def _counted(frame: Frame, column: str) -> Counts:
    if not isinstance(frame, pl.LazyFrame | pl.DataFrame):
        return partial_counts(frame, column)
    lazy = frame.lazy().select(report=pl.col(column))
    if lazy.collect_schema()["report"].is_nested():
        return partial_counts(lazy.collect(engine="streaming"), "report")
    return Counts.from_arrow(lazy.group_by("report").agg(n=pl.len()).collect(engine="streaming"))
