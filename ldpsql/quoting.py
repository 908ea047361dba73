"""Names and strings as SQL writes them."""

from __future__ import annotations

import re

_PART = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*'|[^\s(),"']+)|([(,)])""")


def quoted(name: str) -> str:
    """Return a name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return a string as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def fields_of(kind: str) -> list[str]:
    """Return the names of the fields of a type STRUCT(...) in the text of SQL's ``typeof``.

    >>> fields_of('STRUCT(city VARCHAR, "a b" STRUCT(x DECIMAL(18,3)))')
    ['city', 'a b']
    """
    names, depth, begins = [], 0, False
    for word, mark in _PART.findall(kind):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if word and begins and depth == 1:
            names.append(word[1:-1].replace('""', '"') if word[0] == '"' else word)
        begins = mark in ("(", ",") and bool(mark)
    return names
