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


def fields_of(kind: str) -> dict[str, str]:
    """Return the types of the fields of a type STRUCT(...) by name, from the text of SQL's ``typeof``.

    >>> fields_of('STRUCT(city VARCHAR, "a b" STRUCT(x DECIMAL(18,3))[])')
    {'city': 'VARCHAR', 'a b': 'STRUCT(x DECIMAL(18,3))[]'}
    """
    fields, depth, begin, name = {}, 0, 0, ""
    for part in _PART.finditer(kind):
        word, mark = part.groups()
        if depth == 1 and word and not name:
            name, begin = word, part.end()
        if depth == 1 and mark in (",", ")"):
            fields[name[1:-1].replace('""', '"') if name[0] == '"' else name] = kind[begin : part.start()].strip()
            name = ""
        depth += {"(": 1, ")": -1}.get(mark, 0)
    return fields


def items_of(kind: str) -> str:
    """Return the type of the values of a type MAP(...), from the text of SQL's ``typeof``.

    >>> items_of("MAP(VARCHAR, STRUCT(x DECIMAL(18,3)))")
    'STRUCT(x DECIMAL(18,3))'
    """
    depth = 0
    for part in _PART.finditer(kind):
        depth += {"(": 1, ")": -1}.get(part[2], 0)
        if depth == 1 and part[2] == ",":
            return kind[part.end() : -1].strip()
    return kind
