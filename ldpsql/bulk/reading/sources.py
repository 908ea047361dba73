"""The sources of a run: files, tables of DuckDB, and anything that speaks Arrow's stream interface."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from ldpsql.bulk.reading.files import EXPECTED, format_of, pattern_at, stored
from ldpsql.bulk.reading.parts import Part, Source
from ldpsql.bulk.reading.relations import selected, snapshot_of
from ldpsql.bulk.reading.streams import stream
from ldpsql.domains.arrays import is_pandas_frame, pandas_names
from ldpsql.engine.identity import Identity, digest_of, identity_of, identity_of_statement
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import LdpError, SourceRefused
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal

_UNKNOWN_TO_DUCKDB = {".arrow": "ipc", ".feather": "ipc", ".pq": "parquet"}  # suffixes, and Arrow's names of their formats


def source_of(con: DuckDBPyConnection, source: Any, *, split: bool = False) -> Source:
    """Return the source that a table name, a path, or an Arrow stream stands for.

    Args:
        con: the database with the tables; a cursor of it reads, which sees neither its temporary tables nor its variables.
        source: the name of a table or view; a file, a folder of Parquet files or a pattern with ``*``, by its path or its URL;
            a frame of Arrow, Polars or pandas.
        split: cut files into parts; otherwise the source is one part.

    Raises:
        SourceRefused: if it does not exist or cannot be read. The engine's own message is dropped: it may hold raw values.

    """
    try:
        if not isinstance(source, str | os.PathLike):
            return _streamed(source)
        place = Place.of(source)
        if not isinstance(source, str) or place.is_url or place.is_pattern or format_of(place.path):
            return stored(con, place, split=split)
        try:
            return _table(con, source)
        except duckdb.CatalogException:
            return stored(con, place, split=split)
    except LdpError as error:
        refusal = error
    except Exception:  # noqa: BLE001  # DuckDB, Arrow, the file system: messages may quote what is in the file
        refusal = SourceRefused(
            f"{_called(source)} cannot be read",
            f"is it complete, and of the format that its name says? {EXPECTED}",
        )
    refusal.__context__ = refusal.__cause__ = None
    raise refusal.with_traceback(None)


def _called(source: Any) -> str:
    return f"'{Place.of(source).shown}'" if isinstance(source, str | os.PathLike) else "this frame"


def sql_of(con: DuckDBPyConnection, source: str, columns: Iterable[str] = ()) -> str:
    """Return the name of a table, or a path, as the string that ``query_table`` takes, if it exists and has these columns.

    A file that DuckDB cannot read by itself becomes a view of this connection. A path is quoted: otherwise DuckDB could take
    its suffix for the name of a Python variable of the caller.

    Raises:
        SourceRefused: if it does not exist, or cannot be read.
        UnknownName: if it has no such column.

    """
    opened, place = source_of(con, source), Place.of(source)
    opened.check(columns)
    if opened.files and place.path.suffix in _UNKNOWN_TO_DUCKDB:
        from pyarrow.dataset import dataset  # noqa: PLC0415  # slow to import

        system = place.files_system() if place.is_url else None
        files = opened.files if system is None else [system._strip_protocol(file) for file in opened.files]
        con.register(place.text, dataset(files, format=_UNKNOWN_TO_DUCKDB[place.path.suffix], filesystem=system))
    return text_literal(quoted(pattern_at(place).text) if opened.files else source)


def _streamed(frame: Any) -> Source:
    if isinstance(frame, pa.RecordBatchReader):
        return Source(frame.schema.names, [Part(("stream",), None, lambda *_: frame)], once=True)
    if is_pandas_frame(frame):
        part = Part(("stream",), len(frame), lambda wanted, *_: stream(frame, wanted))
        return Source(pandas_names(frame), [part])
    rows = getattr(frame, "num_rows", getattr(frame, "height", None))
    streamed = Source(stream(frame, ()).schema.names, [Part(("stream",), rows, lambda wanted, *_: stream(frame, wanted))])
    return replace(streamed, whose=partial(_of_relation, frame)) if isinstance(frame, DuckDBPyRelation) else streamed


def _of_relation(relation: DuckDBPyRelation, cursor: DuckDBPyConnection, rows: bool) -> Identity:
    """Return whose rows a relation of DuckDB has; it is not identified if it is of another connection."""
    sql = relation.sql_query()
    found = identity_of_statement(cursor, sql) or Identity("", ())
    return replace(found, rows=digest_of(cursor, sql)) if rows and found.base else found


def _table(con: DuckDBPyConnection, name: str) -> Source:
    with cursor_of(con) as cursor:
        table = cursor.table(name)
        rows = table.aggregate("count(*)").to_arrow_table().column(0)[0].as_py()
        names = table.columns
    return Source(
        names, [_table_part(con, name, rows)], kind="table", whose=lambda at, every: identity_of(at, name, rows=every)
    )


def _table_part(con: DuckDBPyConnection, name: str, rows: int | None, snapshot: DuckDBPyConnection | None = None) -> Part:
    def read(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        return selected(con, wanted, kept, lambda at: at.table(name), snapshot)

    def empty(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        return selected(con, wanted, kept, lambda at: at.table(name).limit(0))

    return Part(("table", name), rows, read, lambda: _table_part(con, name, None, snapshot_of(con)), empty=empty)
