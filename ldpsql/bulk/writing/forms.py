"""The forms in which reports are written: one file, or a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import copy_options
from ldpsql.bulk.reading.files import format_of
from ldpsql.bulk.reading.parts import FileFormat
from ldpsql.engine.interrupting import cursor_of, stopped_with, until_stopped
from ldpsql.errors import DestinationRefused
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
        options = [f"FORMAT {self.kind}", *(copy_options(reports.schema) if self.kind == "parquet" else ())]
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
