"""Files of rows: those that a path stands for, their format, and the query that reads them without changing a value.

DuckDB takes the types of columns from the first lines of CSV and JSON files, and from the first of several Parquet files. It
casts whatever comes later: below 20,000 whole numbers it reads 1.5 as 2, and a time as its day. The queries made here fail.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path, PurePath
from typing import Literal, TypeAlias

from duckdb import DuckDBPyConnection

from ldpsql.caches import ByteCache
from ldpsql.engine.connections import CONNECTIONS, FINDING_FILES, cursor_of, set_in
from ldpsql.engine.functions import struct_text
from ldpsql.engine.identity import split
from ldpsql.errors import InvalidParameter, SourceRefused
from ldpsql.errors.boundary import replaced
from ldpsql.places import Place, pattern_of
from ldpsql.quoting import quoted, text_literal

FileFormat: TypeAlias = Literal["parquet", "csv", "json", "arrow"]
EXPECTED = "give a Parquet, CSV, JSON or Arrow file, a folder, a pattern with *, or a table (--database)"
_SUFFIXES: dict[str, FileFormat] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".arrow": "arrow", ".feather": "arrow"
}  # fmt: skip
READERS = {
    "parquet": "FROM read_parquet($1, hive_partitioning := true)",
    "csv": "FROM read_csv($1, allow_quoted_nulls := false)",  # "" is a string, as COPY writes it; NULL has no quotes
    "json": "FROM read_json($1)",
}
_NEVER_TEXT = {"json": ("BOOLEAN", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE")}  # which have no quotes in JSON
_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM")
_NESTED = re.compile(r"\b(BOOLEAN|U?BIGINT|HUGEINT)\b.*[\])]|\b(BOOLEAN|U?BIGINT|HUGEINT)\[", re.DOTALL)
_DAY, _CLOCK = r"\d+[-/ \\]\d+[-/ \\]\d+", r"\d+:\d+(:\d+(\.\d{0,6}0*)?)?"  # to microseconds
# The text of the values that a type holds. DuckDB casts other text, too: it rounds, and leaves time zones and zeros out.
_HELD = {
    "BOOLEAN": "(?i)true|false|t|f|yes|no",
    "TIME": _CLOCK,
    "TIMESTAMP": f"{_DAY}([T ]{_CLOCK}( UTC)?)?|-?infinity",
    "TIMESTAMP WITH TIME ZONE": f"{_DAY}[T ]{_CLOCK} ?[A-Za-z+-].*|-?infinity",
}
_HELD_WHOLE = r"[+-]?(0|[1-9]\d*)(\.0*)?([eE]\+?\d+)?|0[xXbB][\da-fA-F]+"
_IN_JSON = {"BOOLEAN": "true|false"}
_UNLIKE = "TRY_CAST({0} AS {1})::VARCHAR IS DISTINCT FROM {0} AND NOT regexp_full_match({0}, {2})"  # few need the pattern
_LONG = r"""strlen({0}) > 15 AND regexp_full_match({0}, '\s*[+-]?\d+\s*')
    AND coalesce(TRY_CAST({0} AS HUGEINT) <> TRY_CAST({0}::DOUBLE AS HUGEINT), true)"""  # whole numbers that a DOUBLE rounds
_CHECKED = "CASE WHEN {2} THEN error({3}) ELSE {0}::{1} END AS {0}"
_OTHER = SourceRefused(
    "a column has a value that the type of its first lines does not hold",
    "read it in one type: CREATE VIEW people AS FROM read_csv('people.csv', types = {'age': 'DOUBLE'})",
)
_FORMATS = "SELECT DateFormat, TimestampFormat FROM sniff_csv(?)"
_ISO = "%Y-%m-%d"
_NAMED = """SELECT 1 FROM (SELECT database_name AS db, schema_name AS s, table_name AS t FROM duckdb_tables()
            UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views())
            WHERE lower($1) IN (lower(t), lower(concat_ws('.', s, t)), lower(concat_ws('.', db, s, t)),
                                lower(concat_ws('.', db, nullif(s, 'main'), t)))"""
_DIFFERING: ByteCache[Hashable, Mapping[str, str]] = ByteCache(1 << 22)


def format_of(path: PurePath) -> FileFormat | None:
    """Return the format of a file by its suffix, None if the suffix is unknown."""
    suffixes = (suffix.lower() for suffix in reversed(path.suffixes))
    return _SUFFIXES.get(next((s for s in suffixes if s not in (".gz", ".zst")), ""))


def pattern_at(place: Place) -> Place:
    """Return the pattern of the Parquet files below a folder, at a URL any name without a known suffix; else the place."""
    if place.is_url:
        return place if place.is_pattern or format_of(place.path) else place.below()
    return Place(pattern_of(place.text))


def files_of(con: DuckDBPyConnection, place: Place) -> tuple[FileFormat, list[str]]:
    """Return the format and the sorted files; a folder stands for the Parquet files below it.

    Raises:
        SourceRefused: if there are none, or of several formats.

    """
    if not (files := found(con, pattern_at(place))):
        raise SourceRefused(f"there is no table or file named '{place.shown}'", EXPECTED)
    return of_one_format(files)


def of_one_format(files: Iterable[str]) -> tuple[FileFormat, list[str]]:
    """Return the format of files, and their absolute paths."""
    places = [Place.of(file) for file in files]
    kind = format_of(places[0].path)
    other = next((one for one in places if kind is None or format_of(one.path) != kind), None)
    if kind is None or other is not None:
        raise SourceRefused(
            f"files must be Parquet, CSV, JSON or Arrow, all of one kind, and '{(other or places[0]).path.name}' is not",
            "named .parquet, .csv, .json or .arrow",
        )
    return kind, [one.absolute().text for one in places]


def found(con: DuckDBPyConnection, pattern: Place) -> list[str]:
    """Return the sorted files of a pattern, or the one file that it names."""
    if pattern.is_url and not pattern.is_pattern:
        return [pattern.text]
    with cursor_of(con) as cursor:
        files = [file for (file,) in cursor.execute("SELECT file FROM glob(?) ORDER BY file", [pattern.text]).fetchall()]
    if files or pattern.is_url:
        return files
    linked = glob(pattern.text, recursive=True, include_hidden=True)  # below folders that are links DuckDB finds nothing
    return sorted(filter(os.path.isfile, linked))


def reader(cursor: DuckDBPyConnection, kind: FileFormat, files: list[str], text: Collection[str] = ()) -> str:
    """Return the query of the rows of files, $1, which fails at a value that the type of its column does not hold.

    Columns of ``text`` are read as text even if they look like booleans or dates.
    """
    if kind == "parquet":
        columns = differing(cursor, files).items()
        return _replacing(
            (f"error({text_literal(str(differs(c)))})::{held} AS {quoted(c)}" for c, held in columns), READERS[kind]
        )
    types, options, unnamed = _types(cursor, READERS[kind], files), {}, False
    if kind == "json":
        # If two keys differ in case, the name of the second column, x_1, is not its key, so no type can be given. In lists and
        # structs nothing can be checked. Then all lines show the types.
        unnamed = not {name.rpartition("_")[0].casefold() for name in types}.isdisjoint(map(str.casefold, types))
        if unnamed or any(map(_NESTED.search, types.values())):
            options = {"sample_size": "-1", "maximum_sample_files": str(len(files))}
            types = _types(cursor, _passing(options, READERS[kind]), files)
    date, moment = _ISO, None
    if kind == "csv" and not {"DATE", "TIMESTAMP"}.isdisjoint(types.values()):
        ((date, moment),) = cursor.execute(_FORMATS, files[:1]).fetchall()
    texts = {name for name in text if types.get(name, "VARCHAR") not in ("VARCHAR", *_NEVER_TEXT.get(kind, ()))}
    read = types.keys() - texts - {name for name, held in types.items() if unnamed or (moment and held == "TIMESTAMP")}
    checks = {name: check for name in types if name in read and (check := _check(kind, quoted(name), types[name]))}
    declared = dict.fromkeys([*texts, *checks], "VARCHAR")
    option, given = ("types", declared) if kind == "csv" else ("columns", types | declared)
    if declared:
        options[option] = struct_text({name: text_literal(held) for name, held in given.items()})
    if date and "DATE" in types.values():  # by a format that is named, nothing but a date is one
        options["dateformat"] = text_literal(date)
    return _replacing(checks.values(), _passing(options, READERS[kind]))


def _check(kind: FileFormat, column: str, held: str) -> str:
    """Return the SQL of a column of text in a type, which fails at text that the type does not hold; '' if its cast does."""
    pattern = _HELD_WHOLE if _WHOLE.fullmatch(held) else (_HELD | (_IN_JSON if kind == "json" else {})).get(held)
    if pattern is None and held != "DOUBLE":
        return ""
    unlike = _UNLIKE.format(column, held, text_literal(rf"\s*({pattern})\s*")) if pattern else _LONG.format(column)
    return _CHECKED.format(column, held, unlike, text_literal(str(_OTHER)))


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
    key = tuple((file, Place(file).state()) for file in files)  # all files are opened, and a command asks several times
    return _DIFFERING.remembered(key, lambda _: _differing(cursor, files))


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


def unreadable(called: str, *, is_url: bool = False) -> SourceRefused:
    """Return the error for a source that DuckDB, Arrow or the file system cannot read; their own messages may quote values."""
    there = "is it there, and may you read it? " if is_url else ""
    return SourceRefused(f"{called} cannot be read", f"{there}is it complete, and of the format that its name says? {EXPECTED}")


def check_unquoted(cursor: DuckDBPyConnection, name: str) -> None:
    """Refuse a file whose name stands in double quotes, unless a table or a view has it: DuckDB would change its values.

    Raises:
        SourceRefused: if it is one.

    """
    path = ".".join(split(name)) if '"' in name else name
    if path == name or format_of(Place.of(path).path) in (None, "arrow") or cursor.execute(_NAMED, [path]).fetchall():
        return
    if (files := found(cursor, Place.of(path))) and (not path.lower().endswith(".parquet") or differing(cursor, files)):
        raise SourceRefused("the name of a file stands in double quotes, as that of a table", "write the path without them")


def query_of(cursor: DuckDBPyConnection, name: str) -> str:
    """Return the query that reads what ``query_table`` takes: a table, a view, a frame or files, of which it changes no value.

    A folder stands for the Parquet files below it; its path has a separator, so that no folder hides a table.

    Raises:
        SourceRefused: if files cannot be read.

    """
    pattern = pattern_of(name) if "/" in name else name
    place, plain = Place.of(pattern), f"FROM query_table({text_literal(pattern)})"
    with replaced(lambda _: unreadable(f"'{place.shown}'", is_url=place.is_url)):
        check_unquoted(cursor, name)
        if format_of(place.path) in (None, "arrow") or cursor.execute(_NAMED, [name]).fetchall():
            return plain
        if not (files := found(cursor, place)):
            return plain  # DuckDB finds none either; or it is a table that other connections do not see yet
        kind, files = of_one_format(files)
        return plain if kind == "parquet" and not differing(cursor, files) else in_query(reader(cursor, kind, files), files)


def reading(name: str, here: Sequence[str | None]) -> str:
    """Return the query of `query_of`; ``here`` has the number of the catalog of ldpsql, and the settings `FINDING_FILES`."""
    catalog, *settings = here
    if len(settings) != len(FINDING_FILES) or catalog is None or not catalog.isdecimal():
        raise InvalidParameter("this function needs the settings of a connection", "call those of ldp, which it is a part of")
    with CONNECTIONS.cursor_at(int(catalog), "") as cursor:
        set_in(cursor, dict(zip(FINDING_FILES, settings, strict=True)))
        return query_of(cursor, name)
