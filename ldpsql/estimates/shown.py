"""How results are shown: as tables whose numbers are rounded to their errors, in a terminal and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_ERRORS = {  # the columns of an estimate, its standard error and its interval
    "estimate": ("std_error", "low", "high"),
    "frequency": ("frequency_error", "low", "high"),
    "mean": ("mean_error", "mean_low", "mean_high"),
    "people": ("people_error", "people_low", "people_high"),
}
_LETTERS = {86_400: 10, 60: 16}  # of a time, by the seconds of half an interval
_ROWS, _WIDTH = 60, 240


def rounded(estimate: Any, low: Any, high: Any) -> str:
    """Return an estimate with its interval in brackets, ``0.377 (0.373 to 0.381)``, rounded to the width of the interval.

    Half the width has one significant digit, or two if the first is 1.

    >>> rounded(0.37711, 0.3731, 0.3811), rounded(12345.6, 12000, 12700), rounded(0.003, 0.0, 0.018), rounded(60, 45, 75)
    ('0.377 (0.373 to 0.381)', '12300 (12000 to 12700)', '0.003 (0.000 to 0.018)', '60 (45 to 75)')
    >>> rounded(-0.0004, -0.0404, 0.0396), rounded(1.0, 1.0, 1.0), rounded(0.31234, None, None), rounded(0.5, 0.0, float('nan'))
    ('0.00 (-0.04 to 0.04)', '1 (1 to 1)', '0.3123 (unknown)', '0.5 (unknown)')
    >>> from datetime import date
    >>> day = date(2013, 5, 3)
    >>> rounded(day, day - timedelta(2), day + timedelta(2))
    '2013-05-03 (2013-05-01 to 2013-05-05)'
    """
    try:
        half = (high - low) / 2
        known = half if isinstance(half, timedelta) else isfinite(half)
    except TypeError:  # an end is NULL
        known = False
    if not known:
        return "" if estimate is None else f"{_plain(estimate)} (unknown)"
    if isinstance(half, timedelta):
        letters = next((letters for size, letters in _LETTERS.items() if half.total_seconds() >= size), 19)
        shown, *ends = (str(time)[:letters] for time in (estimate, low, high))
    elif half:
        shown, *ends = (_fixed(number, _places(half)) for number in (estimate, low, high))
    else:
        shown, *ends = (_plain(number) for number in (estimate, low, high))
    return f"{shown} ({' to '.join(ends)})"


def _places(half: float) -> int:
    """Return how many decimal places an error has; negative for tens and hundreds."""
    exponent = floor(log10(half))
    return (1 if half < 2 * 10**exponent else 0) - exponent


def _fixed(number: float, places: int) -> str:
    return f"{round(number, places) + 0.0:.{max(places, 0)}f}"  # never -0.0


def _plain(value: Any) -> str:
    """Return a value of a row that has errors: floats with four significant digits."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return "" if value is None else str(value)


def cells(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the heads of the columns, then the text of each row; yield nothing if there are no rows.

    An estimate, its error and its interval are one column. Rows without an estimate that has an error are not rounded.
    """
    errors: dict[str, tuple[str, str, str]] = {}
    hidden: set[str] = set()
    for number, row in enumerate(rows):
        if not number:
            errors = {name: own for name, own in _ERRORS.items() if {name, *own} <= row.keys()}
            hidden = {name for own in errors.values() for name in own}
            yield [f"{name} (interval)" if name in errors else name for name in row if name not in hidden]
        text = _plain if errors else _whole
        yield [
            _with_error(row, name, *errors[name]) if name in errors else text(value)
            for name, value in row.items()
            if name not in hidden
        ]


def _with_error(row: Mapping[str, Any], name: str, error: str, low: str, high: str) -> str:
    return rounded(row[name], None, None) if row[error] is None else rounded(row[name], row[low], row[high])


def _whole(value: Any) -> str:
    return "" if value is None else str(value)


def aligned(lines: Iterable[list[str]]) -> str:
    """Return lines of cells as text in columns."""
    table = list(lines)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = ("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)
    return "\n".join(padded)


class Tabular(ABC):
    """A result that is a table: it prints and shows itself in a notebook, and becomes a frame."""

    @property
    @abstractmethod
    def heading(self) -> str:
        """What the table shows, in one line."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the result as a table of Arrow, with all digits."""

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a frame of Polars, with all digits."""
        import polars as pl  # noqa: PLC0415  # slow to import

        return pl.DataFrame(self.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Return the result as a frame of pandas, with all digits."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        table = self.to_arrow()
        left = f"\n{len(table) - _ROWS} more rows" if len(table) > _ROWS else ""
        return f"{self.heading}\n{aligned(cells(table.slice(0, _ROWS).to_pylist()))}{left}"

    def _repr_html_(self) -> str:
        """Return a table whose last column draws estimates with their intervals; all text is escaped."""
        table = self.to_arrow()
        rows = table.slice(0, _ROWS).to_pylist()
        head, *lines = ([escape(cell) for cell in line] for line in (cells(rows) if rows else [table.column_names]))
        bars = _bars(rows)
        body = "".join(f"<tr><td>{'</td><td>'.join(line)}</td>{next(bars)}</tr>" for line in lines)
        left = f"<p>{len(table) - _ROWS} more rows</p>" if len(table) > _ROWS else ""
        caption = f"<caption>{escape(self.heading)}</caption>"
        return f"<table>{caption}<tr><th>{'</th><th>'.join(head)}</th></tr>{body}</table>{left}"


def _bars(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a cell with a bar from 0 to the estimate and a line over the interval for each row; nothing if it has none."""
    numbers = [[row.get(name) for name in ("estimate", "low", "high")] for row in rows]
    shares = [[number for number in row if isinstance(number, float)] for row in numbers]
    if any(len(share) < 3 for share in shares):
        yield from ("" for _ in rows)
        return
    scale = _WIDTH / max((1e-12, *(max(share) for share in shares)))
    for share in shares:
        end, low, high = (max(number * scale, 0.0) for number in share)
        yield (
            f'<td><svg width="{_WIDTH}" height="14" role="img"><rect y="2" height="10" width="{end:.1f}" fill="#9ecae1"/>'
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7" stroke="#08519c" stroke-width="1.5"/></svg></td>'
        )


@dataclass(frozen=True, repr=False)
class Rows(Tabular):
    """Answers, a row each: the groups if there are any, then what the question returns."""

    title: str
    table: pa.Table

    @property
    def heading(self) -> str:
        return self.title

    def to_arrow(self) -> pa.Table:
        table = self.table
        for place, field in enumerate(table.schema):
            if pa.types.is_interval(field.type) and (times := _durations(table.column(place))) is not None:
                table = table.set_column(place, field.name, times)
        return table


def _durations(column: pa.ChunkedArray) -> pa.Array | None:
    """Return the intervals of DuckDB, which Polars does not read, as durations; None if they have months."""
    spans = column.to_pylist()
    if any(span.months for span in spans if span is not None):
        return None
    times = [None if span is None else timedelta(span.days, microseconds=span.nanoseconds // 1000) for span in spans]
    return pa.array(times, pa.duration("us"))
