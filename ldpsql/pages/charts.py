"""Charts, maps and tables of a page: SVG that fills the width, coloured cells, and tables that people sort and search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, cos, floor, log10, radians
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimates.functionals import Measure
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.region import Region
from ldpsql.pages.document import ALL, Markup, determined, interval, joined, name, number, percent, points, short, tag

# Axes: where a number lies along one, in percent of its length, and where its ticks are.

TICKS = 5  # at most so many, plus one: more labels would touch each other on a telephone

ROOM = 24  # characters of labels next to each other on a telephone; if there are more, every second one is left out


@dataclass(frozen=True)
class Axis:
    """The numbers from low to high along one side of a chart; ``form`` writes one, given the distance of ticks."""

    low: float
    high: float
    form: Callable[[float, float], str] = number
    log: bool = False
    marks: tuple[float, ...] = ()  # where its ticks are; by default at round numbers

    def at(self, value: float) -> float:
        """Return where a number lies, from 0 to 100; beyond an end, that end."""
        low, high, here = (_log(x) if self.log else x for x in (self.low, self.high, value))
        return float(np.clip(100 * (here - low) / ((high - low) or 1.0), 0.0, 100.0))

    def ticks(self) -> list[tuple[float, str]]:
        """Return places from 0 to 100 with their labels."""
        marks, step = (_decades(self.low, self.high), 0.0) if self.log else _round_numbers(self.low, self.high)
        marks = list(self.marks) or marks
        return [(self.at(mark), self.form(mark, step)) for mark in marks]


def shares(low: float, high: float) -> Axis:
    """Return an axis for shares that holds 0 and ends at a tick."""
    _, step = _round_numbers(min(low, 0.0), max(high, 1e-9))
    return Axis(step * floor(min(low, 0.0) / step + 1e-9), step * ceil(max(high, 1e-9) / step - 1e-9), percent)


def _round_numbers(low: float, high: float) -> tuple[list[float], float]:
    """Return multiples of 1, 2 or 5 times a power of ten, at most `TICKS` + 1 of them, and their distance."""
    rough = (high - low) / TICKS
    power = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * i for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)], step


def _decades(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten, or powers alone if these are many."""
    powers = range(floor(_log(low)), ceil(_log(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        marks = [factor * 10.0**power for power in powers for factor in factors]
        marks = [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
        if len(marks) <= TICKS + 2:
            break
    return marks


def _log(value: float) -> float:
    return log10(max(value, 1e-300))


def across(axis: Axis) -> list[Markup]:
    """Return the lines and labels of an axis along the bottom."""
    ticks = axis.ticks()
    crowded = sum(len(label) for _, label in ticks) > ROOM
    labels = [_below(at, label, sparse=crowded and i % 2 == 1) for i, (at, label) in enumerate(ticks)]
    return [*(_line(x1=at, x2=at, y1=0, y2=100) for at, _ in ticks), *labels]


def upward(axis: Axis) -> list[Markup]:
    """Return the lines and labels of an axis along the left side."""
    return [
        part for at, label in axis.ticks() for part in (_line(x1=0, x2=100, y1=100 - at, y2=100 - at), _left(100 - at, label))
    ]


def _line(**ends: float) -> Markup:
    return tag("line", class_="grid", **{name: f"{end:.5g}%" for name, end in ends.items()})


def _below(at: float, label: str, *, sparse: bool) -> Markup:
    return tag("text", label, class_="below sparse" if sparse else "below", x=f"{at:.5g}%", y="100%", dy="1.75em")


def _left(at: float, label: str) -> Markup:
    return tag("text", label, class_="left", x="0", y=f"{at:.5g}%", dx="-.5em", dy=".35em")


Points: TypeAlias = tuple[Floats, Floats]  # along the horizontal and the vertical axis

COLOURS = 8  # kinds of lines that page.css distinguishes


@dataclass(frozen=True)
class Series:
    """Points joined by a line: its name, and a sentence for each point."""

    name: str
    x: Floats
    y: Floats
    tips: Sequence[str]
    kind: str = "line"


@dataclass(frozen=True)
class Histogram:
    """Shares between neighbouring edges, their true ones if these are known, and a sentence for each.

    ``banded`` is whether their intervals are drawn, too.
    """

    edges: Floats
    shares: Measure
    tips: Sequence[str]
    truth: Floats | None
    banded: bool = True


def figure(title: str, plot: Markup, below: str, legend: Markup | None = None) -> Markup:
    """Return a chart with its title above and what its horizontal axis shows below."""
    return tag("figure", tag("figcaption", title), legend, plot, tag("p", below, class_="axis"), class_="chart")


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """Return what the marks of a chart mean, from pairs of the kind of a mark and its name."""
    entries = (tag("li", tag("i", class_=kind), name) for kind, name in names)
    return tag("ul", *entries, class_="legend")


def lines(drawn: Sequence[Series], x: Axis, y: Axis, label: str) -> Markup:
    """Return lines with a mark at each point."""
    return _plot(label, x, y, [_path(one.kind, x, y, (one.x, one.y)) for one in drawn], [_marks(x, y, one) for one in drawn])


def bars(drawn: Histogram, x: Axis, y: Axis, label: str) -> Markup:
    """Return a bar between each two edges, with the band of the intervals."""
    edges, one = drawn.edges, drawn.shares
    shapes = [_path("bar", x, y, _steps(edges, one.estimate), filled=True)]
    shapes += [_band(x, y, _steps(edges, one.low), _steps(edges, one.high))] if drawn.banded else []
    shapes += [] if drawn.truth is None else [_path("truth", x, y, _steps(edges, drawn.truth))]
    return _plot(label, x, y, shapes, [_columns(edges, x, drawn.tips)])


def curve(drawn: Histogram, x: Axis, y: Axis, label: str) -> Markup:
    """Return a curve from 0 through a share at the end of every bar, with the band of the intervals."""
    edges, one = drawn.edges, drawn.shares
    shapes = [_band(x, y, (edges, _from_zero(one.low)), (edges, _from_zero(one.high)))] if drawn.banded else []
    shapes += [_path("line", x, y, (edges, _from_zero(one.estimate)))]
    shapes += [] if drawn.truth is None else [_path("truth", x, y, (edges, _from_zero(drawn.truth)))]
    return _plot(label, x, y, shapes, [_columns(edges, x, drawn.tips)])


def _from_zero(shares: Floats) -> Floats:
    return np.concatenate([[0.0], shares])


def _plot(label: str, x: Axis, y: Axis, shapes: Sequence[Markup], marks: Sequence[Markup]) -> Markup:
    stretched = tag("svg", *shapes, viewBox="0 0 100 100", preserveAspectRatio="none", width="100%", height="100%")
    return tag("svg", *across(x), *upward(y), stretched, *marks, class_="plot", role="img", aria_label=label)


def _path(kind: str, x: Axis, y: Axis, points: Points, *, filled: bool = False) -> Markup:
    """Return a line through points, or the area between it and 0."""
    through = [f"{x.at(a):.5g} {100 - y.at(b):.5g}" for a, b in zip(*points, strict=True)]
    ends = f"V{100 - y.at(0.0):.5g}H{x.at(float(points[0][0])):.5g}Z" if filled else ""
    return tag("path", class_=kind, d="M" + "L".join(through) + ends)


def _band(x: Axis, y: Axis, low: Points, high: Points) -> Markup:
    around = tuple(np.concatenate([there, back[::-1]]) for there, back in zip(low, high, strict=True))
    return _path("band", x, y, (around[0], around[1]))


def _steps(edges: Floats, height: Floats) -> Points:
    return np.repeat(edges, 2)[1:-1], np.repeat(height, 2)


def _marks(x: Axis, y: Axis, series: Series) -> Markup:
    return joined(
        *(
            tag("circle", tag("title", tip), class_=series.kind, cx=f"{x.at(a):.5g}%", cy=f"{100 - y.at(b):.5g}%", r=4)
            for a, b, tip in zip(series.x, series.y, series.tips, strict=True)
        )
    )


def _columns(edges: Floats, x: Axis, tips: Sequence[str]) -> Markup:
    """Return invisible columns that show a tooltip."""
    ends = [x.at(float(edge)) for edge in edges]
    return joined(
        *(
            tag("rect", tag("title", tip), class_="hit", x=f"{a:.5g}%", width=f"{b - a:.5g}%", height="100%")
            for a, b, tip in zip(ends, ends[1:], tips, strict=False)
        )
    )


SHADES = 10  # colours of page.css, from 0 to the largest number
NAMES = 12  # along one side
MOST_TIPS = 8192  # cells up to which each one is an element with a text of its own


@dataclass(frozen=True)
class Side:
    """One side of a map: what it shows, and labels at places from 0 to 1."""

    title: str
    labels: Sequence[tuple[float, str]]

    @classmethod
    def of_names(cls, title: str, names: Sequence[str]) -> Side:
        """Return a side with the names of its cells in the middle of these, some left out if there are many."""
        chosen = range(0, len(names), -(-len(names) // NAMES))
        return cls(title, [((i + 0.5) / len(names), short(names[i])) for i in chosen])


@dataclass(frozen=True)
class Heat:
    """A table of numbers of at least 0 as coloured cells, its first row at the top.

    ``top`` is the number that the darkest colour stands for, ``up`` the side on the left, from the bottom to the top, ``tip``
    says what a row and a column hold, ``label`` what all of it shows, and ``shape`` is its height over its width.
    """

    table: Floats
    top: float
    across: Side
    up: Side
    tip: Callable[[int, int], str]
    label: str
    shape: float = 1.0


def heat(drawn: Heat) -> Markup:
    """Return a table as a map with its sides."""
    height = 1000 * min(max(drawn.shape, 0.25), 1.25)
    sides = (drawn.up, drawn.across)
    left = tag("svg", *(_left_of_cells(1 - at, text) for at, text in drawn.up.labels), class_="names")
    below = tag("svg", *(_below_cells(at, text) for at, text in drawn.across.labels), class_=_foot(drawn.across))
    cells = tag("svg", _cells(drawn), viewBox=f"0 0 1000 {height:.5g}", class_="map", role="img", aria_label=drawn.label)
    titles = [tag("span", side.title, class_="axis") for side in sides]
    return tag("div", titles[0], left, cells, below, titles[1], class_="heat")


def _cells(drawn: Heat) -> Markup:
    rows, columns = drawn.table.shape
    shades = np.minimum((SHADES * np.maximum(drawn.table, 0.0) / (drawn.top or 1.0)).astype(int), SHADES - 1)
    if rows * columns > MOST_TIPS:
        cells = (_area(shades == shade, drawn.top, shade) for shade in np.unique(shades).tolist())
    else:
        cells = (
            tag("rect", tag("title", drawn.tip(i, j)), class_=f"s{shades[i, j]}", x=j, y=i, width=1, height=1)
            for i in range(rows)
            for j in range(columns)
        )
    box = f"0 0 {columns} {rows}"
    return tag("svg", *cells, viewBox=box, preserveAspectRatio="none", width="100%", height="100%", class_="cells")


def _area(cells: NDArray[np.bool_], top: float, shade: int) -> Markup:
    """Return all cells of one colour as one shape, made of the stretches of them in each row."""
    ends = np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    (rows, starts), (_, stops) = np.nonzero(ends > 0), np.nonzero(ends < 0)
    stretches = zip(rows.tolist(), starts.tolist(), (stops - starts).tolist(), strict=True)
    outline = "".join(f"M{at} {row}h{width}v1h-{width}z" for row, at, width in stretches)
    low, high = (percent(top * (shade + more) / SHADES, top / 1000) for more in (0, 1))
    return tag("path", tag("title", f"{low} to {high}"), class_=f"s{shade}", d=outline)


def scale_of_colours(top: float) -> Markup:
    """Return what the colours mean."""
    shades = (tag("rect", class_=f"s{i}", x=i, width=1, height=1) for i in range(SHADES))
    colours = tag("svg", *shades, viewBox=f"0 0 {SHADES} 1", preserveAspectRatio="none")
    return tag("p", "0 %", colours, percent(top, top / 100), class_="colours")


def blocks(size: int, most: int) -> list[slice]:
    """Return the places 0 .. size - 1 cut into at most so many parts of equal size, the last one perhaps smaller."""
    width = -(-size // most)
    return [slice(start, min(start + width, size)) for start in range(0, size, width)]


def _foot(across: Side) -> str:
    return "feet slanted" if any(len(text) > 8 for _, text in across.labels) or len(across.labels) > 6 else "feet"


def _left_of_cells(at: float, text: str) -> Markup:
    return tag("text", text, class_="left", x="100%", y=f"{100 * at:.5g}%", dx="-.5em", dy=".35em")


def _below_cells(at: float, text: str) -> Markup:
    return tag("svg", tag("text", text, class_="below"), x=f"{100 * at:.5g}%", class_="foot")


# Cells of a grid on a page: a map, with longitudes and latitudes if the region is given.


@dataclass(frozen=True)
class Places:
    """The cells of a grid, row by row from the south-west, and the region they cover if it is given."""

    rows: int
    columns: int
    region: Region | None = None

    def __post_init__(self) -> None:
        if self.region and (self.rows, self.columns) != (self.region.rows, self.region.columns):
            raise InvalidParameter("the region must have as many rows and columns as the mechanism")

    @classmethod
    def of(cls, one: Estimate, region: Region | None) -> Places | None:
        """Return the cells of an estimate, None if its values are not cells."""
        layout = one.of.likelihood.layout
        return cls(*layout, region) if len(layout) == 2 else None

    @property
    def title(self) -> str:
        """What the names of the cells are."""
        return "Longitude, latitude" if self.region else "Cell"

    def names(self) -> list[str]:
        """Return a name for each cell: the place of its centre, or its column and row."""
        if self.region:
            centres = self.region.centres(np.arange(self.rows * self.columns))
            steps = [
                (high - low) / count / 10 for (_, low, high), count in zip(self.ends(), (self.columns, self.rows), strict=True)
            ]
            return [f"{number(lon, steps[0])}, {number(lat, steps[1])}" for lon, lat in zip(*centres, strict=True)]
        return [f"column {i % self.columns + 1}, row {i // self.columns + 1}" for i in range(self.rows * self.columns)]

    def ends(self) -> list[tuple[str, float, float]]:
        """Return what lies along the lower and the left side, and where each side begins and ends."""
        r = self.region
        if not r:
            return [("column", 0.5, self.columns + 0.5), ("row", 0.5, self.rows + 0.5)]
        return [("longitude", float(r.west), float(r.east)), ("latitude", float(r.south), float(r.north))]

    def sides(self) -> list[Side]:
        """Return what to write below and on the left."""
        if not self.region:
            counts = [("column", self.columns), ("row", self.rows)]
            return [Side.of_names(title, [str(i + 1) for i in range(count)]) for title, count in counts]
        return [Side(title, [(at / 100, text) for at, text in Axis(low, high).ticks()]) for title, low, high in self.ends()]

    def shape(self) -> float:
        """Return the height of the map over its width: true to scale if the region is one of degrees."""
        if not self.region:
            return self.rows / self.columns
        (_, west, east), (_, south, north) = self.ends()
        degrees = -90 < south < north < 90 and -180 <= west < east <= 360
        return (north - south) / (east - west) / (cos(radians((north + south) / 2)) if degrees else 1.0)


def maps(places: Places, shares: Mapping[str, Floats]) -> Markup:
    """Return a map for each named distribution over the cells, all in the same colours."""
    top = max(float(share.max()) for share in shares.values())
    drawn = (tag("figure", tag("figcaption", name), _map(places, share, top, name)) for name, share in shares.items())
    return tag("div", tag("div", *drawn, class_="maps"), scale_of_colours(top), class_="chart")


def _map(places: Places, share: Floats, top: float, name: str) -> Markup:
    names, (across, up) = places.names(), places.sides()
    north_up = share.reshape(places.rows, places.columns)[::-1]

    def tip(row: int, column: int) -> str:
        cell = (places.rows - 1 - row) * places.columns + column
        return f"{names[cell]}: {percent(float(share[cell]), top / 1000)}"

    return heat(Heat(north_up, top, across, up, tip, f"map of the shares: {name}", places.shape()))


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
