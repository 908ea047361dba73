"""The forms in which reports are written: one file, or a folder of Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.sources import format_of
from ldpsql.errors import DestinationRefused
from ldpsql.sql import quoted, text_literal

_STREAM = "__ldpsql_reports"


@dataclass(frozen=True)
class Form:
    """A format, the suffix of its files, and the columns that become folders; ``folder`` is for many files."""

    kind: str
    suffix: str
    folder: bool
    partition_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, destination: Path, partition_by: tuple[str, ...]) -> Form:
        """Return the form that a destination's suffix stands for; without one it is a folder of Parquet files.

        Raises:
            DestinationRefused: for a suffix that is not known, or a file that is to be partitioned.

        """
        if not destination.suffix:
            return cls("parquet", ".parquet", folder=True, partition_by=partition_by)
        kind = format_of(destination)
        if kind is None:
            raise DestinationRefused("this format cannot be written", "use .parquet, .csv, .csv.gz, .json, .arrow, or a folder")
        if partition_by:
            raise DestinationRefused("one file cannot be partitioned", "name a folder, without a suffix")
        return cls(kind, destination.suffix, folder=False)

    def write(self, con: DuckDBPyConnection, reports: pa.RecordBatchReader, folder: Path, number: int) -> None:
        """Write a stream into a new folder, without suffixes; ``number`` is that of the part."""
        name = f"part-{number:05}"
        if self.kind == "arrow":
            _write_arrow(reports, folder / name)
            return
        options = [f"FORMAT {self.kind}"]
        if self.suffix == ".gz":
            options.append("COMPRESSION gzip")
        if self.partition_by:
            columns = ", ".join(quoted(column) for column in self.partition_by)
            options += [f"PARTITION_BY ({columns})", f"FILENAME_PATTERN '{name}_{{i}}'", "FILE_EXTENSION 'tmp'"]
            options.append("OVERWRITE_OR_IGNORE")  # the folder is there, and empty
        target = text_literal(str(folder if self.partition_by else folder / name))
        _run(con, reports, f"COPY (FROM {_STREAM}) TO {target} ({', '.join(options)})")


def write_table(con: DuckDBPyConnection, reports: pa.RecordBatchReader, verb: str) -> None:
    """Write a stream into a table by ``CREATE TABLE name AS`` or ``INSERT INTO name``."""
    _run(con, reports, f"{verb} FROM {_STREAM}")


def _run(con: DuckDBPyConnection, reports: pa.RecordBatchReader, statement: str) -> None:
    """Run a statement that reads the stream, on a cursor: an open result on ``con`` does not matter."""
    with con.cursor() as cursor:
        cursor.register(_STREAM, reports)
        try:
            cursor.execute(statement)
        finally:
            cursor.unregister(_STREAM)


def _write_arrow(reports: pa.RecordBatchReader, file: Path) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, reports.schema) as writer:
        for batch in reports:
            writer.write_batch(batch)
