"""The sinks of a run: files of reports in each format, and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection

from ldpsql.bulk.columns import Projection
from ldpsql.bulk.engines import REMARK, tokens_in
from ldpsql.bulk.sources import BATCH_ROWS
from ldpsql.bulk.staging import already_exists
from ldpsql.domains.columns import family, shown_class
from ldpsql.engine.connections import cursor_of, stopped_with, transaction, until_stopped
from ldpsql.engine.files import FileFormat, format_of
from ldpsql.engine.identity import split, table_of
from ldpsql.errors import DestinationRefused, InvalidParameter
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal
from ldpsql.reports import type_of

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
        """Return the form that a destination's suffix stands for; without a suffix it is a folder of Parquet files."""
        if destination.name == "-":  # a run that fails has no reports, and what is written there cannot be taken back
            raise DestinationRefused("reports cannot be written to standard output", "name a file: reports.csv")
        if not destination.suffix:
            return cls("parquet", ".parquet", folder=True, partition_by=partition_by)
        kind = format_of(destination)
        if kind is None or (destination.suffix in _COMPRESSIONS and kind not in ("csv", "json")):
            raise DestinationRefused("this format cannot be written", "use .parquet, .csv, .csv.gz, .json, .arrow, or a folder")
        if partition_by:
            raise DestinationRefused("one file cannot be partitioned", "name a folder, without a suffix")
        return cls(kind, destination.suffix, folder=False, tabs=".tsv" in destination.suffixes)

    def check(self, target: Place, projection: Projection, sources: Iterable[str]) -> None:
        """Check that reports can go to a path or a URL in this form."""
        if target.scheme in ("http", "https"):
            raise DestinationRefused("addresses on the web can only be read", "write to a file, or to a store such as s3://")
        if target.is_url and self.folder:
            raise DestinationRefused(
                "the files of a folder do not appear at a URL at once, so a run that is killed would publish some of them",
                "name one file, such as s3://bucket/reports.parquet, or write a folder on this machine and copy it",
            )
        if set(self.partition_by) - set(projection.columns):
            raise InvalidParameter(
                "the reports can only be partitioned by columns that are written",
                "keep the column too: --keep, in Python keep=[...]",
            )
        if not set(projection.columns) - set(self.partition_by):
            hint = "partition by fewer columns"
            raise InvalidParameter("no column is left to be written into the files of a partition", hint)
        nested = any(pa.types.is_nested(type_of(mechanism.reports)) for mechanism in projection.mechanisms.values())
        if nested and self.kind in ("csv", "json"):
            hint = "write .parquet or .arrow"
            raise DestinationRefused("reports that are lists or structs cannot be read back from text", hint)
        files, itself = [_resolved(Place(name)) for name in sources], _resolved(target)
        if any(itself in (file, *file.parents) for file in files):
            raise DestinationRefused("the destination is the source itself, or holds it", "write the reports somewhere else")

    def write(self, con: DuckDBPyConnection, reports: pa.RecordBatchReader, folder: Path, name: str) -> None:
        """Write a stream into a new folder, as a file or files of this name without suffixes."""
        if self.kind == "arrow":
            with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_file(sink, reports.schema) as arrow:
                for batch in until_stopped(con, reports):
                    arrow.write_batch(batch)
            return
        if self._by_arrow(con, reports.schema):
            _write_parquet(folder / name, reports.schema, until_stopped(con, reports))
            return
        options = [f"FORMAT {self.kind}"]
        if self.kind == "parquet" and reports.schema.metadata:
            texts = {text_literal(key.decode()): text_literal(text.decode()) for key, text in reports.schema.metadata.items()}
            options.append(f"KV_METADATA {{{', '.join(f'{key}: {text}' for key, text in texts.items())}}}")
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

    def _by_arrow(self, con: DuckDBPyConnection, schema: pa.Schema) -> bool:
        """Whether Arrow writes Parquet: listed text, for which DuckDB takes three times as long, next to plain columns.

        DuckDB writes for a connection that may not write everywhere, as it knows where.
        """
        listed = [pa.types.is_dictionary(kind) for kind in schema.types]
        kinds = [kind.value_type if text else kind for kind, text in zip(schema.types, listed, strict=True)]
        if self.kind != "parquet" or self.partition_by or not any(listed) or not all(map(family, kinds)):
            return False
        with con.cursor() as cursor:
            ((open_to_all,),) = cursor.execute("SELECT current_setting('enable_external_access')").fetchall()
        return bool(open_to_all)


