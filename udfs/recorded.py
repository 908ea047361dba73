"""What drew reports: the mechanism that is recorded next to them, or another library, whose reports are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeAlias

import pyarrow as pa

from ldpsql.bulk.fingerprints import columns_at, records_at
from ldpsql.domains.columns import with_nulls
from ldpsql.engine.arguments import same_in_all_rows
from ldpsql.engine.forms import ToColumn, drawn_by_form, scalars_by_form, type_of_reports
from ldpsql.engine.functions import struct_text
from ldpsql.engine.identity import parts
from ldpsql.engine.sql_struct import struct_sql
from ldpsql.errors import InvalidSpec, MechanismUnrecorded
from ldpsql.estimates.rappor_files import collection_shares
from ldpsql.functions import (
    MECHANISMS,
    SOURCES,
    Column,
    Handles,
    Macros,
    Scalar,
    Settings,
    TextLists,
    Texts,
    Wholes,
    by_row,
    guarded,
    hookimpl,
    names_withheld,
    plain,
    python_value,
    quoted,
    sql_literal,
    struct_scalars,
    text_literal,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism
from ldpsql.mechanisms.foreign import read_foreign
from ldpsql.registry.agreement import check_typed, recorded, recorded_in_type, records_in, refuse_groups
from ldpsql.registry.documents import record_name

Options: TypeAlias = dict[str, str]  # as SQL
Columns: TypeAlias = str | dict[str, str]  # the name of one, or those of a struct
# `records_at` does not see temporary tables.
_UNLESS_HIDDEN = """WHERE CASE WHEN EXISTS (
    FROM duckdb_columns() WHERE database_name = 'temp' AND lower(table_name) = {}
) THEN error('[LDP409] a temporary table does not record the mechanism. Hint: pass the mechanism that drew the reports.')
ELSE true END"""


@struct_scalars("__ldp_recorded", Texts, Texts, Texts, Wholes)
def _recorded(reports: str | None, report: str | None, search_path: str | None, catalog: int | None) -> Mechanism:
    if reports is None or report is None or search_path is None or catalog is None:
        raise InvalidParameter("the record is that of a column of a table or a file", "name both, such as 'reports', 'city'")
    return recorded(records_at(catalog, search_path, reports, [report])[report])


_typed = struct_scalars("__ldp_typed", Texts)(recorded_in_type)  # of a type of reports, or of their counts


@by_row(Texts, returns=pa.string())
def recording(text: str) -> str:
    """Return a type that chooses a macro, for a type of reports: BOOLEAN for a record, TINYINT if it has records inside."""
    records = records_in(text)
    if records == "report" and not text.endswith("[]"):
        return '"BOOLEAN"'
    return '"TINYINT"' if records else '"VARCHAR"'


@guarded
def drew(types: Texts, handles: Handles) -> pa.Array:
    """Return true for each row of reports of this type.

    Raises:
        OtherMechanism: if their type records another mechanism.

    """
    for text, handle in set(zip(plain(types).to_pylist(), plain(handles).to_pylist(), strict=True)):
        if isinstance(source := SOURCES.thing(handle), Mechanism):
            check_typed(text, source)
    return pa.array([True] * len(types))


@by_row(Handles, Texts, returns=pa.string())
def record_type(handle: int, kind: str | None) -> str:
    """Return the type, as from_json reads it, of reports that record a mechanism; ``kind`` is that of their list or marker."""
    return json.dumps({record_name(MECHANISMS.thing(handle)): type_of_reports(kind)})


@guarded
def call(macros: Texts, reports: Texts, search_paths: Texts, catalogs: Wholes, *more: Column) -> pa.Array:
    """Return a call of a table macro, with the mechanism that is recorded for the reports, as SQL.

    Args:
        macros: the name of the macro.
        reports: the table.
        search_paths: where DuckDB looks for it.
        catalogs: the number of the catalog.
        more: mechanisms, which must be NULL, structs of the options of the macro, lists of the names of further columns, then
            the report and how it is written, and the same for each further column, NULL if there is none.

    """
    if len(more) < 4 or not (pa.types.is_struct(more[1].type) or pa.types.is_null(more[1].type)):
        raise InvalidParameter("these are no arguments of a question", "call its table function in ldp")
    mechanisms, options, names, *columns = more
    if plain(mechanisms).null_count < len(mechanisms):
        raise InvalidSpec(
            "a column stands in the place of the mechanism",
            "a macro has brackets: ldp.estimate(reports, city, city()); name other arguments, such as by := region",
        )
    macro, *place = (plain(column).to_pylist() for column in (macros, reports, search_paths, catalogs))
    given = ({name: sql_literal(value) for name, value in (python_value(row) or {}).items()} for row in plain(options))
    return pa.array(
        [
            _call(*row)
            for row in zip(macro, zip(*place, strict=True), given, plain(names).to_pylist(), *map(_named, columns), strict=True)
        ],
        pa.string(),
    )


def _named(column: Column) -> list[Any]:
    """Return the names of columns, or structs of them; nothing for values of other types, which Python may not have."""
    values, kind = plain(column), column.type
    fields = [kind.field(place).type for place in range(kind.num_fields)] if pa.types.is_struct(kind) else [kind]
    return values.to_pylist() if all(map(pa.types.is_string, fields)) else [None] * len(values)


def _call(
    macro: str | None, source: tuple[str | None, str | None, int | None], options: Options, names: list[str], *columns: Columns
) -> str:
    reports, search_path, catalog = source
    if macro is None or reports is None or search_path is None or catalog is None or not columns:
        raise InvalidParameter(
            "the record is that of a table or a file", "name it, or pass the mechanism that drew the reports"
        )
    given = [each for each in zip_longest(columns[::2], columns[1::2]) if each[1] != "NULL"]
    as_written = all(written and written == _as_written(named) for named, written in given)
    dotted = _with_a_dot(named for named, _ in given) if as_written else frozenset[str]()
    if not as_written or (dotted and not dotted <= columns_at(catalog, search_path, reports)):
        raise InvalidParameter(
            "without a mechanism, reports and groups must be columns, not expressions or fields of columns",
            "name the column, or pass the mechanism that drew the reports",
        )
    place, report, ldp = text_literal(reports), columns[0], macro.partition(".")[0]
    drawn_by = f"(SELECT {ldp}._recorded({_columns(report)}, false, false) FROM (FROM query_table({place}) LIMIT 0))"  # noqa: S608
    condition = ""
    each = {report: report} if isinstance(report, str) else report
    by = next((named for name, named in zip(names, columns[2::2], strict=True) if name == "by"), None) or {}
    keys = {by} if isinstance(by, str) else {*by.values()}
    records = records_at(catalog, search_path, reports, {*each.values(), *keys})
    if any(records[key] for key in keys):
        refuse_groups()
    with suppress(MechanismUnrecorded):
        of_each = {field: struct_sql(recorded(records[column])) for field, column in each.items()}
        drawn_by = of_each[report] if isinstance(report, str) else f"{ldp}.row({struct_text(of_each)})"
        condition = _UNLESS_HIDDEN.format(text_literal(parts(reports)[-1]))
    others = {name: _columns(named) for name, named in zip(names, columns[2::2], strict=True) if named is not None}
    passed = "".join(f", {quoted(name)} := {value}" for name, value in (options | others).items())
    return f"FROM {macro}({place}, {_columns(report)}, {drawn_by}{passed}) {condition}"


def _columns(named: Columns) -> str:
    """Return a column, or a struct of columns, as SQL."""
    if isinstance(named, str):
        return quoted(named)
    return struct_text({field: quoted(column) for field, column in named.items()})


def _with_a_dot(columns: Iterable[Columns]) -> frozenset[str]:
    """Return the names that have a dot, in lowercase: DuckDB writes a field of a column like a column of such a name."""
    names = (name for named in columns for name in ([named] if isinstance(named, str) else named.values()))
    return frozenset(name.lower() for name in names if "." in name)


def _as_written(report: object) -> str:
    """Return how DuckDB writes an expression that is the name of a column, or a struct of such names; '' for any other."""
    if isinstance(report, str):
        return text_literal(report)
    if not isinstance(report, dict) or not all(isinstance(column, str) for column in report.values()):
        return ""
    return f"struct_pack({', '.join(map(text_literal, report.values()))})"


def foreign_reports(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function that reads the reports of others, one a row; ``to_column`` makes a column of type ``kind`` of them."""

    @guarded
    def read(reports: Column, forms: Texts, handles: Handles) -> pa.Array:
        if not len(reports):
            return pa.array([], kind)
        form, handle = same_in_all_rows("mechanism and format of read", forms, handles)
        column = plain(reports)
        valid = column.is_valid()
        with names_withheld():
            certified, drawn = read_foreign(MECHANISMS.thing(handle), column.filter(valid), form)
        return with_nulls(plain(to_column(certified, drawn)), valid.to_numpy(zero_copy_only=False))

    return read


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_BY_FORM = scalars_by_form("__ldp_read", foreign_reports, draws=False, volatile=False)


