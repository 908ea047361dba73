"""Which functions of a statement draw new reports at every call: those marked as drawing, and all macros that call them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.caches import ByteCache
from ldpsql.engine.functions import MARK, Macros, Scalar
from ldpsql.names import READING, ROWS_QUERY, WRITTEN_CALL

# SQL text as DuckDB's own tokenizer reads it: statements, the functions that they call, macros, constants.
#
# The tokenizer never fails, and it takes for comments and strings exactly what DuckDB takes for them.

_TO_MACRO = {"create", "or", "replace", "temp", "temporary", "macro", "function", "if", "not", "exists"}
_DOLLARS = re.compile(r"\$\w*\$")
_NOT_IN_NAMES = re.compile(r"[^\w$]")  # DuckDB skips the blanks of all scripts, Python's strip() only some of them


@dataclass(frozen=True, slots=True)
class Token:
    """A word, sign, constant or comment; ``offset`` is its first byte in the UTF-8 text."""

    kind: duckdb.token_type
    text: str
    offset: int

    @property
    def is_name(self) -> bool:
        """Return whether this can be a name: an identifier, or a keyword, which may also name a function."""
        return self.kind in (duckdb.token_type.identifier, duckdb.token_type.keyword)

    @property
    def is_string(self) -> bool:
        """Return whether this is a string constant."""
        return self.kind is duckdb.token_type.string_const

    @property
    def name(self) -> str:
        """Return the name in lowercase, without its quotes."""
        if self.text[:1] in ('"', "`"):
            return self.text[1:-1].replace('""', '"').lower()
        return _NOT_IN_NAMES.sub("", self.text).lower()

    @property
    def constant(self) -> str:
        """Return the text of a string constant; that of ``E'...'`` keeps its backslashes, which do not matter for names."""
        if dollars := _DOLLARS.match(self.text):
            return self.text[dollars.end() : -dollars.end()]
        return self.text.partition("'")[2].removesuffix("'").replace("''", "'")


@dataclass(frozen=True)
class Statement:
    """One SQL statement: its text, its first line, and its tokens without comments."""

    sql: str
    line: int
    tokens: tuple[Token, ...]

    @cached_property
    def calls(self) -> frozenset[str]:
        """Return the names before a parenthesis, in lowercase: the functions that are called, and possibly others."""
        return frozenset(token.name for token, after in pairwise(self.tokens) if token.is_name and after.text.startswith("("))

    @cached_property
    def strings(self) -> list[str]:
        """Return the string constants."""
        return [token.constant for token in self.tokens if token.is_string]

    @cached_property
    def words(self) -> list[str]:
        """Return the names and keywords at the beginning, in lowercase, up to the first sign."""
        signs = (i for i, token in enumerate(self.tokens) if not token.is_name)
        return [token.name for token in self.tokens[: next(signs, None)]]

    @cached_property
    def macro(self) -> str | None:
        """Return the name of the macro that this statement creates, or None if it creates none."""
        if self.words[:1] != ["create"] or not {"macro", "function"} & set(self._head(_TO_MACRO)):
            return None
        opening = next((i for i, token in enumerate(self.tokens) if token.text.startswith("(")), 0)
        return self.tokens[opening - 1].name

    @cached_property
    def body(self) -> Statement:
        """Return what follows the name of the macro that this statement creates: its parameters and its definition."""
        opening = next((i for i, token in enumerate(self.tokens) if token.text.startswith("(")), 0)
        return Statement("", self.line, self.tokens[opening:])

    def after(self, word: str) -> str:
        """Return the text after the first such keyword, or an empty string."""
        behind = next((after for token, after in pairwise(self.tokens) if token.is_name and token.name == word), None)
        return "" if behind is None else self.sql.encode()[behind.offset - self.tokens[0].offset :].decode()

    def only_constants(self, function: str, *, or_calls: tuple[str, ...]) -> bool:
        """Return whether the argument of every call of a function is a string constant, or a call of one of others."""
        calls = [i for i, token in enumerate(self.tokens) if token.is_name and token.name == function]
        return all(
            self._is_constant(i + 2) or self._is_call(i + 2, or_calls)
            for i in calls
            if len(self.tokens) > i + 1 and self.tokens[i + 1].text.startswith("(")
        )

    def _is_constant(self, place: int) -> bool:
        """Return whether a string constant and a closing parenthesis are at a place."""
        at = self.tokens[place : place + 2]
        return len(at) == 2 and at[0].is_string and at[1].text.startswith(")")

    def _is_call(self, place: int, functions: tuple[str, ...]) -> bool:
        """Return whether a call of one of these functions is at a place, with or without its schema."""
        at = itertools.takewhile(lambda token: token.is_name or token.text == ".", self.tokens[place:])
        return "".join([token.name for token in at if token.is_name][-1:]) in functions

    def _head(self, words: set[str]) -> list[str]:
        """Return the words at the beginning that belong to a set."""
        others = (i for i, word in enumerate(self.words) if word not in words)
        return self.words[: next(others, None)]


def statements(sql: str) -> list[Statement]:
    """Return the statements of a text, each with its first line."""
    encoded = sql.replace("\0", " ").encode("utf-8", "replace")
    read, begun, made = _tokens(encoded), 0, []
    for i, token in enumerate(read):
        if token.text.startswith(";"):
            made.append(_statement(encoded, read[begun:i], token.offset))
            begun = i + 1
    made.append(_statement(encoded, read[begun:], len(encoded)))
    return [statement for statement in made if statement.tokens]


def _tokens(encoded: bytes) -> list[Token]:
    """Return the tokens of a text, without comments."""
    marks = duckdb.tokenize(encoded.decode())
    ends = [*(offset for offset, _ in marks), len(encoded)][1:]
    return [
        Token(kind, encoded[offset:end].decode("utf-8", "replace").strip(), offset)
        for (offset, kind), end in zip(marks, ends, strict=False)
        if kind is not duckdb.token_type.comment
    ]


def _statement(encoded: bytes, tokens: list[Token], end: int) -> Statement:
    """Return the statement made of these tokens; ``end`` is the byte of the text after it."""
    start = tokens[0].offset if tokens else end
    return Statement(encoded[start:end].decode("utf-8", "replace"), encoded[:start].count(b"\n") + 1, tuple(tokens))


IN_PYTHON = frozenset({"perturb", "perturb_batches", "perturb_copy", "perturb_once", "perturb_table"})  # that draw
_RUNS_TEXT = "query"  # DuckDB's function that runs a string as a query
_WRITING = (WRITTEN_CALL, ROWS_QUERY, READING)  # our functions that write such strings
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
        if not statement.only_constants(_RUNS_TEXT, or_calls=_WRITING):
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
