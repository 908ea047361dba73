"""Tables that people sort, search and download; a column of bars makes one a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl

from ldpsql.pages.document import ALL, Markup, determined, interval, joined, name, percent, points, tag
from ldpsql.pages.plots import Axis, across, shares

TOP, FEW = 15, 20  # rows that a script leaves in sight, if there are more than a few
MOST = 3.0  # intervals reach so many times as far as the largest share; longer ones leave the chart


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and its values for sorting and downloading.

    On a telephone a ``wide`` cell is left out, and one that ``wraps`` takes several lines.
    """

    shows: str
    worth: tuple[object, ...] = ()
    wide: bool = False
    wraps: bool = False

    def __str__(self) -> str:
        data = joined(*(tag("data", value=_plain(value)) for value in self.worth))
        return tag("td", data, self.shows, class_="number" + " wide" * self.wide + " wraps" * self.wraps)


Row: TypeAlias = tuple[str, Sequence[Cell | Markup]]  # its name and its cells


@dataclass(frozen=True)
class Column:
    """The title of a column, and the names of the columns of the file that is downloaded from it."""

    title: str
    names: tuple[str, ...]
    wide: bool = False
    head: Markup | None = None

    def __str__(self) -> str:
        kinds = ["bar"] * (self.head is not None) + ["wide"] * self.wide
        return tag("th", self.head or self.title, scope="col", class_=" ".join(kinds) or None)


def table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Markup:
    """Return rows of a name and its cells.

    Args:
        title: the name of the file when it is downloaded, without an ending.
        columns: the first is that of the names of the rows.
        rows: their names and cells, in order; if there are many, only the first are visible until the reader opens all.

    """
    names = ",".join(one for column in columns for one in column.names)
    top = TOP if len(rows) > FEW else len(rows)
    body = (_row(title, cells) for title, cells in rows)
    inside = joined(tag("thead", tag("tr", *(Markup(str(column)) for column in columns))), tag("tbody", *body))
    return tag("table", inside, class_="sortable", data_name=title, data_names=names, data_top=str(top))


def _row(title: str, cells: Sequence[Cell | Markup]) -> Markup:
    return tag(
        "tr",
        tag("th", title if isinstance(title, Markup) else name(title), scope="row"),
        *(Markup(str(cell)) for cell in cells),
    )


def _plain(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def share_table(title: str, rows: pl.DataFrame, confidence: float, called: str = "Value") -> Markup:
    """Return estimates as rows with bars.

    Args:
        title: the name of the file when it is downloaded.
        rows: columns value, name (how people read the value), estimate, std_error, low, high and, if it is known, truth.
        confidence: that of the intervals.
        called: what the values are.

    """
    axis = share_axis(rows)
    columns = [
        Column(called, ("value",)),
        bar_column("Share", axis),
        Column("Estimate", ("estimate",)),
        Column(f"{100 * confidence:.4g} % interval", ("low", "high")),
        Column("Standard error", ("std_error",), wide=True),
    ]
    columns += [Column("Truth", ("truth",), wide=True)] if "truth" in rows.columns else []
    return table(title, columns, list(_share_rows(rows, axis)))


def bar_column(title: str, axis: Axis, *, wide: bool = False) -> Column:
    """Return the column of the bars, with its axis for a head."""
    return Column(title, (), wide, head=tag("svg", *across(axis), role="presentation"))


def share_axis(rows: pl.DataFrame) -> Axis:
    """Return an axis for all shares that occur, and for their intervals as far as these leave them readable."""
    certain = rows.filter(pl.col("std_error") < ALL)
    drawn = [*rows["estimate"], *(rows["truth"] if "truth" in rows.columns else [])]
    low, high = float(np.min(drawn, initial=0.0)), float(np.max(drawn, initial=0.0))
    ends = np.clip([*certain["low"], *certain["high"]], MOST * low, MOST * high)
    return shares(float(np.min(ends, initial=low)), float(np.max(ends, initial=high)))


def _share_rows(rows: pl.DataFrame, axis: Axis) -> Iterator[tuple[str, list[Cell | Markup]]]:
    for row in rows.iter_rows(named=True):
        truth, cells = row.get("truth"), share_cells(row, axis)
        called = row["name"] if row["name"] == row["value"] else joined(tag("data", value=row["value"]), row["name"])
        yield called, cells if truth is None else [*cells, Cell(percent(truth), (truth,), wide=True)]


def share_cells(row: dict[str, float], axis: Axis, *, wide: bool = False) -> list[Cell | Markup]:
    """Return the bar of an estimate, and its share, interval and error; ``wide`` leaves the bar out on a telephone, too."""
    error, ends = row["std_error"], (row["low"], row["high"])
    return [
        tag("td", _bar(row, axis), class_="bar wide" if wide else "bar"),
        Cell(percent(row["estimate"], _step(error)), (row["estimate"],)),
        Cell(interval(*ends, _step(error)) if determined(error) else "unknown", ends, wraps=True),
        Cell(points(error), (error,), wide=True),
    ]


def _step(error: float) -> float:
    """Return the precision to which a share is written: about a tenth of its error, at least a thousandth of a percent."""
    return min(0.001, max(error, 1e-5)) if np.isfinite(error) else 0.001


def _bar(row: dict[str, float], axis: Axis) -> Markup:
    zero, end = axis.at(0.0), axis.at(row["estimate"])
    ends = [axis.at(row[name]) for name in ("low", "high")] if determined(row["std_error"]) else None
    error = tag("line", class_="error", x1=f"{ends[0]:.5g}%", x2=f"{ends[1]:.5g}%", y1="50%", y2="50%") if ends else None
    truth = row.get("truth")
    at = None if truth is None else f"{axis.at(truth):.5g}%"
    return tag(
        "svg",
        tag("title", tip(row)),
        tag("rect", class_="share", x=f"{min(zero, end):.5g}%", width=f"{abs(end - zero):.5g}%", y="15%", height="70%"),
        error,
        tag("line", class_="truth", x1=at, x2=at, y1="0", y2="100%") if at else None,
        role="img",
    )


def tip(row: dict[str, float]) -> str:
    """Return one sentence about a row of estimates."""
    step, certain = _step(row["std_error"]), determined(row["std_error"])
    ends = f" ({interval(row['low'], row['high'], step)})" if certain else " (error unknown)"
    truth = f", truth {percent(row['truth'])}" if row.get("truth") is not None else ""
    return f"{row['name']}: {percent(row['estimate'], step)}{ends}{truth}"
