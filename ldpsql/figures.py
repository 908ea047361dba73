"""Pictures: charts as SVG, and one page that holds them and works offline (extra ``report``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import polars as pl
import vl_convert

BAR, INTERVAL, TRUTH = "#9ecae1", "#08519c", "#d94801"


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
    return alt.layer(*layers).properties(width=560, height=18 * len(rows))


def to_svg(chart: Any) -> str:
    """Return a chart as SVG text; nothing is fetched."""
    return str(vl_convert.vegalite_to_svg(chart.to_json()))


def page(title: str, lead: str, sql: str, sections: Sequence[Section]) -> str:
    """Return one HTML page with everything inside it: no script, no address."""
    parts = [f"<section><h2>{escape(s.title)}</h2><p>{escape(s.text)}</p>{s.svg}</section>" for s in sections]
    return _PAGE.format(title=escape(title), lead=escape(lead), sql=escape(sql), sections="\n".join(parts))


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
pre {{ background: #f4f4f4; padding: 1rem; overflow-x: auto; }}
h2 {{ margin: 2rem 0 0; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{lead}</p>
<pre>{sql}</pre>
{sections}
</body>
</html>
"""
