"""Files of rows: those that a path stands for, their format, and the query that reads them without changing a value.

DuckDB takes the types of columns from the first lines of CSV and JSON files, and from the first of several Parquet files. It
casts whatever comes later: below 20,000 whole numbers it reads 1.5 as 2, and a time as its day. The queries made here fail.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from glob import glob
from pathlib import Path, PurePath
from typing import Literal, TypeAlias

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.engine.connections import CONNECTIONS, cursor_of
from ldpsql.engine.functions import struct_text
from ldpsql.errors import SourceRefused
from ldpsql.places import Place, pattern_of
from ldpsql.quoting import quoted, text_literal

FileFormat: TypeAlias = Literal["parquet", "csv", "json", "arrow"]
EXPECTED = "give a Parquet, CSV, JSON or Arrow file, a folder, a pattern with *, or a table (--database)"
_FORMATS: dict[str, FileFormat] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".arrow": "arrow", ".feather": "arrow"
}  # fmt: skip
READERS = {
    "parquet": "FROM read_parquet($1, hive_partitioning := true)",
    "csv": "FROM read_csv($1, allow_quoted_nulls := false)",  # "" is a string, as COPY writes it; NULL has no quotes
    "json": "FROM read_json($1)",
}
_NEVER_TEXT = {"json": ("BOOLEAN", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE")}  # which have no quotes in JSON
_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER")
_NESTED = re.compile(r"\b(BOOLEAN|U?BIGINT|HUGEINT)\b.*[\])]|\b(BOOLEAN|U?BIGINT|HUGEINT)\[", re.DOTALL)
_ROUNDED = "(contains({0}, '.') OR contains(lower({0}), 'e-')) AND {0}::DECIMAL(38, 18) <> {0}::{1}"
_NO_BOOLEAN = "{0} NOT IN ('true', 'false')"
_CHECKED = "CASE WHEN {2} THEN error({3}) ELSE {0}::{1} END AS {0}"
_OTHER = SourceRefused(
    "a column that begins with whole numbers or booleans has another value further down",
    "read it in one type: CREATE VIEW people AS FROM read_csv('people.csv', types = {'age': 'DOUBLE'})",
)
_ISO = "%Y-%m-%d"
_TAKEN = """SELECT 1 FROM (SELECT schema_name, table_name AS name FROM duckdb_tables()
            UNION ALL SELECT schema_name, view_name FROM duckdb_views())
            WHERE lower(concat_ws('.', schema_name, name)) = lower($1)"""


def format_of(path: PurePath) -> FileFormat | None:
    """Return the format of a file by its suffix, None if the suffix is unknown."""
    return _FORMATS.get(next((s for s in reversed(path.suffixes) if s not in (".gz", ".zst")), ""))


def pattern_at(place: Place) -> Place:
    """Return the pattern of the Parquet files below a folder, at a URL any name without a known suffix; else the place."""
    if place.is_url:
        return place if place.is_pattern or format_of(place.path) else place.below()
    return Place(pattern_of(place.text))


def files_of(con: DuckDBPyConnection | None, place: Place) -> tuple[FileFormat, list[str]]:
    """Return the format and the sorted files; a folder stands for the Parquet files below it, and only ``con`` reads URLs."""
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
        if os.path.isfile(pattern.text):
            return [pattern.text]
        found = glob(pattern.text, recursive=True, include_hidden=True)  # as DuckDB finds them
        return sorted(filter(os.path.isfile, found))
    if con is None or not pattern.is_pattern:
        return [pattern.text]
    with cursor_of(con) as cursor:
        return [file for (file,) in cursor.execute("SELECT file FROM glob(?) ORDER BY file", [pattern.text]).fetchall()]


def reader(cursor: DuckDBPyConnection, kind: FileFormat, files: list[str], text: Collection[str] = ()) -> str:
    """Return the query of the rows of files, $1, which fails at a value that the type of its column does not hold.

    Columns of ``text`` are read as text even if they look like booleans or dates.
    """
    if kind == "parquet":
        columns = differing(cursor, files).items()
        return _replacing(
            (f"error({text_literal(str(differs(c)))})::{held} AS {quoted(c)}" for c, held in columns), READERS[kind]
        )
    types, options = _types(cursor, READERS[kind], files), {}
    checks = {name: _ROUNDED for name, held in types.items() if _WHOLE.fullmatch(held)}
    if kind == "json":
        checks |= {name: _NO_BOOLEAN for name, held in types.items() if held == "BOOLEAN"}
        # In lists and structs nothing can be checked; and if two keys differ in case, the name of the second column, x_1, is
        # not its key. Then all lines show the types.
        alike = not {name.rpartition("_")[0].casefold() for name in types}.isdisjoint(map(str.casefold, types))
        if alike or any(map(_NESTED.search, types.values())):
            checks, options = {}, {"sample_size": "-1", "maximum_sample_files": str(len(files))}
            types = _types(cursor, _passing(options, READERS[kind]), files)
    texts = {name for name in text if types.get(name, "VARCHAR") not in ("VARCHAR", *_NEVER_TEXT.get(kind, ()))}
    checks = {name: condition for name, condition in checks.items() if name not in texts}
    declared, date = dict.fromkeys([*texts, *checks], "VARCHAR"), None
    if "DATE" in types.values():  # by a format that is named, nothing but a date is one
        sniffed = "SELECT DateFormat FROM sniff_csv(?)"
        date = _ISO if kind == "json" else cursor.execute(sniffed, files[:1]).fetchall()[0][0]
    option, given = ("types", declared) if kind == "csv" else ("columns", types | declared)
    if declared:
        options[option] = struct_text({name: text_literal(held) for name, held in given.items()})
    if date:
        options["dateformat"] = text_literal(date)
    checked = (
        _CHECKED.format(quoted(name), types[name], condition.format(quoted(name), types[name]), text_literal(str(_OTHER)))
        for name, condition in checks.items()
    )
    return _replacing(checked, _passing(options, READERS[kind]))


def _types(cursor: DuckDBPyConnection, query: str, files: list[str]) -> dict[str, str]:
    """Return the types of the columns that are in the files themselves."""
    opened, folders = cursor.sql(query, params=[files]), folders_of(files)
    return {name: str(held) for name, held in zip(opened.columns, opened.types, strict=True) if name not in folders}


def _passing(options: Mapping[str, str], query: str) -> str:
    """Return the query of a reader with further options."""
    return f"{query[:-1]}{''.join(f', {name} := {value}' for name, value in options.items())})"


def _replacing(columns: Iterable[str], query: str) -> str:
    """Return a query with other expressions for some of its columns."""
    replaced = ", ".join(columns)
    return f"SELECT * REPLACE ({replaced}) {query}" if replaced else query


def folders_of(files: Iterable[str]) -> set[str]:
    """Return the names of columns that folders ``column=value/`` have instead of their files."""
    return {name.split("=")[0] for file in files for name in Path(file).parent.parts if "=" in name}


def differing(cursor: DuckDBPyConnection, files: Sequence[str]) -> Mapping[str, str]:
    """Return the columns of Parquet files of which DuckDB would change values, each with its type in the first file.

    Whole numbers of several sizes are held, or reading fails.
    """
    if len(files) < 2:  # the first file has the types of all values
        return {}
    if Place(files[0]).is_url:
        return _differing(cursor, files)
    return _differing_here(tuple(files), tuple(Place(file).state() for file in files))


@lru_cache(maxsize=16)
def _differing_here(files: tuple[str, ...], _: tuple[object, ...]) -> Mapping[str, str]:
    """Remember the columns of files as they are: all files are opened for that, and a command asks several times."""
    with duckdb.connect() as con:
        return _differing(con, files)


def _differing(cursor: DuckDBPyConnection, files: Sequence[str]) -> Mapping[str, str]:
    query = READERS["parquet"]
    held, needed = (_types(cursor, sql, list(files)) for sql in (query, _passing({"union_by_name": "true"}, query)))
    return {
        name: kind
        for name, kind in held.items()
        if needed[name] != kind and not (_WHOLE.fullmatch(kind) and _WHOLE.fullmatch(needed[name]))
    }


def differs(column: str) -> SourceRefused:
    """Return the error for a column whose type in the first file does not hold the values of another file."""
    return SourceRefused(
        f"the column '{column}' has a type in the first file that does not hold the values of another file",
        "read them in one type: CREATE VIEW people AS FROM read_parquet('folder/**/*.parquet', union_by_name = true)",
    )


def in_query(query: str, files: Iterable[str]) -> str:
    """Return a query of `reader` with the files in it."""
    return query.replace("$1", f"[{', '.join(map(text_literal, files))}]", 1)


def reading(name: str, catalog: int) -> str:
    """Return the query that reads what ``query_table`` takes; it changes no value of files.

    A folder stands for the Parquet files below it; its path has a separator, so that no folder hides a table.

    Args:
        name: a table, a view, a frame or files.
        catalog: the number of the catalog of ldpsql.

    """
    pattern = pattern_of(name) if "/" in name else name
    if not name.startswith('"') and format_of(Place.of(pattern).path) not in (None, "arrow"):
        with CONNECTIONS.cursor_at(catalog, "") as cursor, suppress(duckdb.Error, SourceRefused):  # DuckDB says what is wrong
            if not cursor.execute(_TAKEN, [name]).fetchall():
                kind, files = files_of(cursor, Place.of(pattern))
                if kind != "parquet" or differing(cursor, files):
                    return in_query(reader(cursor, kind, files), files)
    return f"FROM query_table({text_literal(pattern)})"
