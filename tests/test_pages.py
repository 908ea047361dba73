"""Pages hold all that they show: one file that loads nothing, escapes every name, and needs no script to be read."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ldpsql
from ldpsql.errors import InvalidParameter, NoReports
from ldpsql.functions import registry
from ldpsql.mechanisms import Region
from ldpsql.pages import page as pages
from ldpsql.pages.charts import Axis, shares
from ldpsql.pages.document import interval, tag
from ldpsql.pairs import ROW
from tests.commands import app, printed

HOSTILE = "</script><script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(2)>"


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the rows of its tables as text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.policy = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td") and self.rows:
            self.rows[-1].append("")
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = str(dict(attrs)["content"])

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def written(folder: Path, text: str, values: list[Any], **options: Any) -> str:
    mechanism = registry().mechanism(text)
    one = ldpsql.estimate(ldpsql.perturb(values, mechanism), mechanism)
    pages.write(folder / "page.html", {"All reports": one}, options.pop("truth", {}), **options)
    return (folder / "page.html").read_text(encoding="utf-8")


def test_a_page_loads_nothing_and_allows_only_the_style_and_the_script_inside_it(tmp_path: Path) -> None:
    html = written(tmp_path, "krr(1, ['a', 'b'])", ["a", "b"] * 50, sql="FROM 'https://example.org/reports.parquet'")
    page = Parsed(html)
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for name, attributes in page.elements:
        assert not loading & attributes.keys(), name
        assert name not in ("link", "img", "iframe", "object", "embed", "base", "form"), name
        assert (attributes.get("href") or "#").startswith("#")
        assert not [key for key in attributes if key.startswith("on") or key == "style"], name
    (style,), (script,) = (
        re.findall("<style>(.*?)</style>", html, re.DOTALL),
        re.findall("<script>(.*?)</script>", html, re.DOTALL),
    )
    assert not re.search(r"url\(|@import|https?:", style)
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\(|https?:|innerHTML|eval", script)
    assert "default-src 'none'" in page.policy
    for text in (style, script):
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in page.policy


def test_every_name_is_escaped(tmp_path: Path) -> None:
    domain = [HOSTILE, QUOTES, "b & c"]
    mechanism = registry().mechanism({"mechanism": "krr", "epsilon": 4, "domain": domain})
    table = pa.table({"report": domain * 2, "n": [90, 5, 5] * 2, HOSTILE: ["x"] * 3 + [QUOTES] * 3})
    estimates = pages.estimates(table, mechanism, registry().estimator("ibu"))
    pages.write(tmp_path / "page.html", estimates, {}, sql=f"SELECT '{HOSTILE}'")
    page = Parsed((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [name for name, _ in page.elements].count("script") == 1
    assert not [name for name, attributes in page.elements if name == "img" or "onerror" in attributes]
    assert [row[0] for row in page.rows if row[0] in domain][:3] == [HOSTILE, QUOTES, "b & c"]
    assert tag("p", HOSTILE, data_x=QUOTES).count("<") == 2


def test_without_a_script_every_value_is_there_the_largest_share_first(tmp_path: Path) -> None:
    names = [f"city {i}" for i in range(300)]
    html = written(tmp_path, f"krr(8, {names})", [name for i, name in enumerate(names) for _ in range(1 + 9 * (i % 2))])
    rows = [row for row in Parsed(html).rows if row[0].startswith("city")]
    assert sorted(row[0] for row in rows) == sorted(names)
    estimates = [float(row[2].split()[0]) for row in rows]
    assert estimates == sorted(estimates, reverse=True)
    assert int(rows[0][0].split()[1]) % 2 == 1


def test_numbers_stay_in_order_and_have_mean_quartiles_and_curves(tmp_path: Path) -> None:
    html = written(tmp_path, "square_wave(4, 0, 100, bins := 50)", [i / 10 for i in range(1000)])
    rows = [row for row in Parsed(html).rows if " to " in row[0]]
    assert [row[0] for row in rows][:2] == ["0.0 to 2.0", "2.0 to 4.0"]
    for part in ("Mean", "Median", "Middle half", "histogram of the values", "cumulative curve"):
        assert part in html


def test_the_true_mean_lies_in_the_interval_of_the_page(tmp_path: Path) -> None:
    html = written(tmp_path, "truncated_geometric(1, 0, 30)", [10] * 20_000)
    match = re.search(r"<dt>Mean</dt><dd>(.*?) to (.*?)</dd><dd class=\"note\">estimate (.*?)</dd>", html)
    assert match
    assert f"The mean of the values behind these 20,000 reports is {match[1]} to {match[2]}." in html
    low, high, mean = (float(text) for text in match.groups())
    assert low <= mean <= high
    assert mean == pytest.approx(10, abs=0.5)  # thirty standard errors


def test_a_map_has_longitudes_and_latitudes_with_north_above(tmp_path: Path) -> None:
    mechanism = "planar_geometric(4, columns := 3, rows := 2)"
    region = Region(west="-122.5", south="37.7", east="-122.2", north="37.9", columns=3, rows=2)
    html = written(tmp_path, mechanism, [5] * 900 + [0] * 100, region=region)
    cells = re.findall(r"<rect class=\"s(\d)\"[^>]*><title>(.*?): ", html)[:6]
    assert [name for _, name in cells[:3]] == ["-122.45, 37.85", "-122.35, 37.85", "-122.25, 37.85"]
    assert cells[2][0] == "9"  # cell 5, in the north-east, is the darkest
    assert ">longitude<" in html
    assert ">latitude<" in html
    pq.write_table(pa.table({"x": ["a", "b"]}), tmp_path / "reports.parquet")
    with pytest.raises(InvalidParameter, match="only the cells of a grid"):
        printed("report", f"{tmp_path}/reports.parquet", "x", "-m", "krr(1, ['a', 'b'])", "--bounds", "0,0,1,1")


def test_shares_that_the_reports_do_not_determine_are_unknown(tmp_path: Path) -> None:
    html = written(tmp_path, "square_wave(0.1, 0, 100, bins := 64)", [50] * 20)
    rows = [row for row in Parsed(html).rows if " to " in row[0]]
    assert {row[3] for row in rows} == {"unknown"}
    assert "inf" not in " ".join(cell for row in rows for cell in row)
    assert "nan" not in " ".join(cell for row in rows for cell in row)


def test_one_report_makes_a_page(tmp_path: Path) -> None:
    rows = Parsed(written(tmp_path, "krr(1, ['a', 'b'])", ["a"])).rows
    assert sorted(row[0] for row in rows)[:3] == ["Value", "a", "b"]


def test_many_groups_share_the_rows_of_a_page_and_the_largest_shares_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldpsql.pages.report.MOST_ROWS", 12)
    mechanism = registry().mechanism("krr(4, ['a', 'b', 'c', 'd', 'e'])")
    counts = pa.table({"report": list("abcde") * 4, "n": [9, 8, 7, 60, 50] * 4, "day": np.repeat(range(4), 5)})
    pages.write(tmp_path / "page.html", pages.estimates(counts, mechanism, registry().estimator("ibu")), {})
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    values = [row[0] for row in Parsed(html).rows if len(row[0]) == 1]
    assert len(values) == 12
    assert values[:2] == ["d", "e"]
    assert html.count("2 more values with smaller shares") == 4
    assert html.count('class="group"') == 4


def sets_of(count: int) -> list[list[dict[str, Any]]]:
    """Return sets: everybody has one key with 10, a half of them 'half' with 50, nobody 'never'."""
    return [[{"key": HOSTILE, "value": 10.0}, {"key": "half", "value": 50.0}][: 1 + i % 2] for i in range(count)]


def key_value_reports(folder: Path, name: str = "pckv_grr") -> tuple[str, str]:
    mechanism = registry().mechanism(
        {"mechanism": name, "epsilon": 8, "keys": [HOSTILE, "half", "never"], "padding": 2, "low": 0, "high": 60}
    )
    table = pa.table({"kv": ldpsql.perturb(sets_of(6000), mechanism), "region": ["north", "south", "south"] * 2000})
    pq.write_table(table, folder / "kv.parquet")
    return str(folder / "kv.parquet"), str(mechanism)


def page_of(folder: Path, *options: str, name: str = "pckv_grr") -> str:
    reports, mechanism = key_value_reports(folder, name)
    arguments = ["report", reports, "-c", "kv", "-m", mechanism, "-o", str(folder / "page.html"), *options]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["pckv_grr", "pckv_ue", "pckv_pm", "pckv_pm_ue"])
def test_key_value_reports_have_a_page_with_frequency_and_mean_of_every_key(name: str, tmp_path: Path) -> None:
    html = page_of(tmp_path, name=name)
    page = Parsed(html)
    assert [element for element, _ in page.elements].count("script") == 1
    names = next(attributes["data-names"] for element, attributes in page.elements if element == "table")
    assert sorted(str(names).split(",")) == sorted(["key", *ROW])
    rows = {row[0]: row for row in page.rows if row[0] in (HOSTILE, "half", "never")}
    assert next(iter(rows)) == HOSTILE
    assert float(rows[HOSTILE][2].split()[0]) > 85  # six standard errors of bits, which are 2.4 %, below 100 %
    assert float(rows["half"][5]) > 40
    assert float(rows["never"][2].split()[0]) < 20
    assert "<dt>Most frequent key</dt>" in html
    assert re.search("<dt>Keys surely present</dt><dd>[23] of 3</dd>", html)  # 'never' is there once in a hundred times
    assert "any two sets give" in html


def test_the_truth_of_a_page_follows_the_rules_of_the_mechanism(tmp_path: Path) -> None:
    mechanism = "krr(1, ['Lima', 'Oslo'], outside := 'as:Lima', nulls := 'as:Oslo')"
    people = pa.table({"city": ["Lima", "Rome", None, "Lima"] * 50})
    pq.write_table(pa.table({"city": ldpsql.perturb(people["city"], mechanism)}), tmp_path / "reports.parquet")

    def page(truth: pa.Table, mechanism: str) -> str:
        pq.write_table(truth, tmp_path / "truth.parquet")
        paths = ["--truth", f"{tmp_path}/truth.parquet", "-o", f"{tmp_path}/page.html"]
        run = CliRunner().invoke(app, ["report", f"{tmp_path}/reports.parquet", "city", "-m", mechanism, *paths])
        if run.exception is not None:
            raise run.exception
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    assert re.findall(r"(\w+): [^<]*truth ([\d.]+)", page(people, mechanism)) == [("Lima", "75.0"), ("Oslo", "25.0")]
    others = page(people.filter([True, False, True, True] * 50), "krr(1, ['Lima', 'Oslo'])")  # no rule: NULL is left out
    assert re.findall(r"(\w+): [^<]*truth ([\d.]+)", others) == [("Lima", "100.0"), ("Oslo", "0.0")]
    with pytest.raises(NoReports, match="true value"):
        page(people.slice(0, 0), mechanism)


def test_key_value_pages_have_groups_pictures_and_any_estimator(tmp_path: Path) -> None:
    html = page_of(tmp_path, "--by", "region", "--estimator", "ibu")
    assert html.count('class="group"') == 2
    overview = {row[0]: row for row in Parsed(html).rows}
    assert (overview["region north"][1], overview["region south"][1]) == ("2,000", "4,000")
    reports, mechanism = key_value_reports(tmp_path)
    arguments = ["report", reports, "-c", "kv", "-m", mechanism, "-o", str(tmp_path / "page.svg")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    for option in (["--truth", reports], ["--bounds", "0,0,1,1"]):
        refused = CliRunner().invoke(app, [*arguments, *option]).exception
        assert isinstance(refused, InvalidParameter)
        assert option[0] in refused.message


def test_a_key_value_page_warns_if_sets_look_larger_than_the_padding(tmp_path: Path) -> None:
    mechanism = registry().mechanism("pckv_grr(8, ['a', 'b', 'c', 'd', 'e', 'f'], padding := 2)")
    sets = [[{"key": key, "value": 1.0} for key in "abcdef"]] * 2000
    pq.write_table(pa.table({"x": ldpsql.perturb(sets, mechanism)}), tmp_path / "reports.parquet")
    printed("report", f"{tmp_path}/reports.parquet", "x", "-m", str(mechanism), "--output", f"{tmp_path}/page.html")
    assert "use a longer padding" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_sql_of_a_key_value_page_runs_and_gives_its_estimates(tmp_path: Path) -> None:
    html = page_of(tmp_path, "--by", "region")
    sql = unescape(re.findall("<code>(.*?)</code>", html, re.DOTALL)[0])
    with ldpsql.connect() as con:
        rows = con.sql(sql).pl()
    assert rows.columns == ["region", "key", *ROW, "n"]
    first = next(row for row in Parsed(html).rows if row[0] == HOSTILE)
    assert f"{100 * rows['frequency'][0]:.1f}" == first[2].split()[0]


@pytest.mark.parametrize("share", [0.9, 0.5])
def test_a_page_says_what_follows_from_the_intervals(tmp_path: Path, share: float) -> None:
    mechanism, values = "krr(1, ['a', 'b'])", ["a"] * int(share * 1000) + ["b"] * (1000 - int(share * 1000))
    one = ldpsql.estimate(ldpsql.perturb(values, mechanism), mechanism)
    pages.write(tmp_path / "page.html", {"All": one}, {})
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    most, least = int(one.estimate.argmax()), int(one.estimate.argmin())
    apart = one.low[most] > one.high[least]
    assert ("lies above all others" in html, "intervals overlap" in html) == (apart, not apart)
    assert f"{interval(one.low[most], one.high[most])} of the values behind these 1,000 reports are {'ab'[most]}." in html


def test_the_plan_has_a_page_with_every_mechanism(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    run = CliRunner().invoke(app, ["plan", "-n", "5000", "-k", "20", "--epsilon", "1", "--output", str(page)])
    assert run.exit_code == 0, run.output
    rows = [row for row in Parsed(page.read_text(encoding="utf-8")).rows if len(row) == 5]
    assert {"krr", "olh", "oue"} <= {row[0] for row in rows}
    refused = CliRunner().invoke(app, ["plan", "-n", "5000", "-k", "20", "--output", str(tmp_path / "plan.txt")])
    assert refused.exit_code != 0


def test_the_demonstration_needs_no_extra_and_compares_with_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    printed("demo", "--epsilon", "2", "--page", f"{tmp_path}/demo.html")
    page = Parsed((tmp_path / "demo.html").read_text(encoding="utf-8"))
    assert {row[0] for row in page.rows} >= {"EWR", "JFK", "LGA", "UA"}
    assert (tmp_path / "demo.html").stat().st_size < 100_000


def test_ticks_are_round_and_few_and_an_axis_of_shares_holds_all_of_them() -> None:
    for low, high in [(0, 1), (0, 0.037), (-0.2, 0.9), (1e-6, 3e-6), (0, 1e6), (-5, -4.9)]:
        ticks = Axis(low, high).ticks()
        assert 2 <= len(ticks) <= 6
        assert all(0 <= at <= 100 for at, _ in ticks)
        assert len({label for _, label in ticks}) == len(ticks)
    axis = shares(-0.013, 0.274)
    assert axis.low <= -0.013
    assert axis.high >= 0.274
    assert [text for _, text in Axis(0.25, 8, log=True).ticks()] == ["0.5", "1", "2", "5"]
