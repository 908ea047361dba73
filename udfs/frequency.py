"""Estimated distributions as aggregates: one macro for each estimator, over reports and over counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.estimators import Estimator
from ldpsql.functions import (
    MECHANISMS,
    PLANS,
    SOURCES,
    Aggregate,
    Column,
    Diagnosis,
    Estimate,
    Estimates,
    GroupedCounts,
    Handles,
    Lists,
    Macros,
    Options,
    Registry,
    Scalar,
    Takes,
    TextLists,
    Texts,
    Wholes,
    aggregates,
    arrow_fields,
    check_files,
    check_reports,
    check_size,
    columns_of,
    compare_comments,
    counted_by_form,
    counts_of,
    estimated,
    estimator_of_shares,
    guarded,
    hookimpl,
    listed,
    listed_by,
    lists_of,
    numbers,
    octets,
    of_lists,
    once_a_run,
    one_thread,
    plain,
    quoted,
    read_estimator,
    records_in,
    sql_literal,
    struct_fields,
    struct_text,
    structs_with,
    too_many_reports,
    with_prior,
    without_impossible,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism

_NAME = r'(?:(\w+)|"((?:[^"]|"")*)")'
_COLUMN = re.compile(rf"{_NAME} := (?:{_NAME}\.)*{_NAME}(?:, |\)$)")
_COLUMNS = re.compile(rf"struct_pack\((?:{_COLUMN.pattern})+")  # a struct of columns, as DuckDB names it
_FIELD = re.compile(rf"STRUCT\({_NAME} ")  # of a type; the name is in quotes if it must be
_ROW = ("value", "estimate", "std_error", "low", "high")
_ROWS = "STRUCT(value VARCHAR, estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE)[]"
_UNKNOWN = {"reports": 0, "status": "no reports", "remedy": "none of these can be a report of this mechanism"}
_DIAGNOSIS = f"STRUCT({struct_fields(Diagnosis)}, identified STRUCT(value VARCHAR, low DOUBLE, high DOUBLE)[])"

_Comments = Annotated[Column, Takes("a list of comments", lists_of(structs_with("path", "comment")))]
_Places = Annotated[Column, Takes("a table", structs_with("name", "place", "columns"))]


@guarded
def plan_handle(names: Texts, sources: Handles, options: Options) -> pa.Array:
    """Return the handle of each estimator with what drew the reports."""
    rows = pa.StructArray.from_arrays([plain(names), plain(sources), plain(options)], ["name", "source", "options"])
    return pa.array(numbers(rows, lambda row: _plan(*(row[i].as_py() for i in range(3)))), pa.int64())


def _plan(name: str | None, handle: int, options: dict[str, object] | None) -> int:
    arguments = {key: value for key, value in (options or {}).items() if value is not None}
    source = SOURCES.thing(handle)
    estimator = read_estimator(name or estimator_of_shares(source), **arguments)
    check_size(source, estimator)
    return PLANS.number((source, estimator))


def _estimates(histograms: Column, plans: Handles) -> Iterator[tuple[np.ndarray, Estimates]]:
    """Estimate all groups that hold reports, plan by plan; yield the rows of the groups and their estimates."""
    for handle, counts in counts_of(histograms, plans):
        source, estimator = PLANS.thing(handle)
        yield from estimated(source, counts, estimator)


@guarded
@once_a_run
def estimate(histograms: Column, plans: Handles) -> pa.Array:
    """Return the list of (value as text, estimate, std_error, low, high) of each group; NULL if the group is empty."""
    return _listed(_estimates(histograms, plans), len(histograms))


@guarded
@one_thread
def estimate_in_runs(histograms: Column, plans: Handles, runs: Wholes, priors: Options) -> pa.Array:
    """Return the estimates of groups by one plan, with the priors of their runs if they have any, and what each borrowed."""
    run, learned = plain(runs).fill_null(0), plain(priors)
    first = dict(zip(*np.unique(run.to_numpy(), return_index=True), strict=True))
    borrowed = np.full(len(histograms), np.nan)

    def estimates() -> Iterator[tuple[np.ndarray, Estimates]]:
        source, estimator = PLANS.thing(plans[0].as_py())
        for one, counts in counts_of(histograms, run):
            prior = learned[first[one]].as_py()
            for rows, some in estimated(source, counts, with_prior(estimator, prior) if prior else estimator):
                borrowed[rows] = some.fit.borrowed or np.nan
                yield rows, some

    shares = _listed(estimates(), len(histograms))
    return pa.StructArray.from_arrays([shares, pa.array(borrowed, from_pandas=True)], ["shares", "borrowed"])


def _listed(estimates: Iterator[tuple[np.ndarray, Estimates]], count: int) -> pa.Array:
    parts = []
    for rows, some in estimates:
        errors = some.intervals
        cells = np.stack([some.fit.theta, errors.std_error, errors.low, errors.high], axis=-1)
        parts.append((rows, some.values.written, cells))
    return listed(parts, count, _ROW)


@guarded
@once_a_run
def diagnose(histograms: Column, plans: Handles, types: Texts) -> pa.Array:
    """Return the diagnosis of each group, with the range of every share among all maxima; NULL if the group is empty.

    Args:
        histograms: the counts of the reports of each group.
        plans: what drew them, and the estimator.
        types: the type of the reports, or of their counts, in SQL.

    """
    recorded = [records_in(text) is not None for text in plain(types).to_pylist()]
    out: list[dict[str, object] | None] = [None] * len(histograms)
    for handle, counts in counts_of(histograms, plans):
        drew, estimator = PLANS.thing(handle)
        source = of_lists(drew, counts.reports.type)
        rest, left_out = without_impossible(source, counts)
        impossible = dict(zip(counts.groups, left_out.tolist(), strict=True))
        for row, number in impossible.items():
            out[row] = _UNKNOWN | {"impossible": number}
        for rows, estimates in estimated(source, rest, estimator) if len(rest.groups) else ():
            for place, row in enumerate(rows):
                out[row] = _diagnosed(replace(estimates, recorded=recorded[row])[place], impossible[row])
    share = pa.struct([("value", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
    return pa.array(out, pa.struct([*arrow_fields(Diagnosis), ("identified", pa.list_(share))]))


def _diagnosed(one: Estimate, impossible: int) -> dict[str, object]:
    low, high = one.identified
    places = zip(one.values.texts, low.tolist(), high.tolist(), strict=True)
    ranges = [{"value": value, "low": a, "high": b} for value, a, b in places]
    return asdict(replace(one.diagnosis, impossible=impossible)) | {"identified": ranges}


@guarded
def merge(keys: Lists, numbers: Lists) -> pa.Array:
    """Return the positions of the distinct reports of each group of counts, and the sums of their numbers."""
    rows = zip(plain(keys), plain(numbers), strict=True)
    merged = [
        _merged(reports.values, counted.values) if reports.is_valid and counted.is_valid else None for reports, counted in rows
    ]
    out = [row and {"positions": row[0] + 1, "n": row[1].astype(np.uint64)} for row in merged]
    return pa.array(out, pa.struct([("positions", pa.list_(pa.int64())), ("n", pa.list_(pa.uint64()))]))


def _merged(reports: pa.Array, numbers: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if len(reports) != len(numbers):
        raise InvalidParameter("each report needs its number", "pass the keys and the values of one map")
    return GroupedCounts.of(reports, numbers).merge()


@guarded
def octets_of_sets(reports: Lists) -> pa.Array:
    """Return reports that are sets as bytes, which DuckDB counts in a quarter of the memory that lists take."""
    column = plain(reports)
    return octets(column) if pa.types.is_list(column.type) else pa.nulls(len(column), pa.binary())  # NULL without a type


@guarded
def drawn_by(names: Texts, places: TextLists, columns: _Comments, handles: Handles) -> pa.Array:
    """Return whether a comment says which mechanism drew the reports of a column.

    Raises:
        OtherMechanism: if the comment names another mechanism.

    """
    rows = zip(*(plain(column).to_pylist() for column in (names, places, columns, handles)), strict=True)
    made = [_drawn_by(name, place, named, MECHANISMS.thing(handle)) for name, place, named, handle in rows]
    return pa.array(made, pa.bool_())


def _drawn_by(
    name: str | None, place: list[str | None] | None, columns: list[dict[str, Any] | None] | None, mechanism: Mechanism
) -> bool:
    named = [part for part in place or [] if part is not None]
    if name is None or len(named) != 2:
        raise InvalidParameter("a table has a name, in a catalog and a schema", "call ldp.estimate, which passes them")
    comments = [(tuple(column["path"] or ()), column["comment"]) for column in columns or [] if column]
    return compare_comments(name, named, comments, mechanism)


@guarded
def agreed(places: _Places, columns: Texts, handles: Handles) -> pa.Array:
    """Return true for each group of the reports of one place.

    Raises:
        OtherMechanism: if the comment of the column or the metadata of the file names another mechanism.

    """
    for row_type in filter(None, plain(columns).unique().to_pylist()):
        name = _FIELD.match(row_type)
        if name is not None:
            for column, mechanism in _drawn_as(_unquoted(*name.groups()), MECHANISMS.thing(handles[0].as_py())):
                _compare(places[0].as_py(), column, mechanism)
    return pa.array([True] * len(columns))


def _unquoted(plain_name: str | None, quoted_name: str | None) -> str:
    return plain_name or (quoted_name or "").replace('""', '"')


def _drawn_as(name: str, mechanism: Mechanism) -> Iterator[tuple[str, Mechanism]]:
    """Yield the columns of reports in an expression, and the mechanism of each; a struct of columns has that of a row."""
    parts = dict(columns_of(mechanism))
    if not parts or not _COLUMNS.fullmatch(name):
        yield name, mechanism
        return
    for field in _COLUMN.finditer(name):
        if (part := parts.get(_unquoted(field[1], field[2]))) is not None:
            yield _unquoted(field[5], field[6]), part


def _compare(place: dict[str, Any], column: str, mechanism: Mechanism) -> None:
    named = [one for one in place["columns"] or [] if one["column"] == column.lower()]
    if not _drawn_by(place["name"], place["place"], named, mechanism):
        check_files(place["name"], column, mechanism)


@guarded
def many_reports(handles: Handles, reports: Wholes) -> pa.Array:
    """Return whether there are certainly more reports than can be read."""
    rows = zip(plain(handles).to_pylist(), plain(reports).to_pylist(), strict=True)
    return pa.array([too_many_reports(MECHANISMS.thing(handle), number) for handle, number in rows], pa.bool_())


@guarded
def few_reports(handles: Handles, reports: Wholes) -> pa.Array:
    """Return true for each row, after a check that the reports can be read.

    Raises:
        InvalidParameter: if there are certainly more reports than can be read.

    """
    for handle, number in zip(plain(handles).to_pylist(), plain(reports).to_pylist(), strict=True):
        check_reports(MECHANISMS.thing(handle), number)
    return pa.array([True] * len(handles))


def of_estimator(estimator: type[Estimator]) -> Aggregate:
    """Return the aggregates of one estimator."""
    parameters = estimator.parameters()
    chosen = struct_text({p.name: quoted(p.name) for p in parameters})
    return Aggregate(
        estimator.name,
        f"ldp._rows(ldp._recorded_kind(m, NULL, {{record}}), "
        f"__ldp_estimate({{counts}}, __ldp_plan('{estimator.name}', __ldp_source(m, {{record}}), {chosen})))",
        {"m": None, **{p.name: sql_literal(p.default) for p in parameters}},
        rows=True,
    )


_DIAGNOSE = Aggregate(
    "diagnose",
    "ldp._diagnosis(ldp._kind(m), __ldp_diagnose({counts}, __ldp_learnt_plan(ldp._learner(estimator, m), prior), {record}))",
    {"m": None, "keep": "true", "estimator": "'ibu(misfit=''allow'')'", "prior": "NULL"},
    "how far an estimate can be trusted",
)


@hookimpl
def ldpsql_functions(known: Registry) -> list[Scalar | Macros]:
    """Offer the aggregates of all estimators, ``ldp.diagnose``, ``ldp.estimate``, ``ldp.counts`` and ``ldp.merge``."""
    return [
        Scalar("__ldp_plan", plan_handle, "BIGINT"),
        Scalar("__ldp_drawn_by", drawn_by, "BOOLEAN"),
        Scalar("__ldp_agreed", agreed, "BOOLEAN"),
        Scalar("__ldp_many", many_reports, "BOOLEAN"),
        Scalar("__ldp_few", few_reports, "BOOLEAN"),
        Scalar("__ldp_estimate", estimate, _ROWS),
        Scalar("__ldp_estimate_in_runs", estimate_in_runs, f"STRUCT(shares {_ROWS}, borrowed DOUBLE)"),
        Scalar("__ldp_diagnose", diagnose, _DIAGNOSIS),
        Scalar("__ldp_merge", merge, "STRUCT(positions BIGINT[], n UBIGINT[])"),
        Macros.beside(__file__),
        Scalar("__ldp_octets", octets_of_sets, "BLOB"),
        counted_by_form(),
        listed_by(),
        aggregates(_DIAGNOSE, *map(of_estimator, known.estimators.values())),
    ]
