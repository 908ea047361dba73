"""URLs as sources and destinations: fsspec's memory, and S3 spoken by moto's server, in real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import fsspec
import pytest
from duckdb import DuckDBPyConnection
from moto.server import ThreadedMotoServer

import ldpsql
from ldpsql.errors import DestinationExists, DestinationRefused, LdpError, OtherMechanism, SourceRefused
from ldpsql.places import Place
from tests.commands import run

ROWS = 500
CITY = "krr(1, ['Lima', 'Oslo', 'Rome'])"
PEOPLE = "SELECT ['Lima', 'Oslo', 'Rome'][1 + i % 3] AS city, i % 2 AS region, i AS id FROM range(500) t(i)"


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Serve S3 on this machine and name it in the environment; return the URL of a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    names = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cret"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (names | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").makedirs("bucket", exist_ok=True)  # what an earlier server of this process held is still there
        yield "s3://bucket"
    server.stop()
    type(fsspec.filesystem("s3")).clear_instance_cache()  # the next server of this process has another port


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def base(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URL of its own, below which there is ``people.parquet``."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    url = f"memory://{tmp_path.name}" if request.param == "memory" else f"{request.getfixturevalue('store')}/{tmp_path.name}"
    with duckdb.connect() as con:
        con.execute(f"COPY ({PEOPLE}) TO '{tmp_path}/people.parquet'")
    files(url).put_file(f"{tmp_path}/people.parquet", f"{url}/people.parquet")
    return url


def files(url: str) -> Any:
    return fsspec.filesystem(url.partition("://")[0])


def test_a_url_is_a_source_and_a_destination_and_remembers_the_mechanism(base: str, con: DuckDBPyConnection) -> None:
    drawn = ldpsql.perturb_copy(con, f"{base}/people.parquet", f"{base}/reports.parquet", {"city": CITY}, keep=["region"])
    assert drawn.rows == ROWS
    assert ldpsql.estimate(f"{base}/reports.parquet", column="city").diagnosis.reports == ROWS
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(f"{base}/reports.parquet", "krr(2, ['Lima', 'Oslo', 'Rome'])", column="city")
    ldpsql.perturb_table(con, Path(f"{base}/people.parquet"), "reports", {"city": CITY})
    assert con.execute("SELECT count(*) FROM reports").fetchone() == (ROWS,)
    assert ldpsql.estimate_groups(con, f"{base}/reports.parquet", "by_region", report="city", keys=["region"]) == 2
    in_sql = f"FROM ldp.estimate('{base}/reports.parquet', city, ldp.krr(1, ['Lima', 'Oslo', 'Rome']))"
    assert len(con.execute(in_sql).fetchall()) == 3


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".json", ".arrow"])
def test_every_form_is_written_to_a_url_and_read_from_it(base: str, suffix: str, con: DuckDBPyConnection) -> None:
    ldpsql.perturb_copy(con, f"{base}/people.parquet", f"{base}/reports{suffix}", {"city": CITY}, keep=["region"])
    assert ldpsql.estimate(f"{base}/reports{suffix}", CITY, column="city").diagnosis.reports == ROWS


def test_a_folder_and_a_pattern_at_a_url_are_sources(base: str, con: DuckDBPyConnection, tmp_path: Path) -> None:
    for day in (1, 2):
        files(base).put_file(f"{tmp_path}/people.parquet", f"{base}/days/day={day}/a.parquet")
    for source in (f"{base}/days", f"{base}/days/", f"{base}/days/*/a.parquet"):
        run_of = ldpsql.perturb_copy(con, source, tmp_path / "out", {"city": CITY}, keep=["day"], replace=True)
        assert (run_of.rows, run_of.parts) == (2 * ROWS, 2)
    with pytest.raises(SourceRefused, match="there is no table or file named"):
        ldpsql.perturb_copy(con, f"{base}/nobody", tmp_path / "other", {"city": CITY})


def test_what_is_at_a_url_is_replaced_only_if_asked_for(base: str, con: DuckDBPyConnection) -> None:
    source, out = f"{base}/people.parquet", f"{base}/reports.parquet"
    ldpsql.perturb_copy(con, source, out, {"city": CITY})
    before = files(base).cat_file(out)
    with pytest.raises(DestinationExists):
        ldpsql.perturb_copy(con, source, out, {"city": CITY})
    assert files(base).cat_file(out) == before
    ldpsql.perturb_copy(con, source, out, {"city": CITY}, replace=True)
    assert files(base).cat_file(out) != before
    with pytest.raises(DestinationRefused, match="the source itself"):
        ldpsql.perturb_copy(con, source, source, {"city": CITY}, replace=True)


def test_a_folder_at_a_url_and_the_web_are_refused_before_anything_is_drawn(base: str, con: DuckDBPyConnection) -> None:
    with pytest.raises(DestinationRefused, match="do not appear at a URL at once"):
        ldpsql.perturb_copy(con, f"{base}/people.parquet", f"{base}/reports", {"city": CITY})
    with pytest.raises(DestinationRefused, match="can only be read"):
        ldpsql.perturb_copy(con, f"{base}/people.parquet", "https://me:s3cret@127.0.0.1/out.parquet", {"city": CITY})


@pytest.mark.slow
def test_commands_take_urls(store: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(f"COPY ({PEOPLE}) TO '{tmp_path}/people.parquet'")
    url = f"{store}/{tmp_path.name}"
    files(url).put_file(f"{tmp_path}/people.parquet", f"{url}/people.parquet")
    drawn = run(
        "perturb", f"{url}/people.parquet", f"{url}/r.parquet", "-c", "city", "-m", CITY, "--keep", "region", cwd=tmp_path
    )
    assert (drawn.returncode, drawn.stderr[:18]) == (0, "perturbed 500 rows")
    for command, options in (("estimate", "--by=region"), ("report", "--output=page.html"), ("ask top", "--most=2")):
        asked = run(*command.split(), f"{url}/r.parquet", "city", options, cwd=tmp_path)
        assert asked.returncode == 0, asked.stderr
    refused = run("estimate", f"{url}/r.parquet", "town", cwd=tmp_path)
    assert refused.returncode != 0
    assert "there is no column named 'town'" in refused.stderr


class Web(BaseHTTPRequestHandler):
    """Serves one file in ranges, as servers on the web do."""

    data = b""

    def do_GET(self) -> None:
        """Send the bytes that are asked for."""
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", f"bytes=0-{len(self.data)}")).groups()  # type: ignore[union-attr]
        part = self.data[int(first) : int(last) + 1]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(self.data)}")
        self._send(part)

    def do_HEAD(self) -> None:
        """Send the size."""
        self.send_response(200)
        self._send(b"", len(self.data))

    def _send(self, part: bytes, size: int | None = None) -> None:
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hash(self.data)}"')
        self.send_header("Content-Length", str(len(part) if size is None else size))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_file_on_the_web_is_a_source_and_is_read_anew_if_it_changed(con: DuckDBPyConnection, tmp_path: Path) -> None:
    for number, name in enumerate(("people", "others")):
        con.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {number} AS number, * FROM ({PEOPLE})")
        con.execute(f"COPY {name} TO '{tmp_path}/{name}.parquet' (COMPRESSION uncompressed)")
    before, after = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("people", "others"))
    assert len(before) == len(after)
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/people.parquet"
        for number, Web.data in enumerate((before, after)):
            assert ldpsql.perturb_table(con, url, "reports", {"city": CITY}, keep=["number"], replace=True).rows == ROWS
            assert con.sql("SELECT DISTINCT number FROM reports").fetchall() == [(number,)]
        server.shutdown()


def test_a_url_is_charged_under_its_name_without_secrets(base: str, con: DuckDBPyConnection, tmp_path: Path) -> None:
    ledger = ldpsql.Ledger.open(tmp_path / "budget.ledger", ldpsql.Policy(epsilon_budget=1, privacy_unit="id"))
    charge = ldpsql.Charge(ledger, "people", user="id")
    ldpsql.perturb_copy(con, f"{base}/people.parquet", f"{base}/reports.parquet", {"city": CITY}, charge=charge)
    with pytest.raises(LdpError, match="LDP311"):
        ldpsql.perturb_copy(con, f"{base}/people.parquet", f"{base}/again.parquet", {"city": CITY}, charge=charge)
    assert not files(base).exists(f"{base}/again.parquet")


PROGRAM = """
import os, signal, sys, duckdb, ldpsql
from ldpsql.bulk.staging import Staging
from ldpsql.bulk.staging import Upload
when, source, out, resume = sys.argv[1:]
def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if when == "before the upload":
    Upload._rename = kill
