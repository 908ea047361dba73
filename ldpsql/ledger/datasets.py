"""Names of datasets: one name for each table or file, however it is spelled.

    people, PEOPLE, main.people, "people"   warehouse.main.people: catalog, schema and table in lowercase
    a view                                  itself, and the tables and files that it reads
    people.parquet, ./*.parquet             the files, by their absolute paths, without links
    read_parquet('peo' || 'ple.parquet')    any file: `COMPUTED`
    https://me:key@host/a.csv?sig=...       https://host/a.csv, without what opens it
    any other name                          itself, in lowercase

A ledger charges a name together with every name that may mean the same: `people`, from an older ledger or typed by hand, also
stands for `warehouse.main.people`, and a database file for all of its tables. This can only charge too much.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.ledger.addresses import without_secrets
from ldpsql.quoting import quoted, text_literal

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s](?:[^".]*[^".\s])?))\s*(\.|$)')
_QUOTED = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")
_WORD = re.compile(r"\w+")
_FILE = re.compile(r"[/\\]|\.(parquet|pq|csv|tsv|json|jsonl|ndjson|arrow|feather|gz|zst)$", re.IGNORECASE)
_LOCAL = re.compile(r"file:(//(localhost)?)?(?=/)", re.IGNORECASE)
_READER = re.compile(r"read_|\w+_scan$", re.IGNORECASE)
_FRAMES = {"ARROW_SCAN", "PANDAS_SCAN"}
_DATABASE = (".duckdb", ".db", ".ddb")
_TEXTS = """SELECT view_name, sql FROM duckdb_views() WHERE NOT internal
            UNION ALL SELECT function_name, macro_definition FROM duckdb_functions()
            WHERE contains(function_type, 'macro') AND macro_definition IS NOT NULL
            AND NOT internal AND NOT starts_with(function_name, '_')"""
_VIEWS = "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE lower(view_name) = $1"

COMPUTED = "files of computed names"  # the dataset of a query that reads files that no string names


@dataclass(frozen=True)
class Dataset:
    """The name of a dataset, and the names that are charged for it: the tables and files that it reads."""

    name: str
    charged: tuple[str, ...]

    @classmethod
    def named(cls, name: str) -> Dataset:
        """Return the dataset of a name, without a connection to look it up in."""
        return cls(canonical(name), (canonical(name),))


def canonical(name: str) -> str:
    """Return a name as the ledger keeps it: lowercase and unquoted, unless it is a path; an address without its secrets."""
    name = without_secrets(name)
    return name if _FILE.search(name) else _dotted(parts(name))


def _dotted(path: Iterable[str]) -> str:
    """Return the parts of a name as one string, which `parts` reads back."""
    return ".".join(quoted(part) if set(part) & set('."') or _FILE.search(f".{part}") else part for part in path)


def parts(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name or of a path in lowercase; any other string is one part."""
    name = without_secrets(name)  # older ledgers hold addresses as they were written
    if _FILE.search(name):
        return tuple(part.casefold() for part in Path(name).parts)
    read, at = [], 0
    while match := _PART.match(name, at):
        read.append((match[1].replace('""', '"') if match[1] else match[2]).casefold())
        at = match.end()
        if not match[3]:
            return tuple(read)
    return (name.strip().casefold(),)


def alike(one: str, other: str) -> bool:
    """Whether two names may stand for the same people: they end alike, and the shorter one only leaves parts out."""
    short, long = sorted((parts(one), parts(other)), key=len)
    if COMPUTED in (one, other):
        return one == other or any(_FILE.search(name) for name in (one, other))
    if _holds(one, other) or _holds(other, one):
        return True
    if _FILE.search(one) or _FILE.search(other):
        return long[-len(short) :] == short
    rest = iter(long)
    return long[-1] == short[-1] and all(part in rest for part in short)  # warehouse.people is warehouse.main.people


def _holds(file: str, table: str) -> bool:
    """Whether a file is the database of a table."""
    return Path(file).suffix in _DATABASE and not _FILE.search(table) and Path(file).stem.casefold() == parts(table)[0]


def dataset_of(cursor: DuckDBPyConnection, name: str) -> Dataset:
    """Return the dataset that a table, a view, a file, a pattern or any other name stands for on a connection.

    Args:
        cursor: a cursor of the connection, to look names up in; DuckDB's optimizer may be off in it afterwards.
        name: as `query_table` takes it, or any other name.

    """
    stems = _stems(cursor)
    scans = _scans(cursor, name)
    tables = {_qualified(parts(table), stems) for kind, table in scans if kind == "Table"}
    functions, path = {read for kind, read in scans if kind == "Function"}, _FILE.search(name) or has_magic(name)
    files = _files(cursor, name) if functions or (path and not tables) else set()
    itself = _own_name(cursor, name, stems, tables, files)
    if not files and any(_READER.match(read) for read in functions - _FRAMES):
        files = {COMPUTED}
    return Dataset(itself, tuple(sorted({itself} | tables | files)))


