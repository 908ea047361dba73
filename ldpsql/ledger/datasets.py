"""Names of datasets: one for each table or file, however it is spelled.

    people, PEOPLE, main.people, "people"   warehouse.main.people: catalog, schema and table in lowercase
    a view                                  itself, and the tables and files that it reads
    people.parquet, ./*.parquet             the files, by their absolute paths, without links
    any other name                          itself, in lowercase

A ledger charges a name together with every name that may mean the same: `people` in an older ledger, or given by hand, stands
for `warehouse.main.people` too. That can only charge too much.
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

from ldpsql.quoting import quoted, text_literal

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s](?:[^".]*[^".\s])?))\s*(\.|$)')
_QUOTED = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")
_WORD = re.compile(r"\w+")
_FILE = re.compile(r"[/\\]|\.(parquet|pq|csv|tsv|json|jsonl|ndjson|arrow|feather|gz|zst)$", re.IGNORECASE)
_TEXTS = """SELECT lower(view_name), sql FROM duckdb_views() WHERE NOT internal
            UNION ALL SELECT lower(function_name), macro_definition FROM duckdb_functions()
            WHERE function_type = 'table_macro' AND NOT internal AND NOT starts_with(function_name, '_')"""
_VIEWS = "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE lower(view_name) = $1"


@dataclass(frozen=True)
class Dataset:
    """The name of a dataset, and the names of what is charged for it: the tables and files that it reads."""

    name: str
    charged: tuple[str, ...]

    @classmethod
    def named(cls, name: str) -> Dataset:
        """Return the dataset that a name stands for by itself, without a connection to look it up in."""
        return cls(canonical(name), (canonical(name),))


def canonical(name: str) -> str:
    """Return a name as the ledger keeps it: lowercase and unquoted, unless it is a path."""
    return name if _FILE.search(name) else _dotted(parts(name))


def _dotted(path: Iterable[str]) -> str:
    """Return the parts of a name as one text that `parts` reads back."""
    return ".".join(quoted(part) if set(part) & set('."') or _FILE.search(f".{part}") else part for part in path)


def parts(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name or of a path, in lowercase; of what is neither, the whole."""
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
    """Whether two names may stand for the same people: they end alike, and the shorter one only says less."""
    short, long = sorted((parts(one), parts(other)), key=len)
    if _FILE.search(one) or _FILE.search(other):
        return long[-len(short) :] == short
    rest = iter(long)
    return long[-1] == short[-1] and all(part in rest for part in short)  # warehouse.people is warehouse.main.people


def dataset_of(cursor: DuckDBPyConnection, name: str) -> Dataset:
    """Return the dataset that a table, a view, a file, a pattern or any other name stands for on a connection.

    Args:
        cursor: a cursor of the connection, to look names up in; it may be left without DuckDB's optimizer.
        name: as `query_table` takes it, or a name that nothing on the connection has.

    """
    stems = _stems(cursor)
    scans = _scans(cursor, name)
    tables = {_qualified(parts(table), stems) for kind, table in scans if kind == "Table"}
    functions, path = any(kind == "Function" for kind, _ in scans), _FILE.search(name) or has_magic(name)
    files = _files(cursor, name) if functions or (path and not tables) else set()
    itself = _own_name(cursor, name, stems, tables, files)
    return Dataset(itself, tuple(sorted({itself} | tables | files)))


def table_of(cursor: DuckDBPyConnection, name: str) -> tuple[str, ...] | None:
    """Return catalog, schema and name of a table in lowercase, None for anything that is not one table.

    Args:
        cursor: it may be left without DuckDB's optimizer.
        name: as SQL writes it.

    """
    tables = [parts(table) for kind, table in _scans(cursor, name) if kind == "Table"]
    return tables[0] if len(tables) == 1 else None


def _scans(cursor: DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    """Return what DuckDB's plan reads, before anything is optimised away: tables by name, and functions."""
    if "://" in name:  # on the network: not ours to open
        return []
    for optimizer in ("disable", "enable"):  # it leaves out what gives no rows; some plans cannot do without it
        cursor.execute(f"PRAGMA {optimizer}_optimizer")
        with suppress(duckdb.Error):
            ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) FROM query_table({text_literal(name)})").fetchall()
            return list(_read(json.loads(plan)))
    return []


def _read(plan: Any) -> Iterator[tuple[str, str]]:
    for node in plan:
        about = node.get("extra_info") or {}
        yield from ((kind, str(about[kind])) for kind in ("Table", "Function") if kind in about)
        yield from _read(node.get("children") or [])


def _stems(cursor: DuckDBPyConnection) -> dict[str, str]:
    """Return the name of each database: of its file, without folder and suffix, for an alias is a matter of spelling."""
    rows = cursor.execute("SELECT database_name, path FROM duckdb_databases()").fetchall()
    return {name.casefold(): Path(path).resolve().stem if path and Path(path).is_file() else name for name, path in rows}


def _qualified(path: tuple[str, ...], stems: dict[str, str]) -> str:
    catalog, *rest = path
    return _dotted([stems.get(catalog, catalog).casefold(), *rest])


def _own_name(cursor: DuckDBPyConnection, name: str, stems: dict[str, str], tables: Iterable[str], files: set[str]) -> str:
    """Return the name of a dataset itself, qualified where it is a table or a view."""
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
    """Return the files that a dataset names, and those in the text of every view and table macro on the way to it."""
    waiting, texts = [f"{text_literal(name)} {name}"], dict(cursor.execute(_TEXTS).fetchall())
    files: set[str] = set()
    while waiting:
        text = waiting.pop()
        for single, double in _QUOTED.findall(text):
            files |= _existing(single.replace("''", "'") or double.replace('""', '"'))
        called = set(_WORD.findall(text.casefold())) & texts.keys()
        waiting += [texts.pop(view) for view in called]
    return files


def _existing(path: str) -> set[str]:
    """Return the files of a path, a folder or a pattern, without links; what is on the network as it is written."""
    if "://" in path:
        return {path}
    if not path or "\0" in path:
        return set()
    pattern = os.path.join(path, "**", "*.parquet") if os.path.isdir(path) else path
    return {str(Path(file).resolve()) for file in glob(pattern, recursive=True) if os.path.isfile(file)}
