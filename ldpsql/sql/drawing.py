"""Which functions draw new reports at every call: those that the registry marks as drawing, and all macros that call them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from threading import Lock
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.caches import ByteCache
from ldpsql.engine.functions import MARK, Macros, Scalar
from ldpsql.names import ROWS_QUERY, WRITTEN_CALL
from ldpsql.sql.tokens import Statement, statements

IN_PYTHON = frozenset({"perturb", "perturb_batches", "perturb_copy", "perturb_once", "perturb_table"})  # that draw
_RUNS_TEXT = "query"  # DuckDB's function that runs a string as a query
_RUNNING = frozenset({_RUNS_TEXT, "json_execute_serialized_sql"})
_MACROS = """SELECT database_name, schema_name, function_name, macro_definition FROM duckdb_functions()
             WHERE macro_definition IS NOT NULL AND NOT internal"""
UNKNOWN = "it builds SQL when it runs, so whether it perturbs cannot be seen beforehand"


_BYTES_OF_A_CHARACTER = 50  # of SQL: at most this much is held by its tokens, and by what is derived from them


def _weight(sql: str, _: list[Statement]) -> int:
    """Return about the bytes of a definition; to follow its references would take longer than to create all macros."""
    return _BYTES_OF_A_CHARACTER * (len(sql) + _BYTES_OF_A_CHARACTER)


# Our own macros are the same in every database, and to read them takes half as long as to create them.
_DEFINITIONS: ByteCache[str, list[Statement]] = ByteCache(1 << 24, _weight)


class Draws(IntEnum):
    """What SQL draws; a larger member is worse."""

    NOTHING = 0
    UNKNOWN = 1
    REPORTS = 2


class DrawingFunctions:
    """The functions that draw, and those that run text as SQL; macros are added as they are read."""

    def __init__(self, drawing: frozenset[str] | None = None, running: frozenset[str] = _RUNNING) -> None:
        self.drawing = frozenset(_scalars()) if drawing is None else drawing
        self.running = running
        self._macros: list[tuple[str, Statement]] = []
        self._lock = Lock()

    @classmethod
    def of_registry(cls) -> DrawingFunctions:
        """Return the functions of all plugins, for SQL that is read without a connection."""
        offered = [function for _, functions in _offered() for function in functions]
        made, texts = cls(), [function.text for function in offered if isinstance(function, Macros)]
        made._add(_created(statement for text in texts for statement in _DEFINITIONS.remembered(text, statements)))
        return made

    def define(self, macros: Iterable[tuple[str, str]]) -> None:
        """Add macros, each a pair of its name and its definition."""
        self._add([(name.lower(), statement) for name, sql in macros for statement in _DEFINITIONS.remembered(sql, statements)])

    def define_all(self, sql: str) -> None:
        """Add all macros that a text creates."""
        self._add(_created(statements(sql)))

    def read(self, con: DuckDBPyConnection, *, ours_known: bool = False) -> list[tuple[str, str]]:
        """Add the macros of a connection; return the user's, each a pair of its name and its definition.

        Args:
            con: the connection.
            ours_known: whether the macros in the catalogs of ldpsql have been added.

        """
        rows = con.sql(_MACROS).fetchall()
        ours = {database for database, _, name, _ in rows if name == MARK}
        self.define((name, definition) for database, _, name, definition in rows if not (ours_known and database in ours))
        return [(f"{schema}.{name}", definition) for database, schema, name, definition in rows if database not in ours]

    def of(self, sql: str) -> Draws:
        """Return what the statements of a text draw when they run; creating a macro draws nothing."""
        return max((self.draws(statement) for statement in statements(sql) if not statement.macro), default=Draws.NOTHING)

    def draws(self, statement: Statement) -> Draws:
        """Return what a statement draws, by itself, through macros, or in a string that it runs as SQL."""
        drawn = self._calls(statement) & self.drawing
        if drawn and not _only_declared(statement, drawn):
            return Draws.REPORTS
        return Draws.UNKNOWN if self._hides(statement) else Draws.NOTHING

    def named(self, names: Iterable[str]) -> bool:
        """Return whether one of these names is a function that draws."""
        return any(name.lower() in self.drawing for name in names)

    def _add(self, macros: list[tuple[str, Statement]]) -> None:
        """Add macros, and determine which macros now draw or run text."""
        if not macros:
            return
        with self._lock:
            self._macros += macros
            while new := {name for name, body in self._macros if self._hides(body)} - self.running:
                self.running |= new
            while new := {name for name, body in self._macros if self._calls(body) & self.drawing} - self.drawing:
                self.drawing |= new

    def _calls(self, statement: Statement) -> frozenset[str]:
        """Return the names of the functions that a statement calls, also in strings that it runs as SQL."""
        if not statement.calls & self.running:
            return statement.calls
        return statement.calls.union(*(self._calls(inner) for text in statement.strings for inner in statements(text)))

    def _hides(self, statement: Statement) -> bool:
        """Return whether a statement runs SQL that is not written in it."""
        running = statement.calls & self.running
        if running - {_RUNS_TEXT}:
            return True
        if not running:
            return False
        if not statement.only_constants(_RUNS_TEXT, or_calls=(WRITTEN_CALL, ROWS_QUERY)):
            return True
        return any(self._hides(inner) for text in statement.strings for inner in statements(text))


def _created(read: Iterable[Statement]) -> list[tuple[str, Statement]]:
    """Return the name and the body of each macro that statements create."""
    return [(statement.macro, statement.body) for statement in read if statement.macro]


def _only_declared(statement: Statement, names: frozenset[str]) -> bool:
    """Return whether these are only names of tables with a list of columns, not calls."""
    from ldpsql.sql.structure import only_declared  # noqa: PLC0415  # loads the parser

    return names <= only_declared(statement.sql)


def _scalars() -> Iterable[str]:
    """Return the names of the Python functions that draw."""
    for _, functions in _offered():
        yield from (f.name.lower() for f in functions if isinstance(f, Scalar) and f.draws)


def _offered() -> list[tuple[Any, list[Scalar | Macros]]]:
    """Return the functions of all plugins."""
    from ldpsql.registry.registry import registry  # noqa: PLC0415  # a connection knows its functions without the plugins

    return registry().functions()