# Collections of google/rappor: shares of candidate strings.

_ROW = (
    "STRUCT(candidate VARCHAR, estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE, p_value DOUBLE, detected BOOLEAN, "
    "gap DOUBLE)[]"
)


_Rows: TypeAlias = list[str | None] | None  # objects of JSON


@by_row(TextLists, TextLists, TextLists, Settings)
def shares_of_collection(params: _Rows, counts: _Rows, listed: _Rows, rate: Any) -> list[dict[str, Any]]:
    """Return a row for each candidate of a collection, and a last one, of which the candidate is NULL, for all others."""
    rows: list[dict[str, Any]] = collection_shares(_read(params), _read(counts), _read(listed), rate).to_pylist()
    return rows


def _read(rows: _Rows) -> list[dict[str, Any]]:
    try:
        read = [json.loads(row or "null") for row in rows or []]
    except (json.JSONDecodeError, RecursionError):
        read = [None]
    if not all(isinstance(row, dict) and row for row in read):
        raise InvalidParameter(
            "the rows of a collection must be objects of JSON", "ldp.rappor_shares makes them of tables and files"
        )
    return read


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.mechanism``, ``ldp.read``, ``ldp.rappor_shares``, and what ``ldp.estimate`` needs without a mechanism."""
    return [
        *_recorded,
        *_typed,
        Scalar("__ldp_call", call, "VARCHAR"),
        Scalar("__ldp_recording", recording, "VARCHAR"),
        Scalar("__ldp_drew", drew, "BOOLEAN"),
        Scalar("__ldp_record_type", record_type, "VARCHAR"),
        *dict.fromkeys(_BY_FORM.values()),
        drawn_by_form("_foreign", _BY_FORM, ("report", "form"), "report, form, __ldp_mechanism(m)"),
        Scalar("__ldp_bloom_shares", shares_of_collection, _ROW),
        Macros.beside(__file__),
    ]
