"""The sinks of a run: files of reports in each format, and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.sources import FileFormat, format_of
from ldpsql.domains.arrays import shown_class
from ldpsql.engine.identity import split, table_of
from ldpsql.engine.interrupting import cursor_of, stopped_with, until_stopped
from ldpsql.errors import DestinationRefused, InvalidParameter
from ldpsql.quoting import quoted, text_literal

_STREAM = "__ldpsql_reports"

# Settings of a connection that apply to the files it writes. Once the last one is off, the ones before it cannot change.
_SHARED = ("threads", "memory_limit", "allowed_directories", "allowed_paths", "enable_external_access")
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # of text; Parquet has its own


@dataclass(frozen=True)
class Form:
    """A format, the suffix of its files, and the columns that become folders; ``folder`` means many files, ``tabs`` TSV."""

    kind: FileFormat
    suffix: str
    folder: bool
    partition_by: tuple[str, ...] = ()
    tabs: bool = False

    @classmethod
    def of(cls, destination: PurePath, partition_by: tuple[str, ...]) -> Form:
        """Return the form that a destination's suffix stands for; without a suffix it is a folder of Parquet files.

        Raises:
            DestinationRefused: if the suffix is unknown, or one file is to be partitioned.

        """
        if not destination.suffix:
            return cls("parquet", ".parquet", folder=True, partition_by=partition_by)
        kind = format_of(destination)
        if kind is None or (destination.suffix in _COMPRESSIONS and kind not in ("csv", "json")):
            raise DestinationRefused("this format cannot be written", "use .parquet, .csv, .csv.gz, .json, .arrow, or a folder")
        if partition_by:
            raise DestinationRefused("one file cannot be partitioned", "name a folder, without a suffix")
        return cls(kind, destination.suffix, folder=False, tabs=".tsv" in destination.suffixes)

    def write(self, con: DuckDBPyConnection, reports: pa.RecordBatchReader, folder: Path, name: str) -> None:
        """Write a stream into a new folder, as a file or files of this name without suffixes."""
        if self.kind == "arrow":
            _write_arrow(con, reports, folder / name)
            return
        options = [f"FORMAT {self.kind}", *(_metadata_options(reports.schema) if self.kind == "parquet" else ())]
        if self.suffix in _COMPRESSIONS:
            options.append(f"COMPRESSION {_COMPRESSIONS[self.suffix]}")
        if self.tabs:
            options.append("DELIMITER '\t'")
        if self.partition_by:
            columns = ", ".join(quoted(column) for column in self.partition_by)
            options += [f"PARTITION_BY ({columns})", f"FILENAME_PATTERN '{name}_{{i}}'", "FILE_EXTENSION 'tmp'"]
            options.append("OVERWRITE_OR_IGNORE")  # the folder exists and is empty
        target = text_literal(str(folder if self.partition_by else folder / name))
        with _writer(con) as writer, stopped_with(con, writer):
            _run(writer, reports, f"COPY (FROM {_STREAM}) TO {target} ({', '.join(options)})")


def file_name(number: int) -> str:
    """Return the name of the file of a part, without a suffix."""
    return f"part-{number:05}"


def _metadata_options(schema: pa.Schema) -> list[str]:
    """Return the options of a COPY that put the metadata of a schema into Parquet files."""
    pairs = [f"{text_literal(key.decode())}: {text_literal(text.decode())}" for key, text in (schema.metadata or {}).items()]
    return [f"KV_METADATA {{{', '.join(pairs)}}}"] if pairs else []


def write_table(
    con: DuckDBPyConnection, reports: pa.RecordBatchReader, verb: str, then: Callable[[DuckDBPyConnection], None]
) -> None:
    """Write a stream into a table by ``CREATE TABLE name AS`` or ``INSERT INTO name``, and call ``then`` in its transaction."""
    with cursor_of(con) as cursor:  # so that a result may be open on ``con``
        cursor.execute("BEGIN")
        try:
            _run(cursor, reports, f"{verb} FROM {_STREAM}")
            then(cursor)
            cursor.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):  # a failed statement may have ended the transaction
                cursor.execute("ROLLBACK")
            raise


def _run(con: DuckDBPyConnection, reports: pa.RecordBatchReader, statement: str) -> None:
    """Run a statement that reads the stream."""
    con.register(_STREAM, reports)
    try:
        con.execute(statement)
    finally:
        con.unregister(_STREAM)


def _writer(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Open a database in memory to write files from, with the threads, the memory and the permissions of a connection.

    The threads that make the rows also write the files. DuckDB 2.0 has threads of its own for writing, but they and a COPY that
    ends early (Ctrl-C, a refused value, a full disk) sometimes wait for each other for ever.
    """
    with con.cursor() as cursor:
        query = f"SELECT {', '.join(f'current_setting({text_literal(name)})' for name in _SHARED)}"
        (values,) = cursor.execute(query).fetchall()
    writer = duckdb.connect(config={"async_threads": 0})
    for name, value in zip(_SHARED, values, strict=True):
        unlimited = name == "memory_limit" and value.endswith("PiB")  # DuckDB prints that unit but cannot read it
        open_to_all = name == "enable_external_access" and value  # the default, which DuckDB refuses to set later
        if not (unlimited or open_to_all):
            writer.execute(f"SET {name} = ?", [value])
    return writer


