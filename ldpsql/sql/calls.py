"""Calls of functions in parsed SQL: those of ldpsql, and those that draw, with their mechanisms."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from ldpsql.engine.functions import Macros
from ldpsql.registry.registry import registry
from ldpsql.sql.drawing import DrawingFunctions

_ROWS = "perturb_rows"
_OF_A_MECHANISM = {"perturb", "perturb_once"}  # (x, m, ...)
_OF_DUCKDB = {"mean", "quantile", "variance"}  # without a schema, these are DuckDB's own
_UNNAMED = "m"  # for messages: a mechanism that SQL does not name


class Calls:
    """Distinguishes calls of ldpsql and of macros that call it from other calls."""

    def __init__(self, drawing: DrawingFunctions, macros: frozenset[str] = frozenset()) -> None:
        """``macros`` are names of the user's macros that call a function of ldpsql."""
        offered = [function for _, functions in registry().functions() for function in functions]
        own = {name.lower() for function in offered if isinstance(function, Macros) for name in function.names()}
        self._ours, self._drawing = own - _OF_DUCKDB, drawing
        self._macros = macros

    def of_ldpsql(self, node: exp.Expr) -> bool:
        """Return whether a node is a call of a function of ldpsql, or of a macro that calls one."""
        if isinstance(node, exp.Dot):
            return _leftmost(node) == "ldp" or (isinstance(node.expression, exp.Anonymous) and self._named(node.expression))
        return isinstance(node, exp.Anonymous) and self._named(node)

    def _named(self, call: exp.Anonymous) -> bool:
        return call.name.lower() in self._ours or call.name.lower() in self._macros

    def drawn(self, node: exp.Expr) -> str:
        """Return the mechanism of a call that draws reports, as SQL; an empty string for anything else."""
        call = node.expression if isinstance(node, exp.Dot) else node
        if not isinstance(call, exp.Anonymous):
            return ""
        if call.name.lower() in _OF_A_MECHANISM and len(call.expressions) > 1:
            return call.expressions[1].sql("duckdb", normalize_functions=False)
        return _UNNAMED if self._drawing.named([call.name]) else ""

    def drawn_rows(self, call: exp.Expr) -> Iterator[tuple[str, str]]:
        """Yield the columns that ``perturb_rows`` draws, each with its mechanism."""
        if not isinstance(call, exp.Anonymous) or call.name.lower() != _ROWS:
            return
        for pair in (pair for struct in call.find_all(exp.Struct) for pair in struct.expressions):
            if isinstance(pair, exp.PropertyEQ):
                yield pair.this.name, pair.expression.sql("duckdb", normalize_functions=False)


def argument_names(call: exp.Expr) -> list[str]:
    """Return the names and strings that are arguments of a call, also in a list."""
    arguments = [argument for argument in call.args.get("expressions") or [] if isinstance(argument, exp.Expr)]
    listed = [item for argument in arguments for item in (argument.expressions or [argument])]
    return [item.name for item in listed if isinstance(item, exp.Literal | exp.Column)]


def _leftmost(node: exp.Expr) -> str:
    while isinstance(node, exp.Dot):
        node = node.this
    return node.name.lower()
