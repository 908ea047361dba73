"""Which columns are reports, as the metadata of files and the comments of tables record it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from glob import glob
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection

from ldpsql import settings
from ldpsql.quoting import text_literal
from ldpsql.registry.agreement import of_schema, of_text

if TYPE_CHECKING:
    from ldpsql.sql.lineage import Relation, Report  # loads the parser

# Tables with a comment or a type that records a mechanism: database, schema, table, and their columns with comments and types.
RECORDED = """
    SELECT database_name, schema_name, table_name,
           list({'name': column_name, 'comment': concat_ws(' ', comment, data_type)} ORDER BY column_index)
    FROM duckdb_columns() WHERE database_name <> 'system'
    GROUP BY ALL HAVING bool_or(contains(concat_ws(' ', comment, data_type), 'ldpsql:'))"""


def of_file(name: str) -> Relation | None:
    """Return the columns of Parquet files by their name in SQL; None if there is none, or no column records a mechanism."""
    for file in glob(name, recursive=True)[:1] if name.endswith(".parquet") else []:
        with suppress(OSError, pa.ArrowException):
            schema = pq.read_schema(file)
            columns = [(column, bool(of_schema(schema, column))) for column in schema.names]
            return _relation(name, columns)
    return None


def of_database(con: DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], Relation]]:
    """Yield the tables of a database whose comments record mechanisms, with their columns."""
    return of_rows(con.sql(RECORDED).fetchall())


def of_rows(rows: Iterable[tuple[str, str, str, list[dict[str, str | None]]]]) -> Iterator[tuple[tuple[str, ...], Relation]]:
    """Yield the tables that the rows of `RECORDED` describe, with their columns."""
    for database, schema, table, listed in rows:
        columns = [(str(column["name"]), bool(of_text(column["comment"]))) for column in listed]
        relation = _relation(table, columns)
        if relation is not None:
            yield (database.lower(), schema.lower(), table.lower()), relation


def of_settings() -> Iterator[tuple[tuple[str, ...], Relation]]:
    """Yield the tables and files of reports that the policies of tables name, with their columns."""
    from ldpsql.sql.lineage import Relation, Report  # noqa: PLC0415

    for name, policy in settings.load().tables.items():
        if place := policy.get("reports"):
            reports = {column: Report(column, place, f"ldp.m.{name}_{column}()") for column in policy["columns"]}
            path = (place,) if "/" in place or place.endswith(".parquet") else tuple(place.lower().split("."))
            columns = ((column.lower(), report) for column, report in reports.items())
            yield path, Relation((*columns, *((column.lower(), None) for column in policy.get("keep", []))))


def _relation(place: str, columns: list[tuple[str, bool]]) -> Relation | None:
    """Return columns as a relation, None if none of them are reports."""
    if not any(is_report for _, is_report in columns):
        return None
    from ldpsql.sql.lineage import Relation, Report  # noqa: PLC0415

    def report(column: str) -> Report:
        return Report(column, place, f"ldp.mechanism({text_literal(place)}, {text_literal(column)})")

    return Relation(tuple((name.lower(), report(name) if is_report else None) for name, is_report in columns))
