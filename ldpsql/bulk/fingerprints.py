"""The mechanism that drew a column, recorded next to the reports in tables of DuckDB and in files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from ldpsql.bulk.sinks import write_token
from ldpsql.bulk.sources import source_of
from ldpsql.domains.columns import is_pandas_frame, type_of_column
from ldpsql.engine.connections import CONNECTIONS, cursor_of
from ldpsql.engine.files import files_of, format_of
from ldpsql.engine.identity import parts, split, table_of
from ldpsql.errors import OtherMechanism, SourceRefused
from ldpsql.mechanisms.base import Mechanism
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.agreement import (
    NONE,
    Fingerprints,
    agree,
    check_agreement,
    check_one_record,
    digit_pairs,
    of_schema,
    of_sql_type,
    of_text,
    of_type,
    recorded,
    several,
    warn_unmarked,
)
from ldpsql.registry.documents import fingerprint
from ldpsql.registry.registry import registry
from ldpsql.sql.named import mechanism_of

_COMMENTS = """
SELECT column_name, comment FROM duckdb_columns() WHERE lower(column_name) IN ({columns}) AND lower(table_name) = {table}
AND lower(schema_name) = {schema} AND lower(database_name) = {database} AND database_name <> 'system'"""


class Marking:
    """The comments of a table that will name the mechanisms that draw into it."""

    def __init__(self, con: DuckDBPyConnection, name: str, mechanisms: Mapping[str, Mechanism]) -> None:
        """Read the comments of the table, if it exists, before anything is drawn."""
        self._name, self._mechanisms = name, mechanisms
        with cursor_of(con) as cursor:
            self._before = of_table(cursor, name, mechanisms)
            try:
                self._rows = bool(cursor.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall())  # noqa: S608  # quoted
            except duckdb.Error:
                self._rows = False

    def check(self) -> None:
        """Refuse to add reports to those of another mechanism."""
        for column, before in self._before.items():
            if not agree(before, [fingerprint(self._mechanisms[column])]):
                raise OtherMechanism(
                    f"another mechanism drew the reports in the column '{column}'", "write the new reports into another table"
                )

    def write(self, cursor: DuckDBPyConnection, token: str = "", *, appended: bool = False) -> None:
        """Write the fingerprints, and the token of a release, in the transaction that writes the table.

        A column that already has rows without a fingerprint gets none: nobody knows what drew those rows.
        """
        write_token(cursor, self._name, token)
        self._write(cursor, table_of(cursor, self._name), appended=appended)

    def _write(self, cursor: DuckDBPyConnection, path: tuple[str, ...] | None, *, appended: bool) -> None:
        for column, mechanism in self._mechanisms.items():
            if not (appended and self._rows and not self._before[column]):
                add_comment(cursor, path, column, mechanism)

    def write_if_there(self, con: DuckDBPyConnection, token: str = "", *, appended: bool = True) -> None:
        """Write the fingerprints of a table that the user's statements wrote, and the token of a release, if DuckDB keeps it.

        The connection itself writes them: a comment from another would break a transaction that is open on this one.
        """
        with cursor_of(con) as cursor:
            cursor.execute("SET python_enable_replacements = false")
            path = table_of(cursor, self._name)
        if path is not None and path[-1] == parts(self._name)[-1]:
            with suppress(duckdb.Error):
                write_token(con, self._name, token)
                self._write(con, path, appended=appended)


def add_comment(cursor: DuckDBPyConnection, path: tuple[str, ...] | None, column: str, mechanism: Mechanism) -> None:
    """Add a fingerprint to the comment of a column of the table catalog.schema.name, unless the comment has it."""
    line = fingerprint(mechanism)
    for _, comment in _comments(cursor, path, [column]):
        if not digit_pairs([line]) <= digit_pairs(of_text(comment)):
            text = f"{comment}\n{line}" if comment else line
            full = ".".join(map(quoted, (*(path or ()), column)))
            cursor.execute(f"COMMENT ON COLUMN {full} IS {text_literal(text)}")


def _comments(cursor: DuckDBPyConnection, path: tuple[str, ...] | None, columns: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return columns of the table catalog.schema.name with their comments; nothing if DuckDB does not keep that table."""
    if path is None or len(path) != 3:  # catalog, schema, name
        return []
    own = "database_name IN (SELECT database_name FROM duckdb_databases() WHERE type = 'duckdb')"
    return cursor.execute(f"{_reading_comments(columns, *map(text_literal, path))} AND {own}").fetchall()


def _reading_comments(columns: Iterable[str], database: str, schema: str, table: str) -> str:
    names = ", ".join(f"lower({text_literal(column)})" for column in columns)
    return _COMMENTS.format(columns=names, table=table, schema=schema, database=database)


