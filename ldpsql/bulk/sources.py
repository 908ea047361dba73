"""The sources of a run, in parts: files, tables of DuckDB, and anything that speaks Arrow's stream interface.

A part is read, perturbed and published as one: a file, or some row groups of a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.batches import check_columns, stream
from ldpsql.bulk.parquet import plain_batches, rows_of
from ldpsql.bulk.relations import selected, snapshot_of
from ldpsql.bulk.unchanged import unchanged
from ldpsql.domains.arrays import is_pandas_frame, pandas_names
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import LdpError, SourceRefused
from ldpsql.quoting import quoted, text_literal

PART_ROWS = 8_000_000  # per part of a file that is cut at its row groups
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".arrow": "arrow", ".feather": "arrow"
}  # fmt: skip
_UNKNOWN_TO_DUCKDB = {".arrow": "ipc", ".feather": "ipc", ".pq": "parquet"}  # suffixes, and Arrow's names of their formats
_EXPECTED = "give a Parquet, CSV, JSON or Arrow file, a folder, a pattern with *, or a table (--database)"


@dataclass(frozen=True)
class Part:
    """One part of a source: its identity, its number of rows (None if unknown), and how it is read.

    ``read`` takes three lists of columns: all that are wanted; those of which only the domain's positions matter, which may
    come encoded by a dictionary; and those that are kept, which come in types that hold all of their values.
    A stream of files that changed meanwhile ends in `SourceRefused`. ``snapshot``, if possible, returns the part as it is now,
    whatever is written later.
    """

    identity: tuple[Any, ...]
    rows: int | None
    read: Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader]
    snapshot: Callable[[], Part] | None = None
    files: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a message calls it: its file, without folders, whose names may hold values; else the source."""
        return f"the file '{Path(self.files[0]).name}'" if len(self.files) == 1 else "the source"


@dataclass(frozen=True)
class Source:
    """The names of the columns, the parts, the files and their format; a stream can be read only ``once``.

    ``users`` holds the user ids that were read from the source, until they are charged.
    """

    names: list[str]
    parts: list[Part]
    once: bool = False
    files: tuple[str, ...] = ()
    kind: str = ""
    users: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> int | None:
        """The number of rows, None if it is not known beforehand."""
        sizes = [part.rows for part in self.parts]
        return None if None in sizes else sum(rows or 0 for rows in sizes)

    def check(self, columns: Iterable[str]) -> None:
        """Check that each column exists exactly once.

        Raises:
            UnknownName, SourceRefused: if a column is missing, or occurs twice.

        """
        check_columns(columns, self.names, hint_names=self.kind not in ("csv", "json"))

    def check_folders(self, columns: Iterable[str]) -> None:
        """Check that no column is the name of folders ``column=value/``, since all files of one value are read in a row.

        Raises:
            SourceRefused: if a column is.

        """
        folders = {name.split("=")[0] for file in self.files for name in Path(file).parent.parts if "=" in name}
        if self.kind != "arrow" and (named := sorted(folders & set(columns))):
            raise SourceRefused(
                f"the column '{named[0]}' is the name of the source's folders, which are named after its values",
                "read them into a table first: CREATE TABLE people AS FROM 'folder/**/*.parquet'",
            )


def source_of(con: DuckDBPyConnection, source: Any, *, split: bool = False) -> Source:
    """Return the source that a table name, a path, or an Arrow stream stands for.

    Args:
        con: the database with the tables; a cursor of it reads, which sees neither its temporary tables nor its variables.
        source: the name of a table or view; a file, a folder of Parquet files or a pattern with ``*``; a frame of Arrow, Polars
            or pandas.
        split: cut files into parts; otherwise the source is one part.

    Raises:
        SourceRefused: if it does not exist or cannot be read. The engine's own message is dropped: it may hold raw values.

    """
    try:
        if not isinstance(source, str | os.PathLike):
            return _streamed(source)
        path = Path(source)
        if isinstance(source, os.PathLike) or format_of(path) or has_magic(source):
            return _stored(con, path, split=split)
        try:
            return _table(con, source)
        except duckdb.CatalogException:
            return _stored(con, path, split=split)
    except LdpError as error:
        refusal = error
    except Exception:  # noqa: BLE001  # DuckDB, Arrow, the file system: messages may quote what is in the file
        refusal = SourceRefused(
            f"'{source}' cannot be read" if isinstance(source, str | os.PathLike) else "this frame cannot be read",
            f"is it complete, and of the format that its name says? {_EXPECTED}",
        )
    refusal.__context__ = refusal.__cause__ = None
    raise refusal.with_traceback(None)


def sql_of(con: DuckDBPyConnection, source: str, columns: Iterable[str] = ()) -> str:
    """Return the name of a table, or a path, as the string that ``query_table`` takes, if it exists and has these columns.

    A file that DuckDB cannot read by itself becomes a view of this connection. A path is quoted: otherwise DuckDB could take
    its suffix for the name of a Python variable of the caller.

    Raises:
        SourceRefused: if it does not exist, or cannot be read.
        UnknownName: if it has no such column.

    """
    if "://" in source:  # on the network: only DuckDB opens it
        return text_literal(quoted(source))
    opened, path = source_of(con, source), Path(source)
    opened.check(columns)
    if opened.files and path.suffix in _UNKNOWN_TO_DUCKDB:
        from pyarrow.dataset import dataset  # noqa: PLC0415  # slow to import

        con.register(source, dataset(opened.files, format=_UNKNOWN_TO_DUCKDB[path.suffix]))
    if not opened.files:
        return text_literal(source)
    return text_literal(quoted(str(path / "**" / "*.parquet") if path.is_dir() else source))


