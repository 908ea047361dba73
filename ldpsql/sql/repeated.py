"""Expressions that DuckDB evaluates several times for a row: a draw inside of one gives several reports.

DuckDB turns them into others in which an operand occurs more than once, and cannot know that each of these would draw.
"""

from __future__ import annotations

from sqlglot import exp

from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.structure import parsed

# Macros of DuckDB in which a parameter occurs more than once, and functions over a constant list, which become IN.
MACROS = frozenset({
    "array_pop_back", "array_to_string", "array_to_string_comma_default", "fmod", "json_group_array", "json_group_object",
    "map_contains_entry", "nullif", "split_part", "weighted_avg",
})  # fmt: skip
_OVER_LISTS = frozenset({"array_contains", "array_has", "contains", "list_contains", "list_has"})


def repeats(sql: str, drawing: DrawingFunctions) -> bool:
    """Return whether a statement draws inside of an expression that DuckDB may evaluate several times for a row."""
    tree = parsed(sql)
    return tree is not None and any(_draws(operand, drawing) for operand in _repeated(tree))


def _repeated(tree: exp.Expr) -> list[exp.Expr]:
    """Return the operands that DuckDB may evaluate several times."""
    compared = [node.this for node in tree.find_all(exp.In) if len(node.expressions) > 1]
    cases = [node.this for node in tree.find_all(exp.Case) if node.this is not None and len(node.args["ifs"]) > 1]
    return [*compared, *cases, *(call for call in tree.find_all(exp.Func) if _names(call) & (MACROS | _OVER_LISTS))]


def _names(call: exp.Func) -> set[str]:
    names = [call.name] if isinstance(call, exp.Anonymous) else type(call).sql_names()
    return {name.lower() for name in names}


def _draws(operand: exp.Expr, drawing: DrawingFunctions) -> bool:
    return drawing.named(call.name for call in operand.find_all(exp.Anonymous))
