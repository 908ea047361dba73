"""Read relations of DuckDB as record batches, in types that hold all of their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.reading.parquet import BATCH_ROWS
from ldpsql.domains.columns import plain
from ldpsql.engine.interrupting import cursor_like, stopped_with
from ldpsql.quoting import quoted

_COMPARABLE = {"UUID": "VARCHAR", "JSON": "VARCHAR", "UHUGEINT": "HUGEINT"}  # types that no domain has, and the type to compare

_SETTINGS = {
    "arrow_lossless_conversion": True,  # otherwise a UHUGEINT may become -1, and a BIT other bytes
    "produce_arrow_string_view": False,  # a view in a UNION cannot be written
    "arrow_output_list_view": False,
}


def selected(
    con: DuckDBPyConnection,
    wanted: list[str],
    kept: Collection[str],
    relation: Callable[[DuckDBPyConnection], Any],
    snapshot: DuckDBPyConnection | None = None,
) -> pa.RecordBatchReader:
    """Return columns of a relation, read on a cursor of its own, so that the connection is free to write.

    Columns that are ``kept`` come as they are, others in a type that can be compared with the values of a domain. A cursor of
    `snapshot_of` reads tables as they were at its first read.
    """
    cursor = snapshot or cursor_like(con)
    for setting, value in _SETTINGS.items():
        cursor.execute(f"SET SESSION {setting} = {value}")
    rows = relation(cursor)
    types = dict(zip(rows.columns, map(str, rows.types), strict=True))
    columns = (quoted(name) if name in kept else _comparable(name, types[name]) for name in wanted)
    reader = rows.project(", ".join(columns)).to_arrow_reader(BATCH_ROWS)
    schema = pa.schema([_plain_field(field) for field in reader.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        with stopped_with(con, cursor):
            for batch in reader:
                yield pa.RecordBatch.from_arrays([_plain(column) for column in batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def snapshot_of(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Return a cursor like the connection that sees tables as they are at its first read, whatever is written later."""
    cursor = cursor_like(con)
    cursor.execute("BEGIN")
    return cursor


def _comparable(name: str, kind: str) -> str:
    compared = _COMPARABLE.get(kind)
    return f"{quoted(name)}::{compared} AS {quoted(name)}" if compared else quoted(name)


def _plain_field(field: pa.Field) -> pa.Field:
    extension = isinstance(field.type, pa.BaseExtensionType)
    return field.with_type(plain(pa.array([], field.type)).type) if extension else field


def _plain(column: pa.Array) -> pa.Array:
    """Return booleans and HUGEINTs in the types that every reader of Arrow knows, and other columns as they are."""
    return plain(column) if isinstance(column.type, pa.BaseExtensionType) else column