def format_of(path: Path) -> str | None:
    """Return the format of a file by its suffix, None if the suffix is unknown."""
    return _FORMATS.get(next((s for s in reversed(path.suffixes) if s not in (".gz", ".zst")), ""))


def _streamed(frame: Any) -> Source:
    if isinstance(frame, pa.RecordBatchReader):
        return Source(frame.schema.names, [Part(("stream",), None, lambda *_: frame)], once=True)
    if is_pandas_frame(frame):
        part = Part(("stream",), len(frame), lambda wanted, *_: stream(frame, wanted))
        return Source(pandas_names(frame), [part])
    rows = getattr(frame, "num_rows", getattr(frame, "height", None))
    return Source(stream(frame, ()).schema.names, [Part(("stream",), rows, lambda wanted, *_: stream(frame, wanted))])


def _table(con: DuckDBPyConnection, name: str) -> Source:
    with cursor_of(con) as cursor:
        table = cursor.table(name)
        rows = table.aggregate("count(*)").to_arrow_table().column(0)[0].as_py()
        names = table.columns
    return Source(names, [_table_part(con, name, rows)], kind="table")


def _table_part(con: DuckDBPyConnection, name: str, rows: int | None, snapshot: DuckDBPyConnection | None = None) -> Part:
    def read(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        return selected(con, wanted, kept, lambda at: at.table(name), snapshot)

    return Part(("table", name), rows, read, lambda: _table_part(con, name, None, snapshot_of(con)))


def _stored(con: DuckDBPyConnection, path: Path, *, split: bool) -> Source:
    kind, files = _files(path)
    if not split:
        return replace(_joined(con, kind, files), files=tuple(files), kind=kind)
    parts = [part for file in files for part in _parts_of(con, kind, file)]
    return Source(_joined(con, kind, files[:1]).names, parts, files=tuple(files), kind=kind)


def _files(path: Path) -> tuple[str, list[str]]:
    """Return the format and the sorted files; a folder stands for the Parquet files below it."""
    pattern = str(path / "**" / "*.parquet") if path.is_dir() else str(path)
    files = [pattern] if path.is_file() else sorted(glob(pattern, recursive=True))
    if not files:
        raise SourceRefused(f"there is no table or file named '{path}'", _EXPECTED)
    kind = format_of(Path(files[0]))
    for file in files:
        if format_of(Path(file)) != kind or kind is None:
            raise SourceRefused(
                f"files must be Parquet, CSV, JSON or Arrow, all of one kind, and '{Path(file).name}' is not",
                "named .parquet, .csv, .json or .arrow",
            )
    return str(kind), [os.path.abspath(file) for file in files]


_READERS = {
    "parquet": "FROM read_parquet($1, hive_partitioning := true)",
    "csv": "FROM read_csv($1)",
    "json": "FROM read_json($1)",
}
_ROWS = """SELECT * EXCLUDE (file_row_number) FROM read_parquet($1, hive_partitioning := true, file_row_number := true)
           WHERE file_row_number >= $2 AND file_row_number < $3"""  # whole row groups, which DuckDB finds by row numbers


def _joined(con: DuckDBPyConnection, kind: str, files: list[str]) -> Source:
    """Return files as one part."""
    if kind == "arrow":
        return _arrow(files)
    with cursor_of(con) as cursor:
        names = cursor.sql(_READERS[kind], params=[files]).columns

    def read(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        direct = plain_batches(files, wanted, encoded) if kind == "parquet" else None
        return direct or selected(con, wanted, kept, lambda at: at.sql(_READERS[kind], params=[files]))

    rows = sum(sum(rows_of(file)) for file in files) if kind == "parquet" else None
    return Source(names, [Part(("files", *map(_stamp, files)), rows, unchanged(files, read), files=tuple(files))])


def _parts_of(con: DuckDBPyConnection, kind: str, file: str) -> list[Part]:
    """Return the parts of one file: ranges of row groups if it is Parquet, otherwise all of it."""
    if kind != "parquet":
        return _joined(con, kind, [file]).parts
    sizes, parts, first = rows_of(file), [], 0
    for last in range(1, len(sizes) + 1):
        if sum(sizes[first:last]) >= PART_ROWS or last == len(sizes):
            parts.append(_row_groups(con, file, sizes, range(first, last)))
            first = last
    return parts or _joined(con, kind, [file]).parts


def _row_groups(con: DuckDBPyConnection, file: str, sizes: list[int], groups: range) -> Part:
    before, rows = sum(sizes[: groups.start]), sum(sizes[groups.start : groups.stop])

    def read(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        query = partial(DuckDBPyConnection.sql, query=_ROWS, params=[[file], before, before + rows])
        return plain_batches([file], wanted, encoded, groups) or selected(con, wanted, kept, query)

    return Part(("row groups", _stamp(file), groups.start, groups.stop), rows, unchanged([file], read), files=(file,))


def _arrow(files: list[str]) -> Source:
    if len(files) > 1:
        raise SourceRefused("only one Arrow file can be read at a time", "use Parquet for many")

    def read(*_: Collection[str]) -> pa.RecordBatchReader:
        reader = pa.ipc.open_file(pa.memory_map(files[0]))
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        return pa.RecordBatchReader.from_batches(reader.schema, batches)

    return Source(read().schema.names, [Part(("files", _stamp(files[0])), None, unchanged(files, read), files=(files[0],))])


def _stamp(file: str) -> list[Any]:
    """Return the name, the size and the time of a file, which change if its content does."""
    status = os.stat(file)
    return [file, status.st_size, status.st_mtime_ns]