def of_table(cursor: DuckDBPyConnection, name: str, columns: Collection[str]) -> dict[str, Fingerprints]:
    """Return the fingerprints of columns, in their types or in their comments in a table or in the one table that a view reads.

    Returns none for a view of a table with reports of several mechanisms: the view may choose those of one.
    """
    typed = dict.fromkeys(columns, NONE)
    with suppress(duckdb.Error):
        typed = _of_types(cursor.sql(f"FROM query_table({text_literal(name)}) LIMIT 0"), columns)
    if all(typed.values()):
        return typed
    path = table_of(cursor, name)
    is_view = path is not None and path[-1] != parts(name)[-1]
    comments = ((column, of_text(comment)) for column, comment in _comments(cursor, path, columns))
    return {
        column: typed[column] or (NONE if is_view and several(written) else written)
        for column, written in _by_column(comments, columns).items()
    }


def _by_column(found: Iterable[tuple[str, Fingerprints]], columns: Iterable[str]) -> dict[str, Fingerprints]:
    """Return the fingerprints of columns, from those that were found for columns of these names in any case."""
    folded: dict[str, Fingerprints] = {}
    for name, fingerprints in found:
        folded[name.casefold()] = folded.get(name.casefold(), NONE) | fingerprints
    return {column: folded.get(column.casefold(), NONE) for column in columns}


def _of_types(relation: DuckDBPyRelation, columns: Iterable[str]) -> dict[str, Fingerprints]:
    """Return the fingerprints of columns of a relation in their types."""
    types = zip(relation.columns, map(str, relation.types), strict=True)
    wanted = {column.casefold() for column in columns}
    own = [(name, text) for name, text in types if name.casefold() in wanted]
    for _, text in own:
        check_one_record(text)
    return _by_column(((name, of_sql_type(text).get("", NONE)) for name, text in own), columns)


def compare_comments(
    name: str, place: list[str], columns: Iterable[tuple[tuple[str, ...], str | None]], mechanism: Mechanism
) -> bool:
    """Return whether a name is that of a temporary table, or of one with a comment that says what drew its reports.

    Args:
        name: the table, as SQL writes it; what is not one passes.
        place: the current catalog and schema.
        columns: catalog, schema and table, in lowercase, of every temporary or recorded column of the name, and its comment.
        mechanism: the mechanism that is to estimate.

    Raises:
        OtherMechanism: if another one drew them.

    """
    path, comments = tuple(map(str.casefold, split(name))), dict(columns)
    catalog, schema = map(str.casefold, place)
    full: dict[int, list[tuple[str, ...]]] = {
        1: [("temp", "main", *path), (catalog, schema, *path)],
        2: [(catalog, *path), (path[0], "main", path[-1])],
        3: [path],
    }
    table = next((one for one in full.get(len(path), []) if one in comments), None)
    check_agreement(of_text(comments[table]) if table else NONE, mechanism)
    return table is not None


def of_relation(relation: DuckDBPyRelation, column: str) -> Fingerprints:
    """Return the fingerprints in the type of a column of a relation, or in its comments if the relation is a whole table."""
    if typed := _of_types(relation, [column])[column]:
        return typed
    if relation.type != "TABLE_RELATION":
        return NONE
    path = [text_literal(part) for part in parts(relation.sql_query().removeprefix("SELECT * FROM "))]
    full = ["lower(current_database())", "lower(current_schema())"][: 3 - len(path)] + path
    comments = relation.query("__ldpsql", _reading_comments([column], *full))
    return NONE.union(*(of_text(comment) for _, comment in comments.fetchall())) if comments else NONE


def of_frame(frame: Any, column: str) -> Fingerprints | None:
    """Return the fingerprints of a column of a frame; None if its frame, as one of Polars, has none but in types."""
    if isinstance(frame, pa.Table | pa.RecordBatchReader):
        return of_schema(frame.schema, column)
    if isinstance(frame, pl.DataFrame | pl.LazyFrame):
        kind = frame.collect_schema().get(column, pl.Null())
        return of_type(pl.Series([], dtype=kind).to_arrow().type) or None if isinstance(kind, pl.Struct) else None
    if is_pandas_frame(frame) and column in frame:
        return of_type(type_of_column(frame[column])) or None
    return of_relation(frame, column) if isinstance(frame, DuckDBPyRelation) else None


def of_source(con: DuckDBPyConnection, source: str, column: str) -> Fingerprints | None:
    """Return the fingerprints of a column of a table or of files; None for formats that cannot hold any, such as CSV."""
    return of_columns(con, source, [column])[column]


