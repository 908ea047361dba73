"""HTML and SVG as text: every value that enters a page is escaped here."""

from __future__ import annotations

from html import escape

_SHAPES = frozenset({"rect", "line", "path", "circle"})


class Markup(str):
    """Text that is HTML already; any other string is escaped."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """Return an element with its children, strings escaped.

    An attribute ends with _ if its name is a word of Python; other underscores are hyphens. None and False leave it out.

    >>> tag("td", "a < b", class_="wide", data_tip=None)
    '<td class="wide">a &lt; b</td>'
    """
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    inside = joined(*children)
    return Markup(f"<{opening}/>" if name in _SHAPES and not inside else f"<{opening}>{inside}</{name}>")


def joined(*parts: str | None) -> Markup:
    """Return the parts one after the other, strings escaped, None left out."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts if part is not None))


def name(text: str) -> Markup:
    """Return a name, escaped, that may go on in the next line after an underscore."""
    return Markup(joined(text).replace("_", "_<wbr>"))


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(value) if isinstance(value, str) else f"{value:.5g}"}"'
