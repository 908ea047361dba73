"""The structure of a SQL statement, as sqlglot parses it; for what it cannot parse, the worse is assumed.

sqlglot takes a tenth of a second to import, so this module is imported only for a statement that perturbs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import ErrorLevel, exp, parse
from sqlglot.errors import ParseError, SqlglotError

from ldpsql.sql.drawing import Statement

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
