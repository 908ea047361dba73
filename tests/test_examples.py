"""The examples do what they say."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import threading
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ldpsql
from tests import clients

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_daily_counts_give_the_estimate_of_all_reports_to_the_last_bit(tmp_path: Path) -> None:
    script = [sys.executable, str(EXAMPLES / "daily" / "daily.py"), str(tmp_path)]
    lines = subprocess.run(script, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [f"after {day} days" for day in range(1, 6)]
    assert lines[-1] == "from all 100,000 reports: the same, to the last bit"
    assert not list(tmp_path.glob("raw*"))


POSTING = """
const { report, fingerprint, values } = await import("./commute.mjs");
const address = process.argv[2], held = values.values;
const post = (body) => fetch(address + "/reports", { method: "POST", body }).then((answer) => answer.status);
const bodies = Array.from({ length: 100 }, (_, i) => JSON.stringify({ report: report(held[i % 10 < 7 ? 2 : 0]), fingerprint }));
bodies.push("", "{", "[]", '{"report": "bus"}', JSON.stringify({ report: "plane", fingerprint }),
  JSON.stringify({ report: 3, fingerprint }), JSON.stringify({ report: "bus", fingerprint: "0" }));
const answers = [];
for (const body of bodies) answers.push(await post(body));
console.log(JSON.stringify(answers));
"""


@pytest.mark.skipif(clients.NODE is None, reason=clients.NO_NODE)
def test_a_server_collects_what_clients_draw_and_duckdb_estimates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of 100 people 70 % go by bus. Six standard errors: one false alarm in 5 * 10^8."""
    names: dict[str, Any] = runpy.run_path(str(EXAMPLES / "collect" / "server.py"))
    monkeypatch.chdir(tmp_path)
    server = ThreadingHTTPServer(("localhost", 0), names["Collector"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://localhost:{server.server_port}"
    try:
        with urllib.request.urlopen(f"{address}/") as page:
            assert b"How do you commute?" in page.read()
        with urllib.request.urlopen(f"{address}/commute.mjs") as page:
            (tmp_path / "commute.mjs").write_bytes(page.read())
        program = POSTING.replace("process.argv[2]", json.dumps(address))
        assert json.loads(clients.node(program, tmp_path)) == [204] * 100 + [400] * 7
    finally:
        server.shutdown()
        server.server_close()
    reports = [json.loads(line)["report"] for line in Path("reports.ndjson").read_text(encoding="utf-8").splitlines()]
    assert len(reports) == 100
    found = ldpsql.estimate(reports, names["MECHANISM"], estimator="inv")
    share, error = found.estimate[2], found.std_error[2]
    assert abs(share - 0.7) < 6 * error
    names["estimate"]()
    assert "bus" in capfd.readouterr().out
