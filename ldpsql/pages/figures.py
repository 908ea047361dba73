"""Pictures: charts as SVG, and one page that holds them and works offline (extra ``report``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import vl_convert
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats
from ldpsql.pages.document import code, document, folded
from ldpsql.pages.markup import Markup, joined, tag

BAR, INTERVAL, TRUTH = "#9ecae1", "#08519c", "#d94801"
MAX_SIDE = 64  # cells of a heat map along one side; a larger table is averaged in blocks


@dataclass(frozen=True)
class Section:
    """A picture with its title and one sentence."""

    title: str
    text: str
    svg: str


def estimate_chart(rows: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw estimates as bars with their intervals, and the truth where there is a column ``truth``.

    Args:
        rows: columns value, estimate, low, high and, where known, truth.

    """
    base = alt.Chart(rows).encode(y=alt.Y("value:N", sort=rows["value"].to_list(), title=None))
    share = alt.X("estimate:Q", title="share", axis=alt.Axis(format="%"))
    layers = [
        base.mark_bar(color=BAR, height=11).encode(x=share),
        base.mark_rule(color=INTERVAL, strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
    ]
    if "truth" in rows.columns:
        layers.append(base.mark_point(color=TRUTH, shape="diamond", filled=True, size=45).encode(x="truth:Q"))
    return alt.layer(*layers).properties(width=560, height=max(40, 18 * len(rows)))


def stacked(rows: Mapping[str, pl.DataFrame]) -> alt.VConcatChart:
    """Draw the estimates of several groups below each other, with their titles."""
    return alt.vconcat(*(estimate_chart(group).properties(title=title) for title, group in rows.items()))


def channel_chart(table: Floats) -> alt.Chart:
    """Draw P(report | value), shape (values, reports), as a heat map: a row a value."""
    values, reports = (_blocks(size) for size in table.shape)
    means = np.array([[table[np.ix_(x, z)].mean() for z in reports] for x in values])
    cells = [
        {"value": int(x[0]), "report": int(z[0]), "probability": float(mean)}
        for x, row in zip(values, means, strict=True)
        for z, mean in zip(reports, row, strict=True)
    ]
    side = 360
    return (
        alt.Chart(pl.DataFrame(cells))
        .mark_rect()
        .encode(
            x=alt.X("report:O", title="position of the report", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("value:O", title="position of the value", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color("probability:Q", scale=alt.Scale(scheme="blues"), title="P(report | value)"),
        )
        .properties(width=side, height=side)
    )


def _blocks(size: int) -> list[NDArray[np.int64]]:
    return [block for block in np.array_split(np.arange(size), min(size, MAX_SIDE)) if len(block)]


def grid_chart(shares: Mapping[str, Floats], columns: int, *, upward: bool = False) -> alt.HConcatChart:
    """Draw distributions over the cells of a grid, row by row, as heat maps on one scale, with their names above.

    Row 0 is at the top; ``upward`` puts it at the bottom, as for rows counted from the south.
    """
    top = max(float(share.max()) for share in shares.values())
    scale = alt.Scale(scheme="viridis", domain=[0, top])
    maps = [
        alt.Chart(_cells(share, columns))
        .mark_rect()
        .encode(
            x=alt.X("column:O", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("row:O", sort="descending" if upward else "ascending", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color("share:Q", scale=scale, legend=alt.Legend(format="%")),
        )
        .properties(title=name, width=260, height=260 * max(1, len(share) // columns) / columns)
        for name, share in shares.items()
    ]
    return alt.hconcat(*maps)


def _cells(share: Floats, columns: int) -> pl.DataFrame:
    row, column = np.divmod(np.arange(len(share)), columns)
    return pl.DataFrame({"row": row, "column": column, "share": np.maximum(share, 0.0)})


def trace_chart(rows: pl.DataFrame) -> alt.HConcatChart:
    """Draw how far each step of IBU is from the best log-likelihood, and its certified gap.

    Args:
        rows: columns step, missing (to the best log-likelihood) and gap.

    """
    base = alt.Chart(rows).mark_line(color=INTERVAL).properties(width=260, height=200)
    log = alt.Scale(type="log", nice=False)
    step = alt.X("step:Q", title="step")
    return alt.hconcat(
        base.encode(x=step, y=alt.Y("missing:Q", scale=log, title="log-likelihood missing to the maximum")),
        base.encode(x=step, y=alt.Y("gap:Q", scale=log, title="certified gap")),
    )


def plan_chart(rows: pl.DataFrame) -> alt.Chart:
    """Draw the expected error by epsilon, a line a mechanism.

    Args:
        rows: columns mechanism, epsilon and std_error, as `ldpsql.estimates.planning` makes them.

    """
    known = rows.filter(pl.col("std_error").is_not_null())
    log = alt.Scale(type="log")
    return (
        alt.Chart(known)
        .mark_line(point=True)
        .encode(
            x=alt.X("epsilon:Q", scale=log, title="epsilon"),
            y=alt.Y("std_error:Q", scale=log, title="expected standard error of a share", axis=alt.Axis(format="~g")),
            color=alt.Color("mechanism:N"),
        )
        .properties(width=480, height=300)
    )


def to_svg(chart: Any) -> str:
    """Return a chart as SVG text; nothing is fetched."""
    return str(vl_convert.vegalite_to_svg(_specification(chart)))


def to_png(chart: Any) -> bytes:
    """Return a chart as a PNG at twice the screen's resolution; nothing is fetched."""
    return bytes(vl_convert.vegalite_to_png(_specification(chart), scale=2))


def _specification(chart: Any) -> str:
    """Return what a chart is made of, all rows included: Altair's limit is for what a browser is to draw."""
    with alt.data_transformers.disable_max_rows():
        return str(chart.to_json())


def page(title: str, lead: str, sql: str, sections: Sequence[Section]) -> str:
    """Return one HTML page with everything inside it, which loads nothing."""
    parts = [
        tag("section", tag("h2", s.title), tag("p", s.text), tag("div", Markup(s.svg), class_="picture")) for s in sections
    ]
    return document(title, lead, [], joined(folded("The SQL", code(sql)) if sql else None, *parts))
