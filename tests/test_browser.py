"""The pages in a real browser, Debian's chromium without a display: ``make test-browser``."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import threading
from collections.abc import Sequence
from datetime import date
from html import unescape
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ldpsql
from ldpsql.estimates.planning import compare, over_declared_values
from ldpsql.estimates.spans import region_of
from ldpsql.functions import registry
from ldpsql.pages import demo
from ldpsql.pages import key_value as pairs
from ldpsql.pages import page as pages
from ldpsql.pages.report import plan_page
from tests import clients

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")]

LOOKING = Path(__file__).with_name("looking.js").read_text(encoding="utf-8")
WIDTHS = (375, 1280)
LONG = "a value whose name is much longer than any axis has room for, and_that_has_hardly_a_place_to_break_it"


def looked(listed: list[dict[str, Any]], folder: Path, *, dark: bool) -> dict[str, Any]:
    """Let the browser draw pages in frames of their widths, without a network; return what `looking.js` says of each."""
    as_json = json.dumps(listed).replace("</", "<\\/")
    around = folder / "looking.html"
    around.write_text(f"<!doctype html><meta charset=utf-8><body><script>const PAGES = {as_json};\n{LOOKING}</script>", "utf-8")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND"),
        *(f"--user-data-dir={folder / 'empty'}", "--window-size=1400,1000", "--virtual-time-budget=20000"),
        *(f"--blink-settings=preferredColorScheme={0 if dark else 1}", around.as_uri()),
    ]
    drawn = subprocess.run(command, check=True, capture_output=True, timeout=120, text=True).stdout
    result = re.search(r'<pre id="result">(.*?)</pre>', drawn, re.DOTALL)
    assert result, drawn[-2000:]
    return dict(json.loads(unescape(result[1])))


def report(folder: Path, text: str, values: Sequence[object], **options: Any) -> str:
    mechanism = registry().mechanism(text)
    titles = options.pop("titles", ["All reports"])
    estimates = {title: ldpsql.estimate(ldpsql.perturb(list(values), mechanism), mechanism) for title in titles}
    truth = {title: np.full(len(estimates[title].values), 1 / len(estimates[title].values)) for title in titles}
    pages.write(folder / "page.html", estimates, truth, "SELECT " + "1 + " * 200 + "1", **options)
    return (folder / "page.html").read_text(encoding="utf-8")


def key_values(folder: Path) -> str:
    """Return a page of two groups and of keys with long names, one of which nobody has."""
    made = {"mechanism": "pckv_pm", "epsilon": 2, "keys": [LONG, *(f"key {i}" for i in range(40))], "padding": 3}
    mechanism = registry().mechanism({**made, "low": -1e6, "high": 1e6})
    sets = [[{"key": key, "value": 12345.6} for key in (LONG, f"key {i % 39}")] for i in range(3000)]
    estimates = {title: ldpsql.key_value(ldpsql.perturb(sets, mechanism), mechanism) for title in (LONG, "another")}
    pairs.write_key_values(folder / "page.html", estimates, "SELECT " + "1 + " * 200 + "1")
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every kind of page, each with what is hard to show."""
    folder = tmp_path_factory.mktemp("pages")
    demo.write_page(demo.run("1"), folder / "demo.html")
    grid = registry().mechanism("planar_geometric(epsilon=1, columns=12, rows=7)")
    region = region_of(grid, ["-122.5123", "37.7", "-122.3", "37.8123"])
    many = [LONG, *(f"value number {i}" for i in range(1200))]
    plan = compare(["0.25", "0.5", "1", "2", "4", "8"], 100_000, over_declared_values(registry().mechanisms, 50))
    return {
        "demo": (folder / "demo.html").read_text(encoding="utf-8"),
        "groups": report(folder, "krr(2, ['a', 'b'])", ["a", "b", "a"] * 99, titles=[f"{LONG} {i}" for i in range(30)]),
        "many": report(folder, f"krr(4, {many})", many * 9),
        "numbers": report(folder, "square_wave(2, 0, 1000000, bins := 130)", list(range(0, 10**6, 500))),
        "few numbers": report(folder, "square_wave(4, -0.001, 0.001, bins := 26)", [i / 1e6 for i in range(-1000, 1000)]),
        "dates": report(folder, DATES, [date(2024, 1, day) for day in range(1, 32)] * 99),
        "map": report(folder, str(grid), [i % 84 for i in range(9999)], region=region),
        "key-value": key_values(folder),
        "plan": plan_page(plan, 100_000),
    }