def _write_parquet(file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a Parquet file with row groups of at least `BATCH_ROWS`."""
    with pq.ParquetWriter(file, schema, store_schema=False, write_batch_size=BATCH_ROWS) as writer:  # else 1,024 rows at a time
        writer.add_key_value_metadata(schema.metadata or {})
        waiting, rows = list[pa.RecordBatch](), 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= BATCH_ROWS:
                writer.write_table(pa.Table.from_batches(waiting), 2 * BATCH_ROWS)
                waiting, rows = [], 0
        writer.write_table(pa.Table.from_batches(waiting, schema), 2 * BATCH_ROWS)


def _resolved(place: Place) -> PurePath:
    return place.path if place.is_url else Path(place.text).resolve()


def file_name(number: int) -> str:
    """Return the name of the file of a part, without a suffix."""
    return f"part-{number:05}"


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


class TableSink:
    """The table of a run: its name as SQL writes it, and whether it is ``there`` and to be replaced or appended to."""

    encoded = True  # text may come as a dictionary and positions in it

    def __init__(self, con: DuckDBPyConnection, into: str, *, replace: bool, append: bool) -> None:
        self._con, self._into, self.name, self.replace, self.append = con, into, table_name(into), replace, append
        self.there, self.place = is_there(con, self.name), f"{database_of(con)} {into}"
        there = append and self.there
        self._verb = f"INSERT INTO {self.name} BY NAME" if there else f"CREATE {'OR REPLACE ' * replace}TABLE {self.name} AS"

    def check(self, source: str, columns: Iterable[str]) -> None:
        """Check that the table can be written, by writing zero rows.

        Raises:
            DestinationExists: if the table is there, and neither to be replaced nor appended to.
            DestinationRefused: if the source reads it, the database is read-only, or the schema or a column does not exist.

        """
        if self.there and not (self.replace or self.append):
            raise already_exists(self._into)
        here = self.there and source and not Place.of(source).is_url
        if here and read_from(self._con, source) & read_from(self._con, self.name):
            raise DestinationRefused("the destination is the source itself", "write the reports into another table")
        none = ", ".join(f"NULL AS {quoted(column)}" for column in columns)
        with cursor_of(self._con) as cursor:
            cursor.execute("BEGIN")
            try:
                cursor.execute(f"{self._verb} SELECT {none} WHERE false")
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

    def write(self, reports: pa.RecordBatchReader, then: Callable[[DuckDBPyConnection], None]) -> None:
        """Write a stream into the table, and call ``then`` in its transaction before this is committed."""
        with cursor_of(self._con) as cursor, transaction(cursor):  # a cursor, as a result may be open on the connection
            _run(cursor, reports, f"{self._verb} FROM {_STREAM}")
            then(cursor)

    def tokens(self) -> set[str]:
        """Return the tokens of the releases that are in tables of the connection."""
        return written_tokens(self._con)


def write_token(cursor: DuckDBPyConnection, name: str, token: str) -> None:
    """Add the tokens of releases to the comment of a table, in the transaction that writes the table.

    The comment stays with a table that is renamed. Databases of other systems keep no comments and get none.
    """
    path = table_of(cursor, name) if token else None
    query = """
        SELECT t.comment FROM duckdb_tables() t JOIN duckdb_databases() d USING (database_name) WHERE d.type = 'duckdb'
        AND lower(t.database_name) = $1 AND lower(t.schema_name) = $2 AND lower(t.table_name) = $3"""
    for (comment,) in cursor.execute(query, path).fetchall() if path else ():
        lines = [*([comment] if comment else []), *(f"{REMARK}{one}" for one in token.split())]
        text = "\n".join(lines)
        cursor.execute(f"COMMENT ON TABLE {name} IS {text_literal(text)}")


def written_tokens(con: DuckDBPyConnection, name: str | None = None) -> set[str]:
    """Return the tokens of the releases that are in the tables of the connection, or in one, even if a table was renamed."""
    query = "SELECT comment FROM duckdb_tables() WHERE contains(comment, $1)"
    with cursor_of(con) as cursor:
        path = () if name is None else table_of(cursor, name) or ("", "", "")
        of_one = " AND (lower(database_name), lower(schema_name), lower(table_name)) = ($2, $3, $4)" if path else ""
        rows = cursor.execute(query + of_one, [REMARK, *path]).fetchall()
    return tokens_in(comment for (comment,) in rows)


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
    """Return the path of a file, or the name of a table, to which a run writes."""
    if not isinstance(argument, str | os.PathLike):
        raise InvalidParameter(
            f"the destination must be a path or the name of a table, not {shown_class(argument)}",
            "the order of the arguments is source, destination, columns",
        )
    return os.fspath(argument)
