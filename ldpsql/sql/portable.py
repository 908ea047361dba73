"""What of a database any client of DuckDB can import, and what needs ldpsql: found by creating each object in both.

An export is a folder as of DuckDB's EXPORT DATABASE, with the tables of reports and their records, and without the objects that
a plain client cannot create. Those are in ``ldpsql.sql``.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.errors import DestinationRefused, PrivacyLeakWarning, SourceRefused
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.agreement import KEY, NONE, of_sql_type, of_text
from ldpsql.sql.attach import connect
from ldpsql.sql.drawing import Statement, statements

_SCHEMA, _LOAD, _LDPSQL = "schema.sql", "load.sql", "ldpsql.sql"
_KINDS = ("view", "macro", "table", "sequence", "type", "schema", "index", "trigger")
_IF_USED = ("sequence", "type", "index", "trigger")  # only those that others need: values of an ENUM may come from raw rows
_TABLES = """
    SELECT schema_name, table_name,
           list({'name': column_name, 'comment': comment, 'type': data_type} ORDER BY column_index)
               FILTER (WHERE NOT is_generated)
    FROM duckdb_columns() WHERE database_name = 'source' AND NOT internal
    AND (schema_name, table_name) IN (SELECT (schema_name, table_name) FROM duckdb_tables() WHERE database_name = 'source')
    GROUP BY ALL ORDER BY ALL"""


class Object(NamedTuple):
    """A view, a macro or another object of a database: its kind, its name, and the statement that creates it."""

    kind: str
    name: str
    sql: str

    @property
    def bare(self) -> str:
        """The last part of the name, in lowercase."""
        return self.name.rpartition(".")[2].strip('"').lower()


@dataclass(frozen=True)
class Table:
    """A table: its schema, its name, its columns, and the comments of those that record a mechanism."""

    schema: str
    name: str
    columns: list[str]
    records: dict[str, str]

    @property
    def path(self) -> str:
        """The table as SQL writes it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def shown(self) -> str:
        """The table as a user names it."""
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"

    @property
    def comments(self) -> str:
        """The statements that write the records."""
        columns = ((f"{self.path}.{quoted(column)}", text) for column, text in self.records.items())
        return "".join(f"COMMENT ON COLUMN {column} IS {text_literal(text)};\n" for column, text in columns)


@dataclass
class Portability:
    """The objects that a plain client can create, those that need ldpsql, and those that neither of them can create."""

    plain: list[Object] = field(default_factory=list)
    needing: list[Object] = field(default_factory=list)
    broken: list[Object] = field(default_factory=list)
    left: list[Table] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def portability(database: str) -> Portability:
    """Return which objects of a database file need ldpsql; its data are not read.

    Raises:
        SourceRefused: if the file cannot be opened.

    """
    with _attached(database) as con:
        return _sorted(con, _tables(con))


def export(database: str, folder: Path, others: Collection[str] = ()) -> Portability:
    """Export the tables of reports of a database file, and what only reads them, for any client of DuckDB.

    Args:
        database: the file.
        folder: the folder to make; it appears whole or not at all.
        others: tables to export although no column of them records a mechanism.

    Raises:
        SourceRefused: if the file cannot be opened, or has no table of reports, or none of a name in ``others``.
        DestinationRefused: if the folder exists.

    """
    if folder.exists():
        raise DestinationRefused("the folder of an export must not exist", "name another one, or remove it first")
    with _attached(database) as con:
        listed, named = _tables(con), {name.lower() for name in others}
        if missing := named - {table.shown.lower() for table in listed}:
            raise SourceRefused(f"the database has no table {sorted(missing)[0]}", "write a schema as in lake.reports")
        chosen = [table for table in listed if table.records or table.shown.lower() in named]
        if not chosen:
            raise SourceRefused(
                "no table records the mechanism of a column",
                "name tables with --table; ldpsql.perturb_table records mechanisms",
            )
        result = _sorted(con, chosen)
        result.left = [table for table in listed if table not in chosen]
        with TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name}.") as staging:
            _write(con, result, made := Path(staging) / "export")
            os.replace(made, folder)
    return result