elif when == "after the upload":
    Staging.remove = kill
elif when == "while drawing":
    Staging.publish = kill
with duckdb.connect() as con:
    ldpsql.perturb_copy(con, source, out, {"city": "krr(1, ['Lima', 'Oslo', 'Rome'])"}, resume=resume == "resume")
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while drawing", "before the upload", "after the upload"])
def test_a_run_that_is_killed_publishes_all_or_nothing_and_can_be_resumed(store: str, when: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(f"COPY ({PEOPLE}) TO '{tmp_path}/people.parquet'")
    out = f"{store}/{tmp_path.name}/reports.parquet"

    def start(when: str, resume: str) -> int:
        call = [sys.executable, "-c", PROGRAM, when, f"{tmp_path}/people.parquet", out, resume]
        return subprocess.run(call, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False).returncode

    assert start(when, "anew") == -signal.SIGKILL
    files(store).invalidate_cache()
    assert files(store).exists(out) == (when == "after the upload")
    assert start("never", "resume") == 0
    files(store).invalidate_cache()
    assert ldpsql.estimate(out, column="city").diagnosis.reports == ROWS


def test_messages_show_urls_without_secrets_and_say_what_to_install(con: DuckDBPyConnection, tmp_path: Path) -> None:
    for source in ("https://me:s3cret@127.0.0.1:1/p.parquet?token=s3cret", "az://box/p.parquet", "nobody://box/p.parquet"):
        with pytest.raises(SourceRefused) as caught:
            ldpsql.perturb_copy(con, source, tmp_path / "out.parquet", {"city": CITY})
        assert "s3cret" not in f"{caught.value}{caught.value.hint}"
    with pytest.raises(SourceRefused, match="is it there, and may you read it"):
        ldpsql.perturb_copy(con, "https://127.0.0.1:1/p.parquet", tmp_path / "out.parquet", {"city": CITY})
    with pytest.raises(SourceRefused, match="nothing here opens URLs of the scheme 'gs'"):
        ldpsql.estimate("gs://bucket/reports.parquet", CITY, column="city")


@pytest.mark.parametrize(
    ("given", "text", "name"),
    [("file:///a/b.csv", "/a/b.csv", "b.csv"), (Path("s3://b/c.parquet"), "s3://b/c.parquet", "c.parquet"),
     ("memory:///a.parquet", "memory://a.parquet", "a.parquet"), ("S3://B/c.csv.gz", "s3://B/c.csv.gz", "c.csv.gz"),
     ("https://u:p@h/a.csv?sig=x", "https://u:p@h/a.csv?sig=x", "a.csv"), ("C:/a.csv", "C:/a.csv", "a.csv"),
     ("in/S3://b.csv", "in/S3://b.csv", "b.csv"), ("a" * 1_000_000, "a" * 1_000_000, "a" * 1_000_000)],
)  # fmt: skip
def test_a_place_is_a_path_or_a_url(given: Any, text: str, name: str) -> None:
    place = Place.of(given)
    assert (place.text, place.path.name) == (text, name)
    assert "u:p" not in place.shown
