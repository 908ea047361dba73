"""Tables of a page, in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Rows = Sequence[Sequence[object]]


def html_table(columns: Sequence[str], rows: Rows) -> str:
    """Return an HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{'' if cell is None else escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    style = "<style>td, th { text-align: left; vertical-align: top; padding: 0 .8em .5em 0; font-size: 14px }</style>"
    return f"{style}<table><tr>{head}</tr>{body}</table>"


def markdown(title: str, source: str, every: tuple[Sequence[str], Rows], agreement: tuple[Sequence[str], Rows]) -> str:
    """Return the two tables of a page as Markdown."""
    parts = (
        f"# {title}\n{source}\n",
        f"## All figures and tables\n{markdown_table(*every)}",
        f"## Figure by figure\n{markdown_table(*agreement)}",
    )
    return "\n".join(parts)


def markdown_table(columns: Sequence[str], rows: Rows) -> str:
    """Return a Markdown table; bars within cells are escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |\n" for row in lines)
