"""Pictures: charts as SVG, and one page that holds them and works offline (extra ``report``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from ldpsql.pages.document import code, document, folded
from ldpsql.pages.markup import Markup, joined, tag

BAR, INTERVAL, TRUTH = "#9ecae1", "#08519c", "#d94801"


@dataclass(frozen=True)
class Section:
    """A picture with its title and one sentence."""

    title: str
    text: str
    svg: str


def estimate_chart(rows: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw estimates as bars with their intervals, and the truth if there is a column ``truth``.

    Args:
        rows: columns value, estimate, low, high and, if known, truth.

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


def plan_chart(rows: pl.DataFrame) -> alt.Chart:
    """Draw the expected error by epsilon, a line a mechanism.

    Args:
        rows: columns mechanism, epsilon and std_error, as `ldpsql.estimates.planning` makes them.

    """
    determined = rows.filter(pl.col("std_error").is_not_null())
    log = alt.Scale(type="log")
    return (
        alt.Chart(determined)
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
