"""The structure of a SQL statement, as sqlglot parses it; for what it cannot parse, the worse is assumed.

sqlglot takes a tenth of a second to import, so this module is imported only for a statement that perturbs.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import duckdb
from sqlglot import ErrorLevel, exp, parse
from sqlglot.errors import ParseError, SqlglotError

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


_ROWS = "perturb_rows"
_STORING = {"insert", "copy", "update", "merge", "with"}


def parsed(sql: str) -> exp.Expr | None:
    """Return the tree of a statement, or None if sqlglot cannot parse all of it."""
    with _quiet():
        try:
            trees = _trees(sql)
        except (SqlglotError, RecursionError):
            return None
    if len(trees) != 1 or trees[0] is None or trees[0].find(exp.Command):
        return None
    return trees[0]


def _trees(sql: str) -> list[exp.Expr | None]:
    """Return the trees of statements; a macro may have the name of a function that needs arguments, such as ``day()``."""
    try:
        return parse(sql, dialect="duckdb", error_level=ErrorLevel.RAISE)
    except ParseError as error:
        if not all(str(part["description"]).startswith("Required keyword") for part in error.errors):
            raise
        return parse(sql, dialect="duckdb", error_level=ErrorLevel.IGNORE)


def only_declared(sql: str) -> frozenset[str]:
    """Return the names before a parenthesis that are not calls: tables and CTEs with a list of columns."""
    tree = parsed(sql)
    if tree is None:
        return frozenset()
    called = {name.lower() for call in tree.find_all(exp.Func) for name in (call.name, *type(call).sql_names())}
    tables = {schema.this.name.lower() for schema in tree.find_all(exp.Schema)}
    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias) if alias.args.get("columns")}
    return frozenset(tables | aliases) - called


def reads_stored(sql: str) -> bool:
    """Return whether a query reads tables, views or files by name, and not only its arguments."""
    tree = parsed(sql)
    if tree is None:
        return True
    within = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    sources = (table for table in tree.find_all(exp.Table) if table.find_ancestor(exp.From, exp.Join, exp.Update))
    return any(
        table.name.lower() not in within if isinstance(table.this, exp.Identifier) else _is_rows(table) for table in sources
    )


def keeps_order(statement: Statement) -> bool:
    """Return whether a statement stores rows in the order in which it reads them, without ORDER BY random() at its end."""
    tree = parsed(statement.sql)
    if tree is None:
        return bool(_STORING & set(statement.words[:1])) or {"create", "table"} <= set(statement.words)
    if isinstance(tree, exp.Update):
        return True
    query = stored_query(tree)
    return query is not None and query.find(exp.From) is not None and not _shuffled(query)


def computed_columns(statement: Statement) -> str:
    """Return a CREATE TABLE or ALTER TABLE without its defaults, or an empty string for other statements.

    Defaults are left out because they are drawn once, when a row is inserted, and stored.
    """
    tree = parsed(statement.sql)
    if tree is None:
        return statement.sql if statement.words[:1] == ["alter"] else ""
    if not isinstance(tree, exp.Alter) and not (isinstance(tree, exp.Create) and tree.expression is None):
        return ""
    for default in list(tree.find_all(exp.DefaultColumnConstraint)):
        default.set("this", exp.null())
    return tree.sql("duckdb")


def stored_query(tree: exp.Expr) -> exp.Expr | None:
    """Return the query whose rows a statement stores, or None if it stores no rows of a query."""
    if isinstance(tree, exp.Create):
        return tree.expression if tree.kind == "TABLE" else None
    if isinstance(tree, exp.Insert):
        return tree.expression
    if isinstance(tree, exp.Copy):
        return tree.this if isinstance(tree.this, exp.Query) else None
    return tree.args["using"] if isinstance(tree, exp.Merge) else None


def _shuffled(query: exp.Expr) -> bool:
    """Return whether the rows of a query come in random order."""
    order = query.args.get("order")
    if order is not None:
        return isinstance(order.expressions[0].this, exp.Rand | exp.Uuid) or _by_all_columns(query, order)
    if isinstance(query, exp.Subquery | exp.Paren):
        return _shuffled(query.this)
    tables = list(query.find_all(exp.Table, exp.UDTF, exp.Values))
    return bool(tables) and all(map(_is_rows, tables))


def _by_all_columns(query: exp.Expr, order: exp.Expr) -> bool:
    """Return whether rows are sorted by all their columns, so that their order tells nothing that they do not show."""
    keys = {key.this.name.lower() for key in order.expressions if isinstance(key.this, exp.Column | exp.Literal)}
    columns = query.named_selects if isinstance(query, exp.Query) and not query.is_star else []
    return bool(columns) and all({name.lower(), str(place)} & keys for place, name in enumerate(columns, 1))


def _is_rows(table: exp.Expr) -> bool:
    """Return whether this is a call of ``perturb_rows``, which reads a table and returns its rows in random order."""
    return isinstance(table.this, exp.Anonymous) and table.this.name.lower() == _ROWS


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep sqlglot from logging what it cannot parse."""
    logger = logging.getLogger("sqlglot")

    def nothing(_: logging.LogRecord) -> bool:
        return False

    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)