def _write_arrow(con: DuckDBPyConnection, reports: pa.RecordBatchReader, file: Path) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, reports.schema) as writer:
        for batch in until_stopped(con, reports):
            writer.write_batch(batch)


_REMARK = "ldpsql release "


def table_name(into: str) -> str:
    """Return a name such as ``schema.name`` or ``schema."my name"`` as SQL writes it, with each part quoted."""
    return ".".join(quoted(part) for part in split(into))


def is_there(con: DuckDBPyConnection, name: str) -> bool:
    """Whether a table or a view of this name, as SQL writes it, exists."""
    try:
        with cursor_of(con) as cursor:
            cursor.table(name)
    except duckdb.CatalogException:
        return False
    return True


_NUMBER = """SELECT table_oid FROM duckdb_tables()
             WHERE (lower(database_name), lower(schema_name), lower(table_name)) = ($1, $2, $3)"""


def identity(con: DuckDBPyConnection, into: str) -> tuple[int, ...] | None:
    """Return the number of a table in its database and its number of rows, as last committed; None if it does not exist."""
    name = table_name(into)
    if not is_there(con, name):
        return None
    with cursor_of(con) as cursor:
        ((rows,),) = cursor.execute(f"SELECT count(*) FROM {name}").fetchall()  # noqa: S608  # quoted
        path = table_of(cursor, name) or ()
        number = cursor.execute(_NUMBER, path).fetchone() if path else None
        return (*(number or ()), rows)


def check_writable(con: DuckDBPyConnection, verb: str, columns: Iterable[str]) -> None:
    """Check that ``CREATE TABLE name AS`` or ``INSERT INTO name BY NAME`` can write these columns, by writing zero rows.

    Raises:
        DestinationRefused: if the database is read-only, or the schema or a column does not exist.

    """
    none = ", ".join(f"NULL AS {quoted(column)}" for column in columns)
    with cursor_of(con) as cursor:
        cursor.execute("BEGIN")
        try:
            cursor.execute(f"{verb} SELECT {none} WHERE false")
        except duckdb.Error:
            refused = True
        else:
            refused = False
        cursor.execute("ROLLBACK")
    if refused:
        raise DestinationRefused(
            "the reports cannot be written into this table",
            "is the database open for writing, does the schema exist, and does an existing table have these columns?",
        )


def write_token(cursor: DuckDBPyConnection, name: str, token: str) -> None:
    """Add the tokens of releases to the comment of a table, in the transaction that writes the table.

    The comment stays with a table that is renamed. Databases of other systems keep no comments and get none.
    """
    path = table_of(cursor, name) if token else None
    query = """
        SELECT t.comment FROM duckdb_tables() t JOIN duckdb_databases() d USING (database_name) WHERE d.type = 'duckdb'
        AND lower(t.database_name) = $1 AND lower(t.schema_name) = $2 AND lower(t.table_name) = $3"""
    for (comment,) in cursor.execute(query, path).fetchall() if path else ():
        lines = [*([comment] if comment else []), *(f"{_REMARK}{one}" for one in token.split())]
        text = "\n".join(lines)
        cursor.execute(f"COMMENT ON TABLE {name} IS {text_literal(text)}")


def written_tokens(con: DuckDBPyConnection, name: str | None = None) -> set[str]:
    """Return the tokens of the releases that are in the tables of the connection, or in one, even if a table was renamed."""
    query = "SELECT comment FROM duckdb_tables() WHERE contains(comment, $1)"
    with cursor_of(con) as cursor:
        path = () if name is None else table_of(cursor, name) or ("", "", "")
        of_one = " AND (lower(database_name), lower(schema_name), lower(table_name)) = ($2, $3, $4)" if path else ""
        rows = cursor.execute(query + of_one, [_REMARK, *path]).fetchall()
    return {token for (comment,) in rows for token in re.findall(f"{_REMARK}([0-9a-f]{{32}})", comment)}


def read_from(con: DuckDBPyConnection, name: str) -> set[str]:
    """Return the tables that a table or a view reads, by their names in DuckDB's plan."""
    with cursor_of(con) as cursor:
        ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) FROM query_table({text_literal(name)})").fetchall()
    return set(re.findall(r'"Table": (".*")', plan))


def database_of(con: DuckDBPyConnection) -> str:
    """Return the file of the current database, an empty string for one in memory."""
    with cursor_of(con) as cursor:
        rows = cursor.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    return rows[0][0] or ""


def scratch_folder(con: DuckDBPyConnection) -> Path | None:
    """Return a folder for temporary files: DuckDB's own, or that of the database; None for the system's default."""
    with cursor_of(con) as cursor:
        ((temporary,),) = cursor.execute("SELECT current_setting('temp_directory')").fetchall()
    database = database_of(con)
    folders = [Path(temporary or ""), Path(database).parent] if database else [Path(temporary or "")]
    return next((folder for folder in folders if folder != Path() and folder.is_dir() and os.access(folder, os.W_OK)), None)


def destination_of(argument: object) -> str:
    """Return the path of a file, or the name of a table, to which a run writes.

    Raises:
        InvalidParameter: if the argument is neither, such as a source or the mechanisms.

    """
    if not isinstance(argument, str | os.PathLike):
        raise InvalidParameter(
            f"the destination must be a path or the name of a table, not {shown_class(argument)}",
            "the order of the arguments is source, destination, columns",
        )
    return os.fspath(argument)
