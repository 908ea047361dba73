"""Names and strings as SQL writes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return a string as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
