"""An instance of DuckDB with the functions attached, which a test hands to the next one if it leaves it as it found it.

To attach takes 0.15 s, and hundreds of tests want a connection; to look whether anything was changed takes a tenth of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.functions import quoted

_STATE = """
    SELECT count(*), bit_xor(hash(database_name, path)) FROM duckdb_databases()
    UNION ALL SELECT count(*), bit_xor(hash(name, value)) FROM duckdb_settings()
    UNION ALL SELECT count(*), bit_xor(hash(database_name, schema_name)) FROM duckdb_schemas()
    UNION ALL SELECT count(*), bit_xor(hash(database_name, type_name, type_oid)) FROM duckdb_types()
    UNION ALL SELECT count(*), bit_xor(hash(sequence_name)) FROM duckdb_sequences()
    UNION ALL SELECT count(*), NULL FROM duckdb_tables()
    UNION ALL SELECT count(*), NULL FROM duckdb_views()
    UNION ALL SELECT count(*), NULL FROM duckdb_secrets()"""
_MADE = """
    SELECT 'VIEW', schema_name, view_name FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT 'TABLE', schema_name, table_name FROM duckdb_tables()"""
_FUNCTIONS = """
    SELECT count(*) FILTER (NOT made), bit_xor(hash(database_name, schema_name, function_name, function_oid)) FILTER (NOT made),
           list(DISTINCT [if(function_type = 'table_macro', 'MACRO TABLE', 'MACRO'), schema_name, function_name]) FILTER (made)
    FROM (SELECT *, database_name = 'memory' AND macro_definition IS NOT NULL AND function_name <> 'city' AS made
          FROM duckdb_functions())"""


class Instance:
    """A database in memory, with the functions attached and the macro ``city``."""

    def __init__(self) -> None:
        self._con = ldpsql.connect()
        self._con.execute("CREATE MACRO city() AS ldp.krr(1.0, ['Lima', 'Oslo', 'Rome', 'Kyiv'])")
        self._state, self._functions = self._con.execute(_STATE).fetchall(), self._con.execute(_FUNCTIONS).fetchall()[0][:2]
        self._version = self._catalog_version()

    def connection(self) -> DuckDBPyConnection:
        """Return a connection, which has temporary tables, prepared statements and a search path of its own."""
        return self._con.cursor()

    def tidied(self) -> bool:
        """Drop tables, views and macros; return whether all else is as it was."""
        if self._version is not None and self._catalog_version() == self._version:  # nothing ran but queries
            return True
        try:
            same = self._without_what_was_made()
        except duckdb.Error:
            return False
        self._version = self._catalog_version()
        return same

    def _catalog_version(self) -> object:
        """Return what changes with the catalog; None if this DuckDB does not say, for the method is not a public one."""
        version = getattr(self._con, "_catalog_version", None)
        return None if version is None else version()

    def _without_what_was_made(self) -> bool:
        """Drop tables, views and macros; the functions are listed once, which takes DuckDB 20 ms."""
        self._drop(self._con.execute(_MADE).fetchall())
        ((number, digest, macros),) = self._con.execute(_FUNCTIONS).fetchall()
        self._drop(macros or [])
        return (number, digest) == self._functions and self._con.execute(_STATE).fetchall() == self._state

    def _drop(self, made: Iterable[Sequence[str]]) -> None:
        for kind, schema, name in made:
            self._con.execute(f"DROP {kind} memory.{quoted(schema)}.{quoted(name)}{'' if 'MACRO' in kind else ' CASCADE'}")

    def close(self) -> None:
        """Close the database."""
        self._con.close()


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
