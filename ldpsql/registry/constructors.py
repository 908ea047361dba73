"""SQL constructors of mechanisms: ``ldp.krr(epsilon, domain)`` is a STRUCT of the name, the parameters and the reports.

``ldp.perturb`` picks the report from the list that the constructor makes. So a list that held more than the parameters say,
such as a column of the table, would give it away whatever is drawn: the SQL of a third party is read before it is used.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ldpsql.engine.functions import struct_text
from ldpsql.errors import PluginError
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.spec import Parameter, sql_literal
from ldpsql.names import MISSING, WRITTEN
from ldpsql.quoting import quoted, text_literal

_HARMLESS = ("CONSTANT", "CASE", "CAST", "OPERATOR", "COMPARISON", "CONJUNCTION", "BETWEEN", "TYPE")


def constructor(name: str, mechanism: type[Mechanism], *, trusted: bool) -> str:
    """Return the macro that makes a mechanism: scalars travel as text, so that decimals stay exact.

    Raises:
        PluginError: if the mechanism is not trusted and its SQL reads anything but its parameters.

    """
    parameters = mechanism.parameters()
    defaults = {p.name: sql_literal(p.default) for p in parameters if not p.required}
    own = {"domain": mechanism.sql_domain} if mechanism.sql_domain else {}
    if own or mechanism.sql_reports != Mechanism.sql_reports:  # else the reports are the values of the parameter `domain`
        own["reports"] = mechanism.sql_reports
    summary = text_literal(mechanism.summary())
    if not trusted:
        check_sql(name, [p.name for p in parameters], [*own.values()], [*defaults.values(), summary])
        own = {key: f"({text}\n)" for key, text in own.items()}  # as it was read, with a comment at its end or without
    arguments = [f"{quoted(p.name)} := {defaults[p.name]}" if p.name in defaults else quoted(p.name) for p in parameters]
    fields = {"mechanism": _named(name, parameters)} | {p.name: _expression(p) for p in parameters} | own
    required = [p.name for p in parameters if p.required]
    fewer = (f", ({', '.join(map(quoted, required[:n]))}) AS {_missing(name, required, n)}" for n in range(1, len(required)))
    body, before = struct_text(fields), ""
    if trusted and any(mechanism.sql_reports.count(quoted(p.name)) > 1 for p in parameters if p.is_list):
        before, body = _once(name, fields, own)
    made = f"{before}CREATE OR REPLACE MACRO ldp.{name}({', '.join(arguments)}) AS {body}{''.join(fewer)};"
    return f"{made}\nCOMMENT ON MACRO ldp.{name} IS {summary};"


def _once(name: str, fields: dict[str, str], own: dict[str, str]) -> tuple[str, str]:
    """Return a macro of the fields, and SQL that calls it with parameters that DuckDB reads once, as often as it names them."""
    given = {field: sql for field, sql in fields.items() if field not in own}
    inner = struct_text({field: quoted(field) for field in given} | own)
    macro = f"CREATE OR REPLACE MACRO ldp._{name}({', '.join(map(quoted, given))}) AS {inner};\n"
    passed = ", ".join(f"s.{quoted(field)}" for field in given)
    # list_reduce, because DuckDB computes a constant list while it binds a subscript, each time
    return macro, f"list_reduce(list_transform([{struct_text(given)}], lambda s: ldp._{name}({passed})), lambda one, _: one)"


def _missing(name: str, required: list[str], n: int) -> str:
    """Return SQL that refuses a call with the first ``n`` parameters only."""
    call = text_literal(f"{name}({', '.join(required)})")
    given = f"alias(CASE WHEN false THEN {quoted(required[0])} END)"  # CREATE MACRO would compute it without a parameter
    return f"system.main.json_remove('{{}}', {MISSING}({call}, {text_literal(required[n])}, {given}))"


def _named(name: str, parameters: list[Parameter]) -> str:
    """Return the SQL of a mechanism's name, which first refuses a wrong epsilon, long lists and what is not a list.

    The optimizer would compute a constant list before any function of ours sees it. json_remove reads a constant path when a
    statement is bound, and lets errors out, which DuckDB 2.0.1 puts off in other functions that take any argument. alias()
    returns the SQL of its argument, which is not computed in a branch that is not taken.
    The parameters are mentioned as seldom as possible: DuckDB binds a list of constants again for each mention.
    """
    lists = [
        f"{text_literal(p.name if p.type == 'list' or not p.is_list else '')}, alias(CASE WHEN false THEN {quoted(p.name)} END)"
        for p in parameters
        if p.is_list or p.name == "epsilon"
    ]
    checked = f"system.main.json_remove('{{}}', {WRITTEN}({', '.join(lists)}))"
    return f"CASE WHEN {checked} IS NOT NULL THEN '{name}' END" if lists else f"'{name}'"


def _expression(parameter: Parameter) -> str:
    return quoted(parameter.name) if parameter.is_list else f"{quoted(parameter.name)}::VARCHAR"


def check_sql(name: str, parameters: list[str], expressions: list[str], constants: list[str]) -> None:
    """Refuse SQL of a mechanism that reads anything but its parameters."""
    plain = all(type(text) is str for text in (*parameters, *expressions, *constants))
    if not plain or not all(parameter.isidentifier() for parameter in parameters):
        raise PluginError(f"the parameters and the SQL of {name} must be plain text", "see ldpsql.Mechanism")
    allowed = frozenset(parameter.lower() for parameter in parameters)
    texts = [(text, allowed) for text in expressions] + [(text, frozenset[str]()) for text in constants]
    trees = [(_tree(text), names) for text, names in texts]
    if not all(tree is not None and _reads_only(tree, names) for tree, names in trees):
        raise PluginError(
            f"sql_reports or sql_domain of {name} reads more than its parameters",
            "write an expression of parameters and functions whose result depends on nothing else",
        )


def _tree(text: str) -> Any:
    """Return an expression as DuckDB reads it; None if it is not one expression."""
    # The line break ends a comment; a bracket too many would end the statement, and the text would be more than one node.
    (tree,) = _reader().execute("SELECT json_serialize_sql('SELECT (' || $1 || chr(10) || ')')", [text]).fetchone() or ("",)
    read = json.loads(tree)
    if read["error"] or len(read["statements"]) != 1:
        return None
    node = read["statements"][0]["node"]
    single = node["type"] == "SELECT_NODE" and len(node["select_list"]) == 1 and not node["modifiers"]
    bare = single and node["from_table"]["type"] == "EMPTY" and not node["where_clause"] and not node["cte_map"]["map"]
    return node["select_list"][0] if bare else None


def _reads_only(node: Any, names: frozenset[str]) -> bool:
    """Whether an expression reads only these names and the parameters of its own lambdas."""
    if isinstance(node, list):
        return all(_reads_only(item, names) for item in node)
    if not isinstance(node, dict):
        return True
    kind = node.get("class")
    if kind == "COLUMN_REF":
        return len(node["column_names"]) == 1 and node["column_names"][0].lower() in names
    if kind == "LAMBDA":
        return _reads_only(node["expr"], names | _lambda_names(node["lhs"]))
    if kind == "FUNCTION" and (node["schema"] or node["catalog"] or node["function_name"].lower() not in _functions()):
        return False
    return kind in (None, "FUNCTION", *_HARMLESS) and all(_reads_only(part, names) for part in node.values())


def _lambda_names(node: Any) -> frozenset[str]:
    """Return the names of the parameters of a lambda."""
    if isinstance(node, list):
        return frozenset().union(*map(_lambda_names, node))
    if not isinstance(node, dict):
        return frozenset()
    own = frozenset({node["column_names"][0].lower()} if node.get("class") == "COLUMN_REF" else ())
    return own.union(*map(_lambda_names, node.values()))


@cache
def _reader() -> Any:
    import duckdb  # noqa: PLC0415  # only where a third party offers a mechanism

    return duckdb.connect(config={"enable_external_access": "false"})


@cache
def _functions() -> frozenset[str]:
    """Return DuckDB's functions whose result depends on their arguments alone."""
    listed = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar' AND stability = 'CONSISTENT'"
    return frozenset(name.lower() for (name,) in _reader().execute(listed).fetchall())