def of_columns(con: DuckDBPyConnection, source: str, columns: Collection[str]) -> dict[str, Fingerprints | None]:
    """Return the fingerprints of columns as `of_source` does, in one pass."""
    try:
        read = source_of(con, source)
    except SourceRefused:  # the next reader raises it
        return dict.fromkeys(columns)
    if read.files:
        return {column: of_files(con, str(read.kind), read.files, column) for column in columns}
    with cursor_of(con) as cursor:
        return {**of_table(cursor, source, columns)}


def of_files(con: DuckDBPyConnection, kind: str, files: Iterable[str], column: str) -> Fingerprints | None:
    """Return the fingerprints of a column of files of one format; None if the format cannot hold any."""
    if kind not in ("parquet", "arrow"):
        return None
    return NONE.union(*(of_schema(_schema(con, kind, Place(file)), column) for file in files))


def _schema(con: DuckDBPyConnection, kind: str, place: Place) -> pa.Schema:
    """Return the schema of a file, at a URL of Parquet only its metadata."""
    if kind == "parquet" and place.is_url:
        with cursor_of(con) as cursor:
            pairs = cursor.execute("SELECT key, value FROM parquet_kv_metadata(?)", [place.text]).fetchall()
        return pa.schema([], dict(pairs))
    if kind == "parquet":
        return pq.read_schema(place.text)
    with place.files_system().open(place.text) if place.is_url else pa.memory_map(place.text) as opened:
        return pa.ipc.open_file(opened).schema


def check_files(catalog: int, path: str, column: str, mechanism: Mechanism) -> None:
    """Refuse reports in files that another mechanism drew; what is not a local file, or cannot be read, passes."""
    place = Place.of(path)
    if place.is_url or not (format_of(place.path) or place.is_pattern or os.path.isdir(path)):
        return
    with CONNECTIONS.cursor_at(catalog, "") as cursor, suppress(SourceRefused, OSError, pa.ArrowException, duckdb.Error):
        kind, files = files_of(cursor, place)
        check_agreement(of_files(cursor, kind, files, column) or NONE, mechanism)


def check_view(catalog: int, search_path: str, name: str, column: str, mechanism: Mechanism) -> None:
    """Refuse reports of a view if its only table records another mechanism; `records_at` says what is not seen."""
    with CONNECTIONS.cursor_at(catalog, search_path) as cursor:
        check_agreement(of_table(cursor, name, [column])[column], mechanism)


def agreed(
    fingerprints: Fingerprints | None, mechanism: Mechanism | str | None, con: DuckDBPyConnection | None = None
) -> Mechanism:
    """Return the mechanism that is passed, after a comparison with the one that the reports record, or else the recorded one.

    Args:
        fingerprints: what the reports record; None if they are in a form that records nothing.
        mechanism: the mechanism, or its text or name; None stands for the recorded one.
        con: the connection that may name mechanisms, see `attach`.

    Raises:
        OtherMechanism: if another mechanism drew them.
        MechanismUnrecorded: if no mechanism is passed, and none is recorded.

    """
    if mechanism is None:
        return recorded(fingerprints)
    drawn_by = registry().mechanism(mechanism) if con is None else mechanism_of(mechanism, con)
    compare(fingerprints, drawn_by)
    return drawn_by


def compare(fingerprints: Fingerprints | None, mechanism: Mechanism) -> None:
    """Refuse reports of another mechanism, and warn once if no fingerprint names their mechanism."""
    check_agreement(fingerprints or NONE, mechanism)
    if fingerprints is not None and not fingerprints:
        warn_unmarked()


def records_at(catalog: int, search_path: str, reports: str, columns: Collection[str]) -> dict[str, Fingerprints | None]:
    """Return what is recorded next to columns, see `of_columns`.

    A statement is being bound when SQL asks for it, so another connection to the same database looks it up. It sees neither
    temporary tables nor what the statement's own transaction has not committed.

    Args:
        catalog: the number of the catalog of ldpsql.
        search_path: the setting of the statement's connection.
        reports: a table, a view, a file or a pattern, as `query_table` takes it.
        columns: their names.

    """
    with CONNECTIONS.cursor_at(catalog, search_path) as cursor:
        return of_columns(cursor, reports, columns)


def columns_at(catalog: int, search_path: str, reports: str) -> frozenset[str]:
    """Return the names of the columns of a table, a view or files, in lowercase, as `records_at` sees them.

    The set is empty if it does not see the table.
    """
    with CONNECTIONS.cursor_at(catalog, search_path) as cursor, suppress(duckdb.Error):
        described = cursor.execute(f"FROM query_table({text_literal(reports)}) LIMIT 0").description or []
        return frozenset(name.lower() for name, *_ in described)
    return frozenset()