DATES = "krr(4, {'type': 'date32[day]', 'values': [" + ", ".join(f"'2024-01-{day:02}'" for day in range(1, 32)) + "]})"


@pytest.mark.parametrize("dark", [False, True])
def test_no_text_is_cut_or_covered_at_the_width_of_a_telephone_and_of_a_desk(
    dark: bool, written: dict[str, str], tmp_path: Path
) -> None:
    listed = [{"name": name, "width": width, "html": html} for name, html in written.items() for width in WIDTHS]
    for name, seen in looked(listed, tmp_path, dark=dark).items():
        assert not seen["faulty"], (name, seen["faulty"][:5])
        assert seen["dark"] is dark
        assert seen["script"], name  # it ran, under the policy of the page
        assert seen["drawn"] > 30, name


def test_the_look_finds_what_is_cut_and_what_overflows(written: dict[str, str], tmp_path: Path) -> None:
    style = re.escape(written["plan"].split("<style>")[1].split("</style>")[0])
    page = re.sub(r"<meta http-equiv[^>]*>", "", written["plan"])
    wide = page.replace("<main>", f"<main><div>{'x' * 300}</div>")
    cut = re.sub(style, lambda match: match[0] + ".plot { margin-left: 0 }", page)
    listed = [{"name": name, "width": 375, "html": html} for name, html in (("wide", wide), ("cut", cut))]
    seen = looked(listed, tmp_path, dark=False)
    assert any("overflows" in fault for fault in seen["wide 375"]["faulty"])
    assert any("cut" in fault for fault in seen["cut 375"]["faulty"])


def test_pages_answer_to_the_pointer(written: dict[str, str], tmp_path: Path) -> None:
    listed = [{"name": name, "width": 1280, "html": written[name], "actions": True} for name in ("demo", "many")]
    seen = looked(listed, tmp_path, dark=False)
    used = seen["demo 1280"]["used"]
    assert used["rows"][1:] == ["9E", "YV"]  # sorted by name, then the other way round
    assert used["tip"].startswith("YV: ")
    lines = used["csv"].splitlines()
    assert lines[0] == "value,estimate,low,high,std_error,truth"
    assert len(lines) == 1 + 16  # carriers
    assert [0 <= float(cell) <= 1 for cell in lines[1].split(",")[1:]] == [True] * 5
    assert used["chosen"] == ["JFK"]
    many = seen["many 1280"]["used"]
    assert many["matches"] == 1
    assert f'"{LONG}"' in many["csv"]  # it holds a comma
    assert len(many["csv"].splitlines()) == 1202


def test_a_page_of_reports_without_any_truth_is_drawn(tmp_path: Path) -> None:
    mechanism = "krr(1, ['a', 'b'])"
    pages.write(tmp_path / "page.html", {"All": ldpsql.estimate(ldpsql.perturb(["a", "b"] * 99, mechanism), mechanism)}, {})
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    seen = looked([{"name": "page", "width": 375, "html": html}], tmp_path, dark=False)
    assert not seen["page 375"]["faulty"]


def test_a_browser_draws_the_reports_of_python_from_the_same_words(tmp_path: Path) -> None:
    assert clients.in_browser(str(CHROMIUM), clients.cases(clients.TEXTS, 60), tmp_path) == {}


def test_a_fault_planted_in_a_module_is_found_in_the_browser(tmp_path: Path) -> None:
    assert clients.in_browser(str(CHROMIUM), clients.with_a_fault(), tmp_path).keys() == {"krr"}