@contextmanager
def _attached(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a connection without ldpsql, with the file as the database ``source``."""
    with duckdb.connect() as con:
        try:
            con.execute(f"ATTACH {text_literal(database)} AS source (READ_ONLY)")
        except duckdb.Error:
            raise SourceRefused("the database cannot be opened", "close other connections to it") from None
        yield con


def _tables(con: DuckDBPyConnection) -> list[Table]:
    return [
        Table(schema, name, [c["name"] for c in columns], {c["name"]: text for c in columns if of_text(text := _record(c))})
        for schema, name, columns in con.sql(_TABLES).fetchall()
    ]


def _record(column: dict[str, str | None]) -> str:
    """Return the comment of a column if it records a mechanism, or else the fingerprints in its type."""
    comment = column["comment"] or ""
    return comment if of_text(comment) else "\n".join(sorted(of_sql_type(column["type"] or "").get("", NONE)))


def _sorted(con: DuckDBPyConnection, tables: list[Table]) -> Portability:
    """Create the objects of the source in a database without ldpsql, the others in one with ldpsql; only these tables exist."""
    con.execute("ATTACH ':memory:' AS copied")
    con.execute("COPY FROM DATABASE source TO copied (SCHEMA)")
    kept = {(table.schema, table.name) for table in tables}
    for table in _tables(con):
        if (table.schema, table.name) not in kept:
            con.execute(f"DROP TABLE copied.{table.path} CASCADE")
    with TemporaryDirectory() as folder:
        con.execute(f"EXPORT DATABASE copied TO {text_literal(folder)} (FORMAT parquet)")
        text, loaded = ((Path(folder) / name).read_text(encoding="utf-8") for name in (_SCHEMA, _LOAD))
    order = [_object(statement.query.strip()).bare for statement in con.extract_statements(loaded)]  # after what they refer to
    tables = sorted(tables, key=lambda table: order.index(table.name.lower()))
    objects = [_object(statement.query.strip()) for statement in con.extract_statements(text)]
    with duckdb.connect() as plain:
        alone, _ = _created(plain, [one for one in objects if one.kind not in _IF_USED])
    with duckdb.connect() as plain:
        created, rest = _created(plain, objects)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        with connect() as attached:
            _created(attached, created)
            for table in tables:
                attached.execute(table.comments or "SELECT 1")
            needing, broken = _created(attached, rest)
    dependent = [one for one in created if one.kind not in _IF_USED and one not in alone]
    used = {token.name for one in dependent for token in _statement(one.sql).tokens}
    return Portability([one for one in created if one.kind not in _IF_USED or one.bare in used], needing, broken, tables=tables)


def _object(sql: str) -> Object:
    """Return kind and name of what a statement of an export creates or loads."""
    words = [token.text for token in _statement(sql).tokens]
    kind = next((i for i, word in enumerate(words) if word.lower() in _KINDS), 0) if words[0].lower() == "create" else 0
    name = [words[kind + 1]]
    for dot, part in zip(words[kind + 2 :: 2], words[kind + 3 :: 2], strict=False):
        if dot != ".":
            break
        name.append(part)
    return Object(words[kind].lower(), ".".join(name), sql)


def _statement(sql: str) -> Statement:
    (statement,) = statements(sql)
    return statement


def _created(con: DuckDBPyConnection, objects: list[Object]) -> tuple[list[Object], list[Object]]:
    """Create objects, each after those that it uses; return those that could be created, in this order, and the others."""
    created: list[Object] = []
    waiting = objects
    while waiting:
        before, again = len(created), []
        for one in waiting:
            try:
                con.execute(one.sql)
                created.append(one)
            except duckdb.Error:
                again.append(one)
        waiting = again
        if len(created) == before:
            break
    return created, waiting


def _write(con: DuckDBPyConnection, result: Portability, folder: Path) -> None:
    """Write the folder: the statements, a Parquet file for each table, and the records in both."""
    folder.mkdir()
    loading = []
    for number, table in enumerate(result.tables):
        stem = "".join(letter if letter.isalnum() else "_" for letter in table.shown)
        name = f"{stem}.parquet" if not (folder / f"{stem}.parquet").exists() else f"{stem}_{number}.parquet"
        recorded = ", ".join(f"{text_literal(KEY + column)}: {text_literal(text)}" for column, text in table.records.items())
        metadata = f", KV_METADATA {{{recorded}}}" if recorded else ""
        columns = ", ".join(map(quoted, table.columns))
        rows = f"SELECT {columns} FROM source.{table.path}"  # noqa: S608  # quoted
        con.execute(f"COPY ({rows}) TO {text_literal(str(folder / name))} (FORMAT parquet{metadata})")
        loading.append(f"COPY {table.path} FROM {text_literal(name)} (FORMAT parquet);\n")
    texts = {_SCHEMA: _text(result.plain) + "".join(table.comments for table in result.tables), _LDPSQL: _text(result.needing)}
    for name, text in {**texts, _LOAD: "".join(loading)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copymode(folder.parent.parent, folder)


def _text(objects: list[Object]) -> str:
    return "".join(f"{one.sql.rstrip(';')};\n" for one in objects)
