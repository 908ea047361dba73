"""Specs as text, such as ``krr(epsilon=1, domain=['a', 'b'])``: reading the call, and binding its values to parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from io import StringIO
from threading import Lock
from tokenize import TokenError, generate_tokens, untokenize
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldpsql.domains.written import check_length
from ldpsql.errors import InvalidSpec
from ldpsql.mechanisms.parts import Nested
from ldpsql.mechanisms.spec import Spec

_EXAMPLES = {"mechanism": "krr(epsilon=1, domain=['a', 'b'])", "estimator": "ibu(max_iterations=1000)"}


def read_call(text: str, kind: str = "mechanism") -> tuple[str, list[Any], dict[str, Any]]:
    """Return name, positional and named values of ``name(value, parameter=value, ...)``, with ``=`` or ``:=``.

    Values are literals of Python, true, false and NULL as in SQL, or ``range`` of whole numbers; nothing else is evaluated.

    Raises:
        InvalidSpec: if the text is anything else, or has two strings without a comma between them.
        InvalidParameter: if a range is longer than a domain may be.

    """
    if _MISSPELT.fullmatch(text):
        return text, [], {}  # there is no such name, and the message proposes one that is written with _
    example = f"for example {_EXAMPLES.get(kind, 'name(parameter=value)')}, without ldp. before it"
    try:
        with _PARSER:
            node = ast.parse(_as_python(_with_quotes(text.strip())), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, [], {}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise InvalidSpec("a spec must be written like a call", example)
        arguments = [_value(a) for a in node.args]
        keywords = {keyword.arg or "": _value(keyword.value) for keyword in node.keywords}
    except (SyntaxError, TokenError, ValueError, TypeError, MemoryError, RecursionError):
        if _SQL_DATE.search(text):
            example = "write a date or a timestamp as a string, without DATE or TIMESTAMP before it; "
            example += "a list of dates is {'type': 'date32[day]', 'values': [...]}"
        raise InvalidSpec("this text cannot be read as a spec", example) from None
    return node.func.id, arguments, keywords


def _value(node: ast.expr) -> Any:
    """Return a literal or a range, or the text of a call or a name, which is a spec of its own; in a struct, each by name."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        return _range(*map(ast.literal_eval, node.args))
    if isinstance(node, ast.Call | ast.Name):
        return Nested(ast.unparse(node))
    if isinstance(node, ast.Dict) and any(isinstance(part, ast.Call | ast.Name) for part in (*node.keys, *node.values)):
        names = (key.id if isinstance(key, ast.Name) else ast.literal_eval(key or node) for key in node.keys)
        return {name: _value(value) for name, value in zip(names, node.values, strict=True)}
    return ast.literal_eval(node)


def _range(*ends: int) -> NDArray[np.int64]:
    """Return the numbers of a range, as Python and DuckDB count them."""
    whole = range(*ends)
    if not all(-(2**63) <= end < 2**63 for end in ends):
        raise ValueError("not numbers of 64 bits")
    check_length(max(0, -((whole.start - whole.stop) // whole.step)))  # not len(), which refuses lengths above 2^63
    return np.arange(whole.start, whole.stop, whole.step)


_PARSER = Lock()  # Python 3.11 counts the depth of all trees together: two threads at once can end in a SystemError
_MISSPELT = re.compile(r"[A-Za-z]\w*(-\w+)+", re.ASCII)
_SQL = re.compile(r":=|\b(?:true|false|null)\b", re.IGNORECASE)
_STRING = re.compile(r"""'(?:\\.|''|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_QUOTE = re.compile(r"\\.|''", re.DOTALL)  # two quotes that are one, and what a backslash begins
_TWO_STRINGS = re.compile(r"''(?:\s|#[^\n]*\n)*[a-z]{0,2}''", re.IGNORECASE)  # once each string is written ''
_SQL_DATE = re.compile(r"\b(?:date|timestamp)\s*'", re.IGNORECASE)
_PYTHON = {":=": "=", "true": "True", "false": "False", "null": "None"}


def _with_quotes(text: str) -> str:
    """Return a call whose strings have the quotes of Python: in SQL, two quotes inside of a string are one.

    Raises:
        InvalidSpec: if two strings have no comma between them. Python would join them.

    """
    if _TWO_STRINGS.search(_STRING.sub("''", text)):
        raise InvalidSpec("two texts stand next to each other without a comma", "['Lima', 'Oslo']")
    return _STRING.sub(_string, text)


def _string(found: re.Match[str]) -> str:
    """Return a string of a call as Python writes it."""
    written = found[0]
    if written[0] == '"' or "''" not in written[1:-1]:
        return written
    inside = _QUOTE.sub(lambda one: one[0].replace("''", r"\'"), written[1:-1])
    return f"'{inside}'"


def _as_python(text: str) -> str:
    """Return a call with the literals and the assignments of SQL replaced by those of Python."""
    if not _SQL.search(text):  # reading tokens takes ten times as long as parsing
        return text
    tokens = generate_tokens(StringIO(text).readline)
    return untokenize((token.type, _PYTHON.get(token.string.lower(), token.string)) for token in tokens)


def bind(cls: type[Spec], arguments: list[Any], keywords: Mapping[str, Any]) -> Spec:
    """Return the spec with these positional values, in the order of its signature, and named ones; None means the default."""
    names, keywords = [p.name for p in cls.parameters()] if arguments else [], cls.arranged(keywords)
    if len(arguments) > len(names) or set(names[: len(arguments)]) & set(keywords):
        raise InvalidSpec(f"{cls.name} was given too many values", cls.signature())
    values = {**dict(zip(names, arguments, strict=False)), **keywords}
    if any(isinstance(value, Nested) for value in values.values()):
        raise InvalidSpec(
            f"a value of {cls.name} is neither a number nor text, a list or a boolean",
            f"text is in quotes, and lists are written out, or a range(0, 100): {cls.signature()}",
        )
    return cls(**{key: value for key, value in values.items() if value is not None})