SITE = Path(__file__).parents[1] / "site"
MEASURES = """<!doctype html><script type="module">
  const sizes = {};
  for (const path of PATHS) {
    const frame = document.createElement("iframe");
    [frame.width, frame.height, frame.src] = [WIDTH, 844, path];
    document.body.append(frame);
    await new Promise((done) => (frame.onload = done));
    const page = frame.contentDocument;
    const headings = page.querySelectorAll("article :is(h2, h3)[id]").length;
    sizes[path] = [page.documentElement.scrollWidth, page.documentElement.scrollHeight, headings];
    frame.remove();
  }
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(sizes);
  document.body.append(result);
</script>"""


@pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: make site")
def test_no_page_of_the_site_is_wider_than_a_telephone_or_long_without_anchors(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(SITE, site)
    paths = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    (site / "measures.html").write_text(MEASURES.replace("PATHS", json.dumps(paths)).replace("WIDTH", "390"), "utf-8")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"),
        *("--no-first-run", "--allow-file-access-from-files", "--virtual-time-budget=90000"),
        *(f"--user-data-dir={tmp_path / 'empty'}", (site / "measures.html").as_uri()),
    ]
    drawn = subprocess.run(command, check=True, capture_output=True, timeout=200, text=True).stdout
    result = re.search(r'<pre id="result">(.*?)</pre>', drawn, re.DOTALL)
    assert result, drawn[-2000:]
    sizes = json.loads(unescape(result[1]))
    assert len(sizes) == len(paths) > 30
    assert not {path: width for path, (width, _, _) in sizes.items() if width > 390}
    assert not {path: height for path, (_, height, headings) in sizes.items() if height > 10_000 and not headings}


SENDS = """<script type="module">
  const form = document.querySelector("form"), output = form.querySelector("output");
  while (!form.commute.options.length) await new Promise((done) => setTimeout(done, 10));
  const said = [];
  for (let person = 0; person < PEOPLE; person++) {
    localStorage.clear();  // another person's browser
    for (let time = 0; time < 2; time++) {  // who presses twice sends one report twice
      output.value = "";
      form.commute.value = person % 10 < 7 ? "bus" : "walk";
      form.querySelector("button").click();
      while (!output.value) await new Promise((done) => setTimeout(done, 5));
      said.push(output.value);
    }
  }
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(said);
  document.body.append(result);
</script>
"""
PEOPLE = 100


def test_the_form_of_the_page_reports_to_its_server_and_duckdb_estimates_what_it_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 people 70 % go by bus. Six standard errors: one false alarm in 5 * 10^8."""
    names: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "collect" / "server.py"))
    monkeypatch.chdir(tmp_path)
    kind, page = names["PAGES"]["/"]
    names["PAGES"]["/"] = kind, page.replace("</html>", SENDS.replace("PEOPLE", str(PEOPLE)) + "</html>")
    server = ThreadingHTTPServer(("localhost", 0), names["Collector"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"),
        *("--disable-component-update", "--disable-sync", "--no-first-run", "--virtual-time-budget=60000"),
        *(f"--user-data-dir={tmp_path / 'empty'}", f"http://localhost:{server.server_port}/"),
    ]
    try:
        drawn = subprocess.run(command, check=True, capture_output=True, timeout=120, text=True).stdout
    finally:
        server.shutdown()
        server.server_close()
    result = re.search(r'<pre id="result">(.*?)</pre>', drawn, re.DOTALL)
    assert result, drawn[-2000:]
    assert json.loads(unescape(result[1])) == ["Thank you."] * 2 * PEOPLE
    with ldpsql.connect() as con:
        reports = [report for (report,) in con.execute("SELECT report FROM 'reports.ndjson'").fetchall()]
        assert reports[::2] == reports[1::2]  # kept by the browser, not drawn a second time
        estimates = con.execute(
            "FROM ldp.estimate('reports.ndjson', report, $1, estimator := 'inv')", [str(names["MECHANISM"])]
        ).fetchall()
    assert len(reports) == 2 * PEOPLE
    shares = {value: (share, error * 2**0.5) for value, share, error, *_ in estimates}  # each report is there twice
    assert abs(shares["bus"][0] - 0.7) < 6 * shares["bus"][1]
