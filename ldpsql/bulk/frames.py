"""Estimates from Python: of lists, arrays, series, frames and files; comparisons and foreign reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, overload

import duckdb
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.backends import N, counted_there, is_expression, recorded_in, rows_there
from ldpsql.bulk.columns import drawn_apart, row_of, row_part, text_reports
from ldpsql.bulk.counts import Counts, merge, partial_counts
from ldpsql.bulk.fingerprints import agreed, of_frame, of_source
from ldpsql.bulk.queries import Reports, answers, answers_of_counts, answers_of_sums, raw_columns, reports_of, shares
from ldpsql.bulk.sources import Column, Frame, batches_of, check_columns, names_of, source_of, sql_of, stream
from ldpsql.domains.columns import (
    column_of,
    is_frame,
    is_pandas_frame,
    is_pandas_series,
    like_series,
    pandas_names,
    plain,
    type_of_column,
    with_nulls,
)
from ldpsql.domains.domain import Domain
from ldpsql.engine.functions import arrow_fields
from ldpsql.engine.groups import one_thread
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import SHRUNK, Estimate, estimate_likelihood, estimator_of_top
from ldpsql.estimates.question import is_table
from ldpsql.estimates.rappor_files import Rows as FileRows
from ldpsql.estimates.rappor_files import collection_shares
from ldpsql.estimates.recommending import Asked, Candidate, Estimators, PlanQuestion, answers_to, example_of, smallest_for
from ldpsql.estimates.shown import Rows
from ldpsql.estimates.simulated import RUNS, Metric, MetricName, SimulatedError, Simulation, simulated_errors
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource, column_likelihood, counted_likelihood
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.mixed import Mixed, of_lists
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.families import KeyValueMechanism
from ldpsql.mechanisms.foreign import Format, read_foreign
from ldpsql.mechanisms.spec import sql_literal
from ldpsql.names import EMS, IBU, SHARES
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.agreement import Fingerprints, check_agreement, of_type, recorded, refuse_groups
from ldpsql.registry.registry import registry
from ldpsql.sql.attach import kept

Drew: TypeAlias = Mechanism | str | Mapping[Any, Any] | None
Source: TypeAlias = Mechanism | Mixed | str | None  # what drew reports, or None if they record it
Data: TypeAlias = "Frame | Column | Counts | os.PathLike[str]"


@overload
def estimate(
    data: Data,
    mechanism: Drew = None,
    estimator: Estimator | str | None = None,
    *,
    column: str | Sequence[str] | None = None,
    weight: str | None = None,
) -> Estimate: ...


@overload
def estimate(
    data: Data,
    mechanism: Drew = None,
    estimator: Estimator | str | None = None,
    *,
    column: str | Sequence[str] | None = None,
    by: str | Sequence[str],
    weight: str | None = None,
    question: str | None = None,
    **arguments: Any,
) -> Rows: ...


@overload
def estimate(
    data: Data,
    mechanism: Drew = None,
    estimator: Estimator | str | None = None,
    *,
    column: str | Sequence[str] | None = None,
    weight: str | None = None,
    question: str,
    **arguments: Any,
) -> Rows: ...


@withheld
def estimate(
    data: Data,
    mechanism: Drew = None,
    estimator: Estimator | str | None = None,
    *,
    column: str | Sequence[str] | None = None,
    by: str | Sequence[str] = (),
    weight: str | None = None,
    question: str | None = None,
    **arguments: Any,
) -> Estimate | Rows:
    """Estimate the distribution of the values from reports, or the answer to a question; NULL reports are left out.

    A frame is counted by its own engine, and a stream batch by batch, so neither has to fit into memory; of groups and
    questions, the columns that are needed do.

    Args:
        data: a frame of Polars, pandas or Arrow, a stream, a relation of DuckDB, the path of a file or of a folder of Parquet
            files, a list or a column of reports, or `Counts` of them. Each report may be a list of all reports of a person.
            A table of Ibis is counted by its backend in one query, and only counts leave that.
        mechanism: what drew the reports. It may be left out if they record it; if they do not, a warning says so once. A
            mapping with the key ``mechanism`` is one; any other is from levels to mechanisms, for a column of structs with the
            fields ``level`` and ``report``.
        estimator: the estimator, ``ibu`` by default.
        column: the column of the reports in a frame, or the columns of a row; by default those that are not in ``by``, if it is
            only one, or if the mechanism is one of a row.
        by: the columns that define groups.
        weight: the column of the weights of the rows, such as those of a survey; without one, all count the same.
        question: what to answer instead of the shares of all values: the name of a question, such as ``mean``, ``median``,
            ``share`` or ``top``, or of an estimator; ``estimate``, all shares, if there are only its arguments.
        **arguments: the arguments of the question, such as ``of="age"``, ``q=0.9`` or ``most=3``; raw columns
            by their names, such as ``outcome="premium"``.

    Returns:
        Without groups and a question an `Estimate`, otherwise a table: the columns of ``by``, then what the SQL function
        returns, or the value, its estimate, std_error, low, high, and the number of reports n. Both print themselves, and have
        ``to_polars``, ``to_pandas`` and ``to_arrow``.

    Raises:
        ImpossibleReport, NotReports, NoReports: if the values cannot be reports of the mechanism.
        OtherMechanism: if the frame or the counts name another mechanism that drew them.
        MechanismUnrecorded: if no mechanism is passed, and none is named.
        UnknownName: if there is no such column or question.
        InvalidParameter: if the column of the reports must be named, there are no columns, or the question takes no such
            argument.

    """
    question = SHARES if question is None and arguments else question
    asked, columns = _Asked(estimator, _names(by, "by"), weight, question, arguments), _names(column or (), "column")
    drew = _named_or_mixed(mechanism) if isinstance(mechanism, Mapping) else mechanism
    if is_expression(data):
        return _of_expression(data, columns, drew, asked)
    frame = isinstance(data, str | os.PathLike) or is_frame(data)
    if not frame and (columns or asked.others):
        raise InvalidParameter("one column of reports, or counts, have no names of columns", "pass a frame")
    if frame:
        columns = columns or _columns(data, drew, [*asked.others, *asked.raw])
    if asked.keys or question is not None:
        return _answered(data, columns, drew, asked)
    return _of_frame(data, columns, drew, asked) if columns else _of_reports(data, drew, estimator)


class _Asked(NamedTuple):
    """What is asked of reports: of each group of the keys, with the column of weights, a question, by this estimator."""

    estimator: Estimator | str | None
    keys: list[str]
    weight: str | None
    question: str | None
    arguments: dict[str, Any]

    @property
    def others(self) -> list[str]:
        """The keys and the column of weights."""
        return [*self.keys, *([] if self.weight is None else [self.weight])]

    @property
    def raw(self) -> list[str]:
        """The raw columns that the question is about."""
        kind = registry().questions.get(self.question or "")
        return [] if kind is None else [name for names in raw_columns(kind, self.arguments).values() for name in names]


def _of_expression(table: Any, columns: list[str], mechanism: Source, asked: _Asked) -> Estimate | Rows:
    """Return the estimate from counts or sums, which the backend of a table of Ibis makes."""
    raw = list(dict.fromkeys(asked.raw))
    columns = columns or _columns(table, mechanism, [*asked.others, *raw])
    records = {name: recorded_in(table, name) for name in columns}
    drew, _ = drawn_by_columns(columns, mechanism, records.__getitem__)
    if raw and not registry().question(asked.question or "").adds_up(asked.arguments):
        rows = rows_there(table, columns, drew, others=[*asked.others, *raw], records=records)
        return _answered(rows, columns, drew, asked)
    cells = counted_there(table, columns, drew, keys=asked.keys, weight=asked.weight, raw=raw, records=records)
    if asked.keys or asked.question is not None:
        return _answered(cells, columns, drew, asked._replace(weight=N), summed=bool(raw))
    reports, numbers = cells[columns[0]] if len(columns) == 1 else _struct(cells, columns), plain(cells[N])
    counts = Counts.of(plain(reports), numbers if asked.weight else numbers.field("n"))
    return _of_reports(counts, drew, asked.estimator, recorded=all(records.values()))


def _names(argument: str | Sequence[str], parameter: str) -> list[str]:
    return [argument] if isinstance(argument, str) else list(names_of(argument, parameter))


def _columns(data: Any, mechanism: Source, keys: list[str]) -> list[str]:
    """Return the columns that are not keys, if they can only be those of the reports."""
    if isinstance(data, str | os.PathLike):
        with duckdb.connect() as con:
            names = source_of(con, Place.of(os.fspath(data))).names
    elif is_pandas_frame(data):
        names = pandas_names(data)
    else:
        names = data.collect_schema().names() if isinstance(data, pl.LazyFrame | pl.DataFrame) else _schema_of(data)
    left = [name for name in names if name not in keys]
    if len(left) != 1 and (mechanism is None or isinstance(mechanism, Mixed) or not is_table(registry().mechanism(mechanism))):
        raise InvalidParameter("the frame has several columns that may hold the reports", "name theirs: column='city'")
    return left


def _schema_of(data: Any) -> list[str]:
    return list(data.columns if isinstance(data, duckdb.DuckDBPyRelation) else getattr(data, "schema", pa.schema([])).names)


def _answered(data: Any, columns: list[str], mechanism: Source, asked: _Asked, *, summed: bool = False) -> Rows:
    """Return the answers for each group, from SQL; without columns the data are one column, or counts.

    If the raw columns are ``summed``, the column of weights has their sums by report, which stand in place of reports.
    """
    (estimator, keys, weight, question, arguments), others = asked, [*asked.others, *([] if summed else asked.raw)]
    if question in registry().estimators:  # the shares, by this estimator
        question, estimator, arguments = None, registry().estimator({"estimator": question, **arguments}), {}
    method = None if estimator is None else registry().estimator(estimator)
    kind = registry().question(question or SHARES)
    if question is not None:
        kind.check_arguments(arguments, kind.options)
    if kind.raw and not columns:
        raise InvalidParameter(f"'{kind.name}' is about raw columns, and these are only reports", "pass a frame or a file")
    with kept() as con:
        if columns:
            if any(map(_records(con, data), keys)):
                refuse_groups()
            table, drawn_by = _in_sql(con, data, columns, [*columns, *others], mechanism)
        else:
            drawn_by, table = _drawn_by(data, mechanism), text_literal(quoted(_ROWS))
            columns = ["report"]
            con.register(_ROWS, pa.table([_maps(data) if isinstance(data, Counts) else column_of(data)], columns))
        reports, raw = Reports(con, table, reports_of(columns), drawn_by, method, weight), raw_columns(kind, arguments)
        given = {name: sql_literal(value) for name, value in arguments.items() if name not in kind.raw}
        given |= {"estimator": reports.method} if method else {}
        if isinstance(data, Counts):
            query = answers_of_counts(reports, question or SHARES, given)
        elif summed:
            query = answers_of_sums(reports._replace(reports=quoted(N)), kind, given, keys)
        else:
            query = shares(reports, keys) if question is None else answers(reports, kind, given, keys, raw)
        answered = con.sql(query).to_arrow_table()
    title = " by ".join([f"{question or 'shares'} of {', '.join(columns)}", *([", ".join(keys)] if keys else [])])
    return Rows(f"{title} under {drawn_by.name}", answered)


def _maps(counts: Counts) -> pa.Array:
    return pa.MapArray.from_arrays([0, len(counts.reports)], counts.reports, counts.numbers)


def _records(con: DuckDBPyConnection, data: Any) -> Callable[[str], Fingerprints | None]:
    """Return what returns the fingerprints of a column of a frame or a file."""
    return partial(of_source, con, os.fspath(data)) if isinstance(data, str | os.PathLike) else partial(of_frame, data)


def _in_sql(
    con: DuckDBPyConnection, data: Any, columns: list[str], wanted: list[str], mechanism: Source
) -> tuple[str, Mechanism | Mixed]:
    """Return what ``query_table`` takes for columns of a frame or a file, and the mechanism that drew the reports."""
    drawn_by, _ = drawn_by_columns(columns, mechanism, _records(con, data))
    if isinstance(data, str | os.PathLike):
        return sql_of(con, os.fspath(data), wanted, _text(columns, drawn_by)), drawn_by
    reader, chosen = _read(data, wanted), list(dict.fromkeys(wanted))
    empty = reader.schema.empty_table().select(chosen)
    con.register(_ROWS, pa.Table.from_batches((batch.select(chosen) for batch in batches_of(reader)), empty.schema))
    return text_literal(quoted(_ROWS)), drawn_by


def _read(data: Any, wanted: list[str]) -> pa.RecordBatchReader:
    """Return a frame as a stream that has columns of these names, each once."""
    if isinstance(data, pl.LazyFrame):
        check_columns(wanted, data.collect_schema().names())
        data = data.select(set(wanted)).collect()
    reader = stream(data, wanted)
    check_columns(wanted, reader.schema.names)
    return reader


def _of_frame(data: Frame | str | os.PathLike[str], columns: list[str], mechanism: Source, asked: _Asked) -> Estimate:
    wanted, weight = list(dict.fromkeys([*columns, *asked.others])), asked.weight
    if isinstance(data, str | os.PathLike):
        path = os.fspath(data)
        with duckdb.connect() as con:
            source_of(con, Place.of(path)).check(wanted)
            drawn_by, recorded = drawn_by_columns(columns, mechanism, partial(of_source, con, path))
            source = source_of(con, Place.of(path), text=_text(columns, drawn_by))
            counted = merge(_counted(part.read(wanted, [], wanted), columns, weight) for part in source.parts)
    else:
        drawn_by, recorded = drawn_by_columns(columns, mechanism, partial(of_frame, data))
        if isinstance(data, pl.LazyFrame | pl.DataFrame) and len(wanted) == 1:
            check_columns(wanted, data.collect_schema().names())
            counted = _counted_by_polars(data, columns[0])
        else:
            counted = _counted(_read(data, wanted), columns, weight)
    return _of_reports(counted, drawn_by, asked.estimator, recorded=recorded)


def _text(columns: Sequence[str], drew: Mechanism | Mixed) -> list[str]:
    """Return the columns that are text, whatever they look like in a file; by level there is one of structs."""
    return [] if isinstance(drew, Mixed) else text_reports(columns, drew)


def drawn_by_columns(
    columns: list[str], mechanism: Source, recorded_by: Callable[[str], Fingerprints | None]
) -> tuple[Mechanism | Mixed, bool]:
    """Return the mechanism that drew reports, of several columns that of their row, and whether each column records its own."""
    records = {name: recorded_by(name) for name in columns}
    recorded = all(records.values())
    if isinstance(mechanism, Mixed):
        if len(columns) != 1:
            raise InvalidParameter("mechanisms by level are for one column", "of structs: {level: level, report: city}")
        for one in mechanism.mechanisms:
            if isinstance(one, Mechanism):
                agreed(records[columns[0]], one)
        return mechanism, recorded
    if len(columns) == 1:
        return agreed(records[columns[0]], mechanism), recorded
    if mechanism is None:
        return row_of({name: agreed(record, None) for name, record in records.items()}), recorded
    made = registry().mechanism(mechanism)
    for name, part in drawn_apart(columns, made).items():
        agreed(records[name], part)
    return row_part(columns, made), recorded


def _counted(batches: pa.RecordBatchReader, columns: list[str], weight: str | None) -> Counts:
    """Return the counts of the reports of a column, or of several as one column of structs."""
    if len(columns) == 1:
        return partial_counts(batches, columns[0], weight)
    weights, nothing = [] if weight is None else [weight], _struct(batches.schema.empty_table(), columns)
    schema = pa.schema([pa.field(_REPORT, nothing.type), *map(batches.schema.field, weights)])
    rows = ([_struct(batch, columns), *map(batch.column, weights)] for batch in batches_of(batches))
    structs = (pa.record_batch(row, schema) for row in rows)
    return partial_counts(pa.RecordBatchReader.from_batches(schema, structs), _REPORT, weight)


def _struct(batch: pa.RecordBatch | pa.Table, columns: list[str]) -> pa.Array:
    return pa.StructArray.from_arrays([plain(batch.column(name)) for name in columns], columns)


@one_thread
def _of_reports(
    reports: Column | Counts,
    mechanism: Source = None,
    estimator: Estimator | str | None = None,
    *,
    recorded: bool = False,
) -> Estimate:
    kind = reports.reports.type if isinstance(reports, Counts) else column_of(reports).type
    drawn_by = of_lists(_drawn_by(reports, mechanism), kind)
    if isinstance(drawn_by, KeyValueMechanism):
        raise InvalidParameter("these are reports of sets of pairs", "use ldpsql.key_value")
    estimates = estimate_likelihood(drawn_by, likelihood_of(reports, drawn_by), registry().estimator(estimator or IBU))
    if estimator is None and estimator_of_top(drawn_by) == SHRUNK:
        estimates = replace(estimates, for_top=registry().estimator(SHRUNK))
    return replace(estimates, recorded=recorded or bool(_fingerprints(reports)))[0]


def _drawn_by(reports: Column | Counts, mechanism: Source) -> Mechanism | Mixed:
    """Return what drew reports, which what they record must not contradict."""
    if not isinstance(mechanism, Mixed):
        return mechanism_of(reports, mechanism)
    kind = pa.null() if isinstance(reports, Counts) else type_of_column(reports)
    fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    for one in mechanism.mechanisms:
        if isinstance(one, Mechanism):
            check_agreement(of_type(fields["report"]) if "report" in fields else _fingerprints(reports), one)
    return mechanism


def _named_or_mixed(mechanisms: Mapping[Any, Any]) -> Mechanism | Mixed:
    """Return the mechanism that a mapping names, as it does in `perturb_copy`, or the mechanisms of its levels."""
    if Mechanism.kind in mechanisms:
        return registry().mechanism(mechanisms)
    return Mixed(Domain(pa.array(list(mechanisms))), tuple(map(registry().mechanism, mechanisms.values())))


def _fingerprints(reports: Column | Counts) -> Fingerprints:
    return reports.fingerprints if isinstance(reports, Counts) else of_type(type_of_column(reports))


def mechanism_of(reports: Column | Counts, mechanism: Mechanism | str | None) -> Mechanism:
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


def likelihood_of(reports: Column | Counts, mechanism: Mechanism | ReportSource) -> Likelihood:
    """Return the likelihood of reports of one group."""
    if isinstance(reports, Counts):
        return counted_likelihood(reports.one_group(), mechanism)
    return column_likelihood(column_of(reports), mechanism)


def _counted_by_polars(frame: pl.LazyFrame | pl.DataFrame, column: str) -> Counts:
    lazy = frame.lazy().select(report=pl.col(column))
    if lazy.collect_schema()["report"].is_nested():
        return partial_counts(lazy.collect(engine="streaming"), "report")
    return Counts.from_arrow(lazy.group_by("report").agg(n=pl.len()).collect(engine="streaming"))


@one_thread
def compare_estimators(
    estimate: Estimate, estimators: Sequence[Estimator | str], metric: MetricName | Metric = "mae", runs: int = RUNS
) -> pl.DataFrame:
    """Compare estimators by simulation: reports are drawn from an estimate, and each estimator is applied to them.

    Args:
        estimate: what stands for the truth; ``ldpsql.estimate(reports, mechanism, "best")`` is a good start.
        estimators: those to compare, with their options.
        metric: the error of an estimate: 'mae', 'mse', 'total_variation', 'wasserstein', 'mean', 'variance', or a function of
            the true shares and the estimated ones.
        runs: how many times to simulate.

    Returns:
        A row for each estimator: ``error``, the mean over the runs, its ``std_error``, and whether it is among the ``best``:
        no other is lower by more than two standard errors of their difference. Errors are NULL if it does not suit the reports.

    Raises:
        InvalidParameter: if there are no estimators, too few or too many runs, or no such error.
        InvalidDomain: if the error needs positions, and the values have no order.

    """
    named = metric if isinstance(metric, str) else "mae"
    simulation = Simulation(tuple(map(registry().estimator, estimators)), named, runs)
    rows = simulated_errors(estimate, simulation, None if isinstance(metric, str) else metric)
    return pl.DataFrame([asdict(row) for row in rows], schema=pl.Schema(pa.schema(arrow_fields(SimulatedError))))


@withheld
@one_thread
def recommend(
    question: str,
    reports: int | None,
    values: int | None = None,
    *,
    error: float | None = None,
    like: Any = None,
    width: int | None = None,
    epsilons: Sequence[str | float] = ("0.5", "1", "2", "4"),
    mechanisms: Sequence[str] = (),
) -> pl.DataFrame:
    """Compare mechanisms by the error of what you ask, before anything is collected.

    Args:
        question: 'mean', 'distribution', 'ranges' or 'quantiles' of numbers, 'rectangles' of a grid, the 'share' of a value, or
            the 'outcome' or a coefficient of a 'regression' of a raw column by value.
        reports: how many reports will be collected; None to learn how many reach ``error``.
        values: how many numbers, dates or cells there are: 121 for 0 to 120. With an example, into how many steps its range is
            divided, at most 1,024; by default its whole numbers and dates have a step each.
        error: an error to reach: the epsilons are then the smallest with which each mechanism reaches it or, without
            ``reports``, these numbers are the smallest, at each of ``epsilons``.
        like: an example, a column of numbers, dates or timestamps. Errors are then those of simulated reports of people like
            them, and somewhat unlike them. It is read without privacy: take public or synthetic data, never the data that you
            will collect.
        width: for rectangles, how many cells are in a row.
        epsilons: the epsilons to compare.
        mechanisms: names of mechanisms to compare; by default all.

    Returns:
        A row for each mechanism and epsilon, the best first: ``question``, ``mechanism``, the ``estimator`` that has the error,
        ``epsilon``, ``error``, ``reports`` and ``recommended``. For ranges and rectangles it is the error of a share. That of
        the mean, of the distribution (its Wasserstein distance to the truth) and of the quartiles is in steps from one value to
        the next or, with an example, in the unit of the values: days for dates, seconds for timestamps. That of an outcome or a
        coefficient is in standard deviations of the raw column.

    Raises:
        InvalidParameter: if the question cannot be answered, or no mechanism answers it at any epsilon.
        InvalidEpsilon: if one of the epsilons is not valid.

    """
    registered = registry().mechanisms
    if not set(mechanisms) <= registered.keys():
        raise InvalidParameter(
            "a plan for a question takes mechanisms by their names, without parameters",
            "such as square_wave, and the number of values: 501 for 0 to 500",
        )
    example = None if like is None else example_of(column_of(like), values)
    steps = values if example is None else len(example.shares)
    if steps is None:
        raise InvalidParameter("a plan needs the size of the domain", "for example 101 for the numbers 0 to 100")
    if reports is None and error is None:
        raise InvalidParameter("a plan needs the number of reports, or an error to reach", "for example 100000, or error=0.02")
    asked = Asked(question, reports or 0, steps, width, None if example is None else example.shares)
    estimators = Estimators(registry().estimator(IBU), registry().estimator(EMS))
    classes = {name: registered[name] for name in mechanisms or registered}
    step = example.step if example is not None and question != PlanQuestion.RANGES else 1.0
    if error is None:
        answers = answers_to(asked, epsilons, classes, estimators)
    else:
        answers = smallest_for(asked, error / step, epsilons, classes, estimators)
    answers = [replace(answer, error=answer.error * step) for answer in answers]
    return pl.DataFrame([asdict(answer) for answer in answers], schema=pl.Schema(pa.schema(arrow_fields(Candidate))))


_ROWS = "ldp rows"  # no table of a user has this name
_REPORT = "ldp report"
_FRAME = "__ldpsql_frame"


@withheld
def read(reports: Any, mechanism: Mechanism | str, format: Format = "bits") -> Any:  # noqa: A002  # as in SQL
    """Return reports that another library drew as reports of a mechanism here; NULL stays NULL.

    Args:
        reports: a list, an Arrow or NumPy array, a Polars or pandas series.
        mechanism: the mechanism with the probabilities with which they were drawn, such as ``encoding(1, [...], 'oue')``.
        format: how they are written: 'bits' ('0100'), 'array' ([0, 1, 0, 0]), 'position' and 'positions' (of values, from 0),
            or 'xxhash' (a symbol and a seed).

    Returns:
        A Polars series for a Polars series, a pandas series with the same index for a pandas series, else an Arrow array.

    Raises:
        ImpossibleReport: if some reports do not have the format, or cannot occur under the mechanism.
        InvalidParameter: if reports of the mechanism are not written in this format.

    """
    column = column_of(reports)
    certified, drawn = read_foreign(registry().mechanism(mechanism), column.drop_null(), format)
    out = with_nulls(plain(certified.shown(drawn)), column.is_valid().to_numpy(zero_copy_only=False))
    if isinstance(reports, pl.Series):
        return pl.Series(reports.name, out)
    return like_series(out, reports) if is_pandas_series(reports) else out


@withheld
@one_thread
def rappor_shares(params: Any, counts: Any, map: Any, rate: float = 0.05) -> pl.DataFrame:  # noqa: A002  # as in SQL
    """Estimate the shares of candidate strings from a collection of google/rappor.

    Args:
        params: a path, or a frame of Arrow, Polars, pandas or DuckDB, with one row: k, h, m, p, q and f.
        counts: the same, with a row for each cohort: its reports, then a count for each bit.
        map: the same, with a row for each candidate: its name, then its bits, numbered from 1 through all cohorts.
        rate: the expected share of the detected candidates that nobody has.

    Returns:
        A row for each candidate: ``estimate``, ``std_error``, ``low``, ``high``, ``p_value``, whether it is ``detected``, and
        ``gap``, which certifies the maximum of the likelihood. In the last row, for all other strings, ``candidate`` is NULL.

    Raises:
        InvalidParameter: if the parameters, the rate or the candidates do not make a collection.
        BadCounts: if the counts do not fit the parameters.
        SourceRefused: if a file cannot be read.

    """
    with duckdb.connect() as con:
        table = collection_shares(_rows(con, params), _rows(con, counts), _rows(con, map), rate)
    return pl.DataFrame(table)


def _rows(con: DuckDBPyConnection, source: Any) -> FileRows:
    """Return the rows of a file or a frame as SQL passes them, through JSON."""
    is_path = isinstance(source, str | os.PathLike)
    table = sql_of(con, os.fspath(source)) if is_path else text_literal(_FRAME)
    if not is_path:
        wanted = pandas_names(source) if is_pandas_frame(source) else ()
        con.register(_FRAME, stream(source, wanted).read_all())
    read = f"SELECT to_json(r)::VARCHAR FROM query_table({table}) AS r"  # noqa: S608  # text in quotes
    return [json.loads(text) for (text,) in con.execute(read).fetchall()]
