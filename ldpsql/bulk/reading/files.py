"""Files as sources: their formats, and the parts into which they are cut."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from glob import glob
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.reading.parquet import plain_batches, rows_of
from ldpsql.bulk.reading.parts import FileFormat, Part, Source
from ldpsql.bulk.reading.relations import selected
from ldpsql.bulk.reading.unchanged import unchanged
from ldpsql.engine.identity import Identity, digest_of, identity_of_files
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import SourceRefused
from ldpsql.places import Place, pattern_of

PART_ROWS = 8_000_000  # per part of a file that is cut at its row groups
EXPECTED = "give a Parquet, CSV, JSON or Arrow file, a folder, a pattern with *, or a table (--database)"
_FORMATS: dict[str, FileFormat] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".arrow": "arrow", ".feather": "arrow"
}  # fmt: skip


def format_of(path: PurePath) -> FileFormat | None:
    """Return the format of a file by its suffix, None if the suffix is unknown."""
    return _FORMATS.get(next((s for s in reversed(path.suffixes) if s not in (".gz", ".zst")), ""))


def stored(con: DuckDBPyConnection, place: Place, *, split: bool) -> Source:
    """Return the files that a path, a URL, a folder or a pattern stands for, cut into parts if ``split``."""
    place.open_to(con)
    kind, files = files_of(con, place)

    def whose(cursor: DuckDBPyConnection, rows: bool) -> Identity:
        return identity_of_files(place.text, files, _rows(cursor, kind, files) if rows else "")

    if not split:
        return replace(_joined(con, kind, files), files=tuple(files), kind=kind, whose=whose)
    parts = [part for file in files for part in _parts_of(con, kind, file)]
    return replace(_joined(con, kind, files[:1]), parts=parts, files=tuple(files), kind=kind, whose=whose)


def pattern_at(place: Place) -> Place:
    """Return the pattern of the Parquet files below a folder, at a URL any name without a known suffix; else the place."""
    if place.is_url:
        return place if place.is_pattern or format_of(place.path) else place.below()
    return Place(pattern_of(place.text))


def files_of(con: DuckDBPyConnection | None, place: Place) -> tuple[FileFormat, list[str]]:
    """Return the format and the sorted files; a folder stands for the Parquet files below it, and only ``con`` reads URLs.

    Raises:
        SourceRefused: if there is no file, or the files are not of one kind that can be read.

    """
    places = [Place.of(file) for file in _found(con, pattern_at(place))]
    if not places:
        raise SourceRefused(f"there is no table or file named '{place.shown}'", EXPECTED)
    kind = format_of(places[0].path)
    other = next((one for one in places if kind is None or format_of(one.path) != kind), None)
    if kind is None or other is not None:
        raise SourceRefused(
            f"files must be Parquet, CSV, JSON or Arrow, all of one kind, and '{(other or places[0]).path.name}' is not",
            "named .parquet, .csv, .json or .arrow",
        )
    return kind, [one.absolute().text for one in places]


def _found(con: DuckDBPyConnection | None, pattern: Place) -> list[str]:
    """Return the sorted files of a pattern, or the one file that it names."""
    if not pattern.is_url:
        return [pattern.text] if os.path.isfile(pattern.text) else sorted(glob(pattern.text, recursive=True))
    if con is None or not pattern.is_pattern:
        return [pattern.text]
    with cursor_of(con) as cursor:
        return [file for (file,) in cursor.execute("SELECT file FROM glob(?) ORDER BY file", [pattern.text]).fetchall()]


_READERS = {
    "parquet": "FROM read_parquet($1, hive_partitioning := true)",
    "csv": "FROM read_csv($1)",
    "json": "FROM read_json($1)",
}
_ROWS = """SELECT * EXCLUDE (file_row_number) FROM read_parquet($1, hive_partitioning := true, file_row_number := true)
           WHERE file_row_number >= $2 AND file_row_number < $3"""  # whole row groups, which DuckDB finds by row numbers


def _rows(cursor: DuckDBPyConnection, kind: FileFormat, files: list[str]) -> str:
    """Return what distinguishes the rows of files from others; see `digest_of`."""
    if kind != "arrow":
        return digest_of(cursor, _READERS[kind], files)
    cursor.register("__ldpsql_rows", _arrow(files).parts[0].read([], (), ()))
    return digest_of(cursor, 'FROM "__ldpsql_rows"')


def _joined(con: DuckDBPyConnection, kind: FileFormat, files: list[str]) -> Source:
    """Return files as one part."""
    if kind == "arrow":
        return _arrow(files)
    local = not Place(files[0]).is_url
    with cursor_of(con) as cursor:
        opened = cursor.sql(_READERS[kind], params=[files])
        names, types = opened.columns, {str(column) for column in opened.types}

    def read(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        direct = plain_batches(files, wanted, encoded) if kind == "parquet" and local else None
        return direct or selected(con, wanted, kept, lambda at: at.sql(_READERS[kind], params=[files]))

    rows = sum(sum(rows_of(file)) for file in files) if kind == "parquet" and local else None
    stamp = _stamp if local else partial(_stamp_at_url, con)
    part = Part(("files", *map(stamp, files)), rows, unchanged(files, read, stamp), files=tuple(files))
    return Source(names, [part], header=kind == "parquet" or (kind == "csv" and types != {"VARCHAR"}))


def _parts_of(con: DuckDBPyConnection, kind: FileFormat, file: str) -> list[Part]:
    """Return the parts of one file: ranges of row groups if it is Parquet, otherwise all of it."""
    if kind != "parquet" or Place(file).is_url:
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

    return Part(("row groups", _stamp(file), groups.start, groups.stop), rows, unchanged([file], read, _stamp), files=(file,))


def _arrow(files: list[str]) -> Source:
    if len(files) > 1:
        raise SourceRefused("only one Arrow file can be read at a time", "use Parquet for many")

    def read(*_: Collection[str]) -> pa.RecordBatchReader:
        place = Place(files[0])
        opened = place.files_system().open(place.text) if place.is_url else pa.memory_map(place.text)
        reader = pa.ipc.open_file(opened)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        return pa.RecordBatchReader.from_batches(reader.schema, batches)

    stamp = ("files", _stamp(files[0]))
    return Source(read().schema.names, [Part(stamp, None, unchanged(files, read, _stamp), files=(files[0],))])


def _stamp(file: str) -> list[Any]:
    """Return the name of a file, and what its content cannot change without."""
    state = Place(file).state()
    if state is None:
        raise FileNotFoundError(file)
    return [Place(file).shown, *state]


def _stamp_at_url(con: DuckDBPyConnection, file: str) -> list[Any]:
    """Return the name, the size and the time of a file that DuckDB opens."""
    with cursor_of(con) as cursor:
        found = cursor.execute("SELECT size, last_modified::VARCHAR FROM read_blob(?)", [file]).fetchall()
    return [Place(file).shown, *found]
