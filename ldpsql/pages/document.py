"""The document around every page: one file with its style and script inside, which loads nothing and works without script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template

# HTML and SVG as text: every value that enters a page is escaped here.

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


_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fact:
    """One entry of a summary: its name, its value, and a note about it."""

    name: str
    value: str
    note: str = ""


def document(title: str, lead: str, facts: Sequence[Fact], body: str) -> str:
    """Return a whole page: title, lead and facts first, then the body."""
    style, script = (_HERE.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    return Template(_HERE.joinpath("page.html").read_text("utf-8")).substitute(
        title=joined(title),
        lead=joined(lead),
        facts=cards(facts, "facts") if facts else "",
        body=joined(body),
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
    )


def _hash(text: str) -> str:
    """Return the source expression that allows this text inside the page and nothing else."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def cards(facts: Sequence[Fact], class_: str) -> Markup:
    """Return facts next to each other."""
    return tag("dl", *(_card(fact) for fact in facts), class_=class_)


def _card(fact: Fact) -> Markup:
    note = tag("dd", fact.note, class_="note") if fact.note else None
    return tag("div", tag("dt", fact.name), tag("dd", name(fact.value)), note)


def folded(title: str, *children: str) -> Markup:
    """Return a part that opens when its title is clicked."""
    return tag("details", tag("summary", title), *children)


def code(sql: str) -> Markup:
    """Return SQL as it is written; long lines wrap."""
    return tag("pre", tag("code", sql))
