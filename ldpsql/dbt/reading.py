"""Whether the text of a model perturbs: SQL with Jinja, before dbt compiles it, or Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldpsql.sql.drawing import IN_PYTHON, DrawingFunctions, Draws

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_CALLED = re.compile(r"(\w+)[\"`]?\s*\(")
_MAKES_A_MACRO = re.compile(r"\bcreate\s+(or\s+replace\s+)?(temp(orary)?\s+)?(macro|function)\b", re.IGNORECASE)


def draws_of(text: str, drawing: DrawingFunctions, *, python: bool = False) -> Draws:
    """Return what a text draws; what Jinja inserts is read when dbt runs it."""
    if python:
        return _draws_of_python(text, drawing)
    if not text:
        return Draws.NOTHING
    if drawing.named(_CALLED.findall(" ".join(_JINJA.findall(_COMMENT.sub(" ", text))))):
        return Draws.REPORTS
    return drawing.of(_without_jinja(text))


def macros_in(text: str) -> str:
    """Return the SQL of a text if it creates macros in the database, otherwise the empty string."""
    return _without_jinja(text) if _MAKES_A_MACRO.search(text) else ""


def _without_jinja(text: str) -> str:
    return _JINJA.sub(" x ", _COMMENT.sub(" ", text))


def _draws_of_python(code: str, drawing: DrawingFunctions) -> Draws:
    """Return what Python code draws: through functions of ldpsql, or in strings that are SQL."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return Draws.UNKNOWN
    names = set(_names(tree))
    if names & IN_PYTHON or drawing.named(names):
        return Draws.REPORTS
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return max(map(drawing.of, strings), default=Draws.NOTHING)


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of variables, attributes and imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
