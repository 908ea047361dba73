"""The SQL of dbt models without Jinja: references become names, and every line stays where it is."""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TAG = re.compile(r"\{%-?(.*?)-?%\}", re.DOTALL)
_VALUE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_REF = re.compile(r"""\s*ref\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"].*\)\s*""", re.DOTALL)
_SOURCE = re.compile(r"""\s*source\(\s*['"]([^'"]+)['"]\s*,\s*['"]([^'"]+)['"]\s*\)\s*""", re.DOTALL)
_SET = re.compile(r"\s*set\s+(\w+)\s*=\s*(.*)", re.DOTALL)
_NOT_SQL = re.compile(r"\{%-?\s*(macro|test|docs)\b.*?\{%-?\s*end\1\s*-?%\}", re.DOTALL)
_ELSE = re.compile(r"(\{%-?\s*)(?:else|elif\b.*?)(\s*-?%\})(.*?)(?=\{%-?\s*endif)", re.DOTALL)


def is_template(text: str) -> bool:
    """Return whether a text has Jinja in it."""
    return "{{" in text or "{%" in text


def plain_sql(text: str, model: str, *, branches: bool = True) -> str:
    """Return the SQL of a model with a name for each reference; other values become the name ``x``.

    Args:
        text: SQL with Jinja.
        model: the name of the model, which ``this`` stands for.
        branches: whether to keep what follows ``else``, next to what precedes it.

    """
    for pattern in (_COMMENT, _NOT_SQL):
        text = pattern.sub(_lines, text)
    if not branches:
        text = _ELSE.sub(_lines, text)
    names = {"this": model}
    for match in _TAG.finditer(text):
        if (assigned := _SET.fullmatch(match[1])) and (relation := _relation(assigned[2])):
            names[assigned[1]] = relation
    return _VALUE.sub(lambda match: _name(match[1], names) + _lines(match), _TAG.sub(_lines, text))


def model_of(path: Path) -> str:
    """Return the name of the model, or of the query, that a file holds."""
    return path.stem.lower()


def _relation(expression: str) -> str:
    if match := _REF.fullmatch(expression):
        return match[1]
    match = _SOURCE.fullmatch(expression)
    return f"{match[1]}.{match[2]}" if match else ""


def _name(expression: str, names: dict[str, str]) -> str:
    stripped = expression.strip()
    if relation := _relation(expression) or names.get(stripped):
        return relation
    if stripped.startswith("config("):
        return ""
    return stripped if stripped.isidentifier() else "x"


def _lines(match: re.Match[str]) -> str:
    """Return the line breaks of what is left out."""
    return "\n" * match[0].count("\n")
