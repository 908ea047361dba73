"""Reports: pages that need nothing else, pictures, and estimates in a notebook."""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ldpsql
from ldpsql.errors import InvalidParameter, NoReports
from ldpsql.mechanisms import Region
from ldpsql.pages import page as pages
from ldpsql.pages.figures import image_address
from ldpsql.pages.report import trace
from tests.commands import printed


def page_of(folder: Path, text: str, table: pa.Table, *options: str, name: str = "page.html") -> Path:
    """Write the page of a column of reports, ``x``, and return its path."""
    pq.write_table(table, folder / "reports.parquet")
    printed("report", str(folder / "reports.parquet"), "x", "-m", text, *options, "--output", str(folder / name))
    return folder / name


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    text = "krr(epsilon=4, domain=['a', 'b'])"
    with pytest.raises(InvalidParameter, match="at most 400 groups"):
        page_of(tmp_path, text, pa.table({"x": ["a"] * 401, "day": range(401)}), "--by", "day")
    with pytest.raises(NoReports):
        page_of(tmp_path, text, pa.table({"x": pa.array([], pa.string())}))


def test_the_trace_falls_to_the_maximum() -> None:
    steps = trace(ldpsql.estimate(["a"] * 500 + ["b"] * 300 + ["c"] * 200, "krr(epsilon=1, domain=['a', 'b', 'c'])"))
    assert (np.diff(steps["missing"].to_numpy()) <= 1e-9).all()
    assert steps["gap"][-1] < steps["gap"][0] / 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("oue(epsilon=1, domain=['<b>', 'b & c', '\"'])", ["<b>", "b & c"]),
        ("square_wave(epsilon=1, low=0, high=1, bins=100)", [0.1, 0.7]),
        ("olh(epsilon=1, domain=[1, 2, 3])", [1, 2]),
    ],
)
def test_every_structure_has_a_page_and_pictures(text: str, values: list[object], tmp_path: Path) -> None:
    table = pa.table({"x": ldpsql.perturb(values * 1000, text), "all": ["<all>"] * len(values) * 1000})
    page = page_of(tmp_path, text, table, "--by", "all").read_text(encoding="utf-8")
    assert page.count("<script") == 1
    assert "<b>" not in page
    assert "<all>" not in page
    assert "&lt;all&gt;" in page
    assert page_of(tmp_path, text, table, name="one.png").read_bytes().startswith(b"\x89PNG")
    assert page_of(tmp_path, text, table, name="one.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_picture_of_a_large_map_shows_every_cell(tmp_path: Path) -> None:
    pages.needs_extra()
    truth = {"All reports": np.full(20 * 15, 1 / 300)}
    estimates = {"All reports": ldpsql.estimate([0] * 300 + [299] * 100, "planar_geometric(2, 20, 15)")}
    region = Region(west="-74.3", south="40.5", east="-73.7", north="40.9", columns=20, rows=15)
    pages.write(tmp_path / "map.svg", estimates, truth, region=region)
    picture = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert len(set(re.findall('"(data:image/png;base64,[^"]+)"', picture))) == 2
    assert {"longitude", "latitude", "Estimate", "Truth"} <= set(re.findall(">([^<]+)</text>", picture))


def test_the_image_of_a_table_has_its_shades() -> None:
    address = image_address(np.array([[0.0, 1.0, 2.0], [4.0, 3.0, -1.0]]), 4.0)
    image = b64decode(address.removeprefix("data:image/png;base64,"))
    columns, rows = struct.unpack(">II", image[16:24])
    assert (rows, columns) == (800, 1200)
    at = image.index(b"IDAT")
    data = zlib.decompress(image[at + 4 : at + 4 + int.from_bytes(image[at - 4 : at])])
    pixels = np.frombuffer(data, np.uint8).reshape(rows, columns + 1)[:, 1:]
    assert pixels[::400, ::400].tolist() == [[0, 64, 128], [255, 191, 0]]


def test_an_estimate_shows_itself_in_a_notebook_as_a_table_with_a_chart() -> None:
    html = ldpsql.estimate(["<script>"] * 600 + ["b"] * 400, "krr(epsilon=1, domain=['<script>', 'b'])")._repr_html_()
    assert html.count("<tr>") == 3
    assert html.count("<rect") == 2
    assert "<script>" not in html
    many = ldpsql.estimate(list(range(300)) * 10, f"krr(epsilon=8, domain={list(range(300))})")._repr_html_()
    assert "240 more rows" in many


def test_a_picture_of_many_rows_is_drawn() -> None:
    alt, figures = pytest.importorskip("altair"), pytest.importorskip("ldpsql.pages.figures")
    many = pl.DataFrame({"x": range(6000)})
    assert figures.to_svg(alt.Chart(many).mark_point().encode(x="x:Q")).count('aria-roledescription="point"') == 6000


def test_no_standard_error_stands_as_plus_or_minus_beside_an_interval_which_a_telephone_shows(
    tmp_path: Path,
) -> None:
    page = page_of(tmp_path, "krr(1, ['a', 'b'])", pa.table({"x": ["a"] * 700 + ["b"] * 300})).read_text(encoding="utf-8")
    pairs = "pckv_grr(1, keys := ['a', 'b'], low := -1, high := 1)"
    table = pa.table({"x": ldpsql.perturb([[{"key": "a", "value": 0.5}]] * 500, pairs)})
    page += page_of(tmp_path, pairs, table).read_text(encoding="utf-8")
    assert "±" not in page
    left_out = re.findall(r'<th scope="col" class="[^"]*wide[^"]*">([^<]*)', page)
    assert not [title for title in left_out if "interval" in title]
    assert "Standard error" in left_out
