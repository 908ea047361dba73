"""Pictures: charts as SVG or PNG (extra ``report``)."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, TypeAlias

import altair as alt
import numpy as np
import polars as pl
import vl_convert
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats
from ldpsql.pages.charts import Places

AnyChart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart
BAR, INTERVAL, TRUTH = "#9ecae1", "#08519c", "#d94801"
MAP = 480  # pixels across


def estimate_chart(rows: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw the columns value, estimate, low and high as bars with their intervals, and a column ``truth`` if there is one."""
    base = alt.Chart(rows).encode(y=alt.Y("value:N", sort=rows["value"].to_list(), title=None))
    share = alt.X("estimate:Q", title="share", axis=alt.Axis(format="%"))
    layers = [
        base.mark_bar(color=BAR, height=11).encode(x=share),
        base.mark_rule(color=INTERVAL, strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
    ]
    if "truth" in rows.columns:
        layers.append(base.mark_point(color=TRUTH, shape="diamond", filled=True, size=45).encode(x="truth:Q"))
    return alt.layer(*layers).properties(width=560, height=max(40, 18 * len(rows)))


def map_chart(places: Places, shares: Mapping[str, Floats]) -> alt.HConcatChart:
    """Draw named distributions over the cells of a grid as maps next to each other, all in the same colours."""
    top = max(float(share.max()) for share in shares.values())
    return alt.hconcat(*(_map(places, share, top).properties(title=name) for name, share in shares.items()))


def _map(places: Places, share: Floats, top: float) -> AnyChart:
    """Draw one map: an image with its axes, and points that nobody sees, which give the legend its range."""
    height = MAP * min(max(places.shape(), 0.25), 4.0)
    (across, west, east), (up, south, north) = places.ends()
    north_up = share.reshape(places.rows, places.columns)[::-1]
    middle = {"x": [(west + east) / 2], "y": [(south + north) / 2], "url": [image_address(north_up, top)]}
    x = alt.X("x:Q", scale=alt.Scale(domain=[west, east], nice=False), title=across)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[south, north], nice=False), title=up)
    image = alt.Chart(pl.DataFrame(middle)).mark_image(width=MAP, height=height, aspect=False).encode(x=x, y=y, url="url:N")
    colours = alt.Scale(domain=[0, top], range=list(COLOURS), interpolate="rgb")
    legend = alt.Color("share:Q", scale=colours, legend=alt.Legend(format=".2~%"))
    hidden = alt.Chart(pl.DataFrame({"x": [west], "y": [south], "share": [0.0]})).mark_point(opacity=0)
    return alt.layer(image, hidden.encode(x=x, y=y, color=legend)).properties(width=MAP, height=height)


def stacked(charts: Mapping[str, AnyChart]) -> alt.VConcatChart:
    """Draw the charts of several groups below each other, with their titles."""
    return alt.vconcat(*(chart.properties(title=title) for title, chart in charts.items()))


def plan_chart(rows: pl.DataFrame) -> alt.Chart:
    """Draw the column std_error by epsilon, a line a mechanism, of rows as `ldpsql.estimates.planning` makes them."""
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


# A table of numbers as one PNG image: hundreds of thousands of cells take a few kilobytes.


COLOURS = ("#f3f6fa", "#dde8f4", "#c3d8ec", "#a3c4e2", "#7fadd6", "#5b94c6", "#3d7ab2", "#27629b", "#164a80", "#082f5c")
_SIGNATURE, _SHADES = b"\x89PNG\r\n\x1a\n", 256
_INDEXED = 3  # a colour type of PNG: each pixel is a number of the palette
_PIXELS = 1200  # along the longer side, about: viewers then have no small cells to blur


def image_address(table: Floats, top: float) -> str:
    """Return a table of numbers of at least 0 as a ``data:`` address; ``top`` has the darkest colour."""
    shades = np.clip(np.rint((_SHADES - 1) * table / (top or 1.0)), 0, _SHADES - 1).astype(np.uint8)
    times = max(1, _PIXELS // max(table.shape))
    pixels = shades.repeat(times, axis=0).repeat(times, axis=1)
    return f"data:image/png;base64,{b64encode(_png(pixels)).decode()}"


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the image whose pixels are numbers of the palette."""
    rows, columns = pixels.shape
    lines = np.pad(pixels, ((0, 0), (1, 0))).tobytes()  # each line begins with the number of its filter, 0 for none
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", columns, rows, 8, _INDEXED, 0, 0, 0),
        b"PLTE": _palette().tobytes(),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts.items())


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _palette() -> NDArray[np.uint8]:
    """Return red, green and blue of each shade, with even steps between two colours."""
    ends = np.array([list(bytes.fromhex(colour[1:])) for colour in COLOURS])
    at = np.linspace(0, len(ends) - 1, _SHADES)
    return np.stack([np.interp(at, np.arange(len(ends)), part) for part in ends.T], axis=1).round().astype(np.uint8)
