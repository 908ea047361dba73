"""The document around every page: one file with its style and script inside, which loads nothing and works without script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from math import floor, isfinite, log10
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


# Numbers as people read them: shares in percent, errors in points, values of domains shortened for axes.

ALL = 0.5  # the standard error of a share from which on its interval holds nearly all shares
WIDTH = 3.92  # of a 95 % interval, in standard errors
LONGEST = 14  # characters of a name on an axis


def percent(share: float, step: float = 0.001) -> str:
    """Return a share in percent with the decimals that steps of this size need.

    >>> [text.split() for text in (percent(0.1234), percent(0.5, 0.1), percent(2e-5, 1e-5))]
    [['12.3', '%'], ['50', '%'], ['0.002', '%']]
    """
    return f"{_without_minus_zero(100 * share, decimals(100 * step))}\u00a0%"


def points(error: float) -> str:
    """Return a standard error of a share in percentage points, 'unknown' if the reports do not determine the share.

    Without a ± before it, which beside an interval would be read as its half width, about twice as much.
    """
    if not determined(error):
        return "unknown"
    return f"{_without_minus_zero(100 * error, decimals(100 * error / 5 if error else 1.0))}\u00a0points"


def width(error: float) -> str:
    """Return how wide the 95 % interval of a share with this standard error is, in percentage points.

    >>> width(0.01).split()
    ['3.9', 'points']
    """
    return (
        f"{_without_minus_zero(100 * WIDTH * error, decimals(10 * WIDTH * error))}\u00a0points"
        if determined(error)
        else "unknown"
    )


def determined(error: float) -> bool:
    """Return whether the interval of a share with this standard error excludes some shares."""
    return error < ALL


def interval(low: float, high: float, step: float = 0.001) -> str:
    """Return an interval of shares."""
    return f"{_without_minus_zero(100 * low, decimals(100 * step))} to {percent(high, step)}"


def decimals(step: float) -> int:
    """Return how many decimals are needed to distinguish numbers that differ by a step."""
    return max(0, min(9, -floor(log10(step) + 1e-9))) if step > 0 and isfinite(step) else 0


def number(value: float, step: float = 0.0) -> str:
    """Return a number with thousands separated, with the decimals that steps of this size need, or else four digits.

    >>> number(1234567.0), number(3.14159), number(12.5, 0.1)
    ('1,234,567', '3.142', '12.5')
    """
    if not isfinite(value):
        return "unknown"
    places = decimals(step) if step else decimals(abs(value) / 1000)
    text = _without_minus_zero(value, min(places, 9))
    return text.rstrip("0").rstrip(".") if "." in text and not step else text


def _without_minus_zero(value: float, places: int) -> str:
    return f"{round(value, places) + 0.0:,.{places}f}"


def short(name: str) -> str:
    """Return a name for an axis, its end left out if it is long."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "group"), counted(2_000, "group")
    ('1 group', '2,000 groups')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