def table_of(cursor: DuckDBPyConnection, name: str) -> tuple[str, ...] | None:
    """Return catalog, schema and name of a table in lowercase; None if the name does not read exactly one table.

    Args:
        cursor: DuckDB's optimizer may be off in it afterwards.
        name: as SQL writes it.

    """
    tables = [parts(table) for kind, table in _scans(cursor, name) if kind == "Table"]
    return tables[0] if len(tables) == 1 else None


def _scans(cursor: DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    """Return the tables and functions that DuckDB's plan reads, before the optimizer removes any."""
    if "://" in name:  # on the network: only DuckDB opens it
        return []
    for optimizer in ("disable", "enable"):  # it removes tables that give no rows, but some plans need it
        cursor.execute(f"PRAGMA {optimizer}_optimizer")
        with suppress(duckdb.Error):
            ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) FROM query_table({text_literal(name)})").fetchall()
            return list(_read(json.loads(plan)))
    return []


def _read(plan: Any) -> Iterator[tuple[str, str]]:
    for node in plan:
        details = node.get("extra_info") or {}
        yield from ((kind, str(details[kind])) for kind in ("Table", "Function") if kind in details)
        yield from _read(node.get("children") or [])


def _stems(cursor: DuckDBPyConnection) -> dict[str, str]:
    """Return the name of each database: that of its file without folder and suffix, since an alias is only another spelling."""
    rows = cursor.execute("SELECT database_name, path FROM duckdb_databases()").fetchall()
    return {name.casefold(): Path(path).resolve().stem if path and Path(path).is_file() else name for name, path in rows}


def _qualified(path: tuple[str, ...], stems: dict[str, str]) -> str:
    catalog, *rest = path
    return _dotted([stems.get(catalog, catalog).casefold(), *rest])


def _own_name(cursor: DuckDBPyConnection, name: str, stems: dict[str, str], tables: Iterable[str], files: set[str]) -> str:
    """Return the name of the dataset itself, qualified if it is a table or a view."""
    path = parts(name)
    views = [] if _FILE.search(name) else cursor.execute(_VIEWS, [path[-1]]).fetchall()
    for view in [tuple(part.casefold() for part in row) for row in views]:
        if alike(name, _dotted(view)):
            return _qualified(view, stems)
    ours = [table for table in tables if parts(table)[-1] == path[-1]]
    if ours:
        return ours[0]
    if len(files) == 1:
        return min(files)
    return os.path.abspath(name) if files and "://" not in name else canonical(name)


def _files(cursor: DuckDBPyConnection, name: str) -> set[str]:
    """Return the files that a dataset names, and those that the views and macros name through which it reads."""
    waiting, folders = [f"{text_literal(name)} {name}"], _folders(cursor)
    texts: dict[str, list[str]] = {}  # views of one name in several schemas: any of them may be meant
    for called, text in cursor.execute(_TEXTS).fetchall():
        texts.setdefault(called.casefold(), []).append(text)
    files: set[str] = set()
    while waiting:
        text = waiting.pop()
        strings = [single.replace("''", "'") or double.replace('""', '"') for single, double in _QUOTED.findall(text)]
        files = files.union(*(_existing(path, folders) for path in strings))
        words = {*_WORD.findall(text.casefold()), *(part for string in strings for part in (string.casefold(), *parts(string)))}
        for called in words & texts.keys():
            waiting += texts.pop(called)
    return files


def _folders(cursor: DuckDBPyConnection) -> tuple[str, list[str]]:
    """Return the folder that DuckDB takes for ``~``, and the folders in which it looks for files."""
    settings = "SELECT current_setting('home_directory'), current_setting('file_search_path')"
    ((home, searched),) = cursor.execute(settings).fetchall()
    return home or os.path.expanduser("~"), ["", *filter(None, (searched or "").split(","))]


def _existing(path: str, folders: tuple[str, list[str]]) -> set[str]:
    """Return the files of a path, a folder or a pattern, with links resolved; an address without its secrets."""
    path = _LOCAL.sub("", path, count=1) if _LOCAL.match(path) else path
    if "://" in path:
        return {without_secrets(path)}
    if not path or "\0" in path:
        return set()
    home, searched = folders
    path = f"{home}{path[1:]}" if path.startswith("~/") else path
    return set().union(*(_matching(os.path.join(folder, path)) for folder in searched))


def _matching(path: str) -> set[str]:
    pattern = os.path.join(path, "**", "*.parquet") if os.path.isdir(path) else path
    files = {path, *glob(pattern, recursive=True, include_hidden=True)}  # as DuckDB finds them
    return {str(Path(file).resolve()) for file in files if os.path.isfile(file)}
