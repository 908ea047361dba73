"""An instance of DuckDB with the functions attached, which a test hands to the next one if it leaves it as it found it.

To attach takes 0.1 s, and hundreds of tests want a connection; to see whether its database was changed takes far less.
To list all functions and settings takes longer, so that is done once a module: what changes those of ``ldp`` must be a call of
`attach`, and a setting that tests change is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.engine.connections import CONNECTIONS
from ldpsql.functions import quoted, text_literal

_SET = (  # by tests, for all connections of a database
    "threads memory_limit max_temp_directory_size preserve_insertion_order arrow_lossless_conversion home_directory "
    "file_search_path"
)
_STATE = f"""
    SELECT (SELECT bit_xor(hash(database_name, path)) FROM duckdb_databases()), (SELECT count(*) FROM duckdb_secrets()),
           {", ".join(f"current_setting('{name}')" for name in _SET.split())}"""
_MADE = """
    SELECT 'VIEW', schema_name, view_name FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT 'TABLE', schema_name, table_name FROM duckdb_tables()"""
_SHARED = """
    SELECT count(*), bit_xor(hash(database_name, schema_name, function_name, function_oid)),
           (SELECT md5(string_agg(name || value, ',' ORDER BY name)) FROM duckdb_settings())
    FROM duckdb_functions() WHERE database_name <> 'memory'"""
_MACRO = re.compile(r'^CREATE MACRO ((?:"[^"]*"|\w|\.)+) \(.*?\) AS (TABLE)?', re.MULTILINE)


class Instance:
    """A database in memory, with the functions attached and the macro ``city``."""

    def __init__(self) -> None:
        self._con = ldpsql.connect()
        self._con.execute("CREATE MACRO city() AS ldp.krr(1.0, ['Lima', 'Oslo', 'Rome', 'Kyiv'])")
        self._folder = TemporaryDirectory()
        self._schema, self._state, self._shared = self._exported(), self._read(_STATE), self._read(_SHARED)
        self._version = self._catalog_version()
        ((self._number,),) = self._con.execute("SELECT ldp._catalog()").fetchall()

    def connection(self) -> DuckDBPyConnection:
        """Return a connection, which has temporary tables, prepared statements and a search path of its own."""
        return self._con.cursor()

    def tidied(self) -> bool:
        """Drop tables, views and macros; return whether all else is as it was, as far as is seen at once."""
        if [one() for one in CONNECTIONS._connections[self._number]] != [self._con]:  # attached again
            return False
        if self._version is not None and self._catalog_version() == self._version:  # nothing ran but queries
            return True
        try:
            for kind, schema, name in self._read(_MADE):
                self._con.execute(f"DROP {kind} memory.{quoted(schema)}.{quoted(name)} CASCADE")
            if (made := self._exported()) != self._schema:
                for name, table in set(_MACRO.findall(made)) - set(_MACRO.findall(self._schema)):
                    self._con.execute(f"DROP MACRO {table} memory.{name}")
                made = self._exported()
            same = made == self._schema and self._read(_STATE) == self._state
        except duckdb.Error:
            return False
        self._version = self._catalog_version()
        return same

    def has_its_own(self) -> bool:
        """Return whether the settings, and the functions of all but the database in memory, are those that it began with."""
        return self._read(_SHARED) == self._shared

    def _catalog_version(self) -> object:
        """Return what changes with the catalog; None if this DuckDB does not say, for the method is not a public one."""
        version = getattr(self._con, "_catalog_version", None)
        return None if version is None else version()

    def _exported(self) -> str:
        """Return the SQL of all that is in the database in memory."""
        self._con.execute(f"EXPORT DATABASE memory TO {text_literal(self._folder.name)}")
        return Path(self._folder.name, "schema.sql").read_text("utf-8")

    def _read(self, query: str) -> list[tuple[str, ...]]:
        return self._con.execute(query).fetchall()

    def close(self) -> None:
        """Close the database."""
        self._con.close()
        self._folder.cleanup()


_IDLE: list[Instance] = []


@contextmanager
def connection() -> Iterator[DuckDBPyConnection]:
    """Lend a connection to an instance that looks new."""
    instance = _IDLE.pop() if _IDLE else Instance()
    try:
        with instance.connection() as con:
            yield con
    finally:
        if instance.tidied():
            _IDLE.append(instance)
        else:
            instance.close()


def check() -> None:
    """Raise an error, and lend no instance again, if a test changed the functions or settings of one."""
    if not all(instance.has_its_own() for instance in _IDLE):
        while _IDLE:
            _IDLE.pop().close()
        raise AssertionError(
            "a test of this module changed functions or settings that others share: use ldpsql.connect() in it, or see _SET"
        )
