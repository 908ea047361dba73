"""Names and text as SQL writes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name as SQL writes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return a text as SQL writes it, whatever is in it."""
    return "'" + text.replace("'", "''") + "'"
