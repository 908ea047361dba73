"""An event of OpenLineage for each release: after it is published, once, without values; one that is lost changes nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import jsonschema
import pytest

import ldpsql
from ldpsql import Charge
from ldpsql.engine.identity import without_secrets
from ldpsql.errors import BadSettings, BudgetExceeded
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy, openlineage
from tests.commands import printed
from tests.spending import krr

CANARY = "canary7f3a"
TEXT, URI = {"type": "string", "minLength": 1}, {"type": "string", "pattern": "^https?://"}
PRODUCER = {"const": f"urn:ldpsql:{ldpsql.__version__}"}  # the specification asks for any URI
NAMED = {"type": "object", "properties": {"namespace": TEXT, "name": TEXT}, "required": ["namespace", "name"]}
FACETS = {
    "type": "object",
    "additionalProperties": {"properties": {"_producer": PRODUCER, "_schemaURL": URI}, "required": ["_producer", "_schemaURL"]},
}
# What the specification 2-0-2 requires of an event of a run.
EVENT = {
    "type": "object",
    "required": ["run", "job", "eventTime", "producer", "schemaURL"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$"},
        "producer": PRODUCER,
        "schemaURL": URI,
        "run": {"required": ["runId"], "properties": {"runId": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}}},
        "job": {**NAMED, "properties": {"facets": FACETS}},
        "inputs": {"type": "array", "items": NAMED},
        "outputs": {"type": "array", "items": {**NAMED, "properties": {"facets": FACETS, "outputFacets": FACETS}}},
    },
}


class Catalogue:
    """A server on this machine that keeps what it gets, and answers with a status."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 201
        catalogue = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name that the library calls
                body = self.rfile.read(int(self.headers["Content-Length"]))
                catalogue.events.append(json.loads(body))
                catalogue.keys.append(self.headers["Authorization"])
                self.send_response(catalogue.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                catalogue.events.append({"redirected": True})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/api/v1/lineage"


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    made = Catalogue()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.chdir(tmp_path)
    return Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget=2))


def configured(text: str) -> None:
    Path("ldpsql.toml").write_text(f"[lineage]\n{text}\n", encoding="utf-8")


def released(ledger: Ledger, destination: str = "reports.parquet") -> str:
    release = ledger.charge("people", {"city": krr("0.5")}, destination, rows=3)
    assert ledger.publish(release).stored
    return release.token


def test_a_release_sends_one_event_that_keeps_the_specification(ledger: Ledger, catalogue: Catalogue) -> None:
    configured(f'url = "{catalogue.url}"\nnamespace = "warehouse"')
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE people AS SELECT '{CANARY}' AS city FROM range(9)")
        mechanism = {"city": f"krr(epsilon=0.5, domain=['{CANARY}', 'Oslo'])"}
        run = ldpsql.perturb_copy(con, "people", "reports.parquet", mechanism, charge=Charge(ledger, "people"))
    (event,) = catalogue.events
    jsonschema.validate(event, EVENT)
    assert CANARY not in json.dumps(event)
    assert event["run"]["runId"].replace("-", "") == run.release
    assert (event["eventType"], event["job"]["namespace"]) == ("COMPLETE", "warehouse")
    assert event["inputs"] == [{"namespace": "warehouse", "name": "memory.main.people"}]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(Path("reports.parquet").absolute()))
    (field,) = output["facets"]["columnLineage"]["fields"]["city"]["inputFields"]
    assert (field["name"], field["field"], field["transformations"][0]["masking"]) == ("memory.main.people", "city", True)
    tags = {(tag["field"], tag["key"]): tag["value"] for tag in output["facets"]["tags"]["tags"]}
    assert tags == {("city", "epsilon"): "0.5", ("city", "delta"): "0"}


def test_an_address_is_an_event_without_its_password_and_its_signature(ledger: Ledger) -> None:
    configured('file = "events.jsonl"')
    address = "https://user:s3cret@example.com/people.parquet?X-Amz-Signature=s3cret"
    ledger.publish(ledger.charge(address, {"city": krr("0.5")}, address.replace("people", "reports"), rows=3))
    text = Path("events.jsonl").read_text(encoding="utf-8")
    assert "s3cret" not in text
    event = json.loads(text)
    assert event["inputs"] == [{"namespace": "https://example.com", "name": "people.parquet"}]
    assert event["job"]["name"] == "release of https://example.com/people.parquet"


def test_only_the_first_publication_is_an_event(ledger: Ledger, catalogue: Catalogue) -> None:
    configured(f'url = "{catalogue.url}"')
    token = released(ledger)
    ledger.publish(ledger.release_of(token))
    assert ledger.charge("people", {"city": krr("0.5")}, "reports.parquet", rows=3).stored
    assert [event["run"]["runId"].replace("-", "") for event in catalogue.events] == [token]
    assert catalogue.events[0]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_an_address_that_refuses_is_logged_and_the_release_stands(
    ledger: Ledger, catalogue: Catalogue, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    configured(f'url = "{catalogue.url}"')
    catalogue.status = status
    token = released(ledger)
    assert ledger.release_of(token).stored
    assert len(catalogue.events) == 1  # neither repeated nor redirected
    assert f"the address answered {status}" in caplog.text


def test_an_address_that_never_answers_is_given_up(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openlineage, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configured(f'url = "http://user:secret@127.0.0.1:{silent.getsockname()[1]}/x"')
        assert ledger.release_of(released(ledger)).stored
    assert "was not written" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("text", ['file = "missing/lineage.jsonl"', 'url = "http://127.0.0.1:1/x"', 'unknown = "x"'])
def test_settings_that_cannot_be_used_do_not_break_a_release(
    ledger: Ledger, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    configured(text)
    assert ledger.release_of(released(ledger)).stored
    assert "was not written" in caplog.text


def test_a_file_gets_a_line_for_each_release_and_reports_in_memory_have_no_output(ledger: Ledger) -> None:
    configured('file = "lineage.jsonl"')
    tokens = [released(ledger), released(ledger, "memory")]
    events = [json.loads(line) for line in Path("lineage.jsonl").read_text(encoding="utf-8").splitlines()]
    for event in events:
        jsonschema.validate(event, EVENT)
    assert [event["run"]["runId"].replace("-", "") for event in events] == tokens
    assert [len(event["outputs"]) for event in events] == [1, 0]


def test_the_event_of_permanent_reports_states_no_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configured('file = "lineage.jsonl"')
    ledger, key = Ledger.open("people.ledger", Policy(epsilon_budget=9, privacy_unit="id")), ldpsql.Key.create("people.key")
    charge, city = Charge(ledger, "people", user="id"), {"city": "krr(epsilon=1, domain=['a', 'b'])"}
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT i AS id, 'a' AS city FROM range(3) t(i)")
        for day in range(2):  # the ledger charges three reports on the first day and none on the second
            ldpsql.perturb_table(con, "people", f"day_{day}", city, charge=charge, permanent=True, key=key)
    events = [json.loads(line) for line in Path("lineage.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [len(event["outputs"]) for event in events] == [1, 1]
    assert "rowCount" not in json.dumps(events)


@pytest.mark.parametrize(
    ("trusted", "sent"),
    [
        ("{url}", True),
        ("{url}/api/v1/lineage", True),
        ("", False),
        ("http://127.0.0.1", False),
        ("https://{host}", False),
        ("{url}.example.com", False),
        ("http://{host}@example.com", False),
    ],
)
def test_the_key_of_the_environment_goes_to_the_host_of_the_environment_only(
    ledger: Ledger, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, trusted: str, sent: bool
) -> None:
    url = catalogue.url.removesuffix("/api/v1/lineage")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k")
    monkeypatch.setenv("OPENLINEAGE_URL", trusted.format(url=url, host=url.removeprefix("http://")))
    configured(f'url = "{catalogue.url}"')
    assert ledger.release_of(released(ledger)).stored
    assert ("Bearer k" in catalogue.keys) == sent


def test_an_epsilon_per_unit_of_distance_is_not_an_epsilon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configured('file = "events.jsonl"')
    ledger = Ledger.open("budget.ledger", Policy(epsilon_budget=2, distance_budget=3))
    place = registry().mechanism("truncated_geometric(epsilon=0.5, low=0, high=9)")
    ledger.publish(ledger.charge("people", {"place": place, "city": krr("0.5")}, "reports.parquet", rows=3))
    (output,) = json.loads(Path("events.jsonl").read_text(encoding="utf-8"))["outputs"]
    tags = {(tag["field"], tag["key"]): tag["value"] for tag in output["facets"]["tags"]["tags"]}
    assert tags[("place", "epsilon_per_unit_of_distance")] == "0.5"
    assert tags[("city", "epsilon")] == "0.5"
    assert ("place", "epsilon") not in tags


def test_a_ledger_holds_addresses_without_what_opens_them_and_has_one_budget_for_each(ledger: Ledger) -> None:
    signed = "https://user:s3cret@example.com/people.parquet?X-Amz-Signature={}"
    first = ledger.charge(signed.format("s3cret"), {"city": krr("1.5")}, signed.format("s3cret"), rows=3)
    ledger.publish(first)
    again = ledger.charge(signed.format("other"), {"city": krr("1.5")}, signed.format("other"), rows=3)
    assert again.token == first.token
    with pytest.raises(BudgetExceeded):
        ledger.charge("https://example.com/people.parquet", {"city": krr("1.5")}, "other.parquet", rows=3)
    assert all(b"s3cret" not in path.read_bytes() for path in Path().glob("budget.ledger*"))


def test_an_older_ledger_shows_no_secrets_of_addresses(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "https://user:s3cret@example.com/people.parquet?s3cret"
    with monkeypatch.context() as before:
        for place in ("engine.identity", "ledger.entries"):
            before.setattr(f"ldpsql.{place}.without_secrets", lambda name: name)
        ledger.charge(address, {"city": krr("1")}, address, rows=3)
    assert any(b"s3cret" in path.read_bytes() for path in Path().glob("budget.ledger*"))
    ledger.check()
    assert "s3cret" not in str([*ledger.history(), *ledger.balances()])


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("HTTPS://me:s3cret@host/a.csv", "HTTPS://host/a.csv"),
        ("https://me:s3?cret@host/a.csv", "https://host/a.csv"),
        ("https://host/a.csv?s3cret", "https://host/a.csv"),
        ("https://host/list?s3/cret&sig=s3cret", "https://host/list"),
        ("s3://bucket/a.csv?s3_secret_access_key=s3/cret", "s3://bucket/a.csv"),
        ("s3://bucket/year=2024/a?-*.csv", "s3://bucket/year=2024/a?-*.csv"),
        ("/data/why?=.csv", "/data/why?=.csv"),
        ("/data/token=7/people.parquet", "/data/token=7/people.parquet"),
        ("host=db PASSWORD = 's3\\'c ret' user=me", "host=db PASSWORD = user=me"),
        ("password=s3\\ cret host=db", "password= host=db"),
        ("s3_access_key_id=me s3_secret_access_key='s3 cret'", "s3_access_key_id=me s3_secret_access_key="),
        ("Endpoint=sb://bus/;SharedAccessKey=s3cret=", "Endpoint=sb://bus/;SharedAccessKey="),
        ('Server=db;Pwd="s3;c""ret";Database=shop', "Server=db;Pwd=;Database=shop"),
        (
            "postgres_scan('host=db password=''s3 cret'' user=me', 'a', 'b')",
            "postgres_scan('host=db password= user=me', 'a', 'b')",
        ),
        ("postgres_scan('password=s3cret', 'a', 'b')", "postgres_scan('password=', 'a', 'b')"),
        ("md:shop?motherduck_token=s3cret", "md:shop?motherduck_token="),
        ("AccountName=me;AccountKey=s3cret+/==;EndpointSuffix=core", "AccountName=me;AccountKey=;EndpointSuffix=core"),
        ("SharedAccessSignature=sv=1&sig=s3cret", "SharedAccessSignature="),
        ("host=db pass=s3cret passphrase=s3cret sas=s3cret", "host=db pass= passphrase= sas="),
        ("host=db auth=s3cret credential=s3cret author=me", "host=db auth= credential= author=me"),
    ],
)
def test_names_keep_nothing_that_opens_an_address(name: str, kept: str) -> None:
    assert without_secrets(name) == kept


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s3://bucket/a/b.parquet", {"namespace": "s3://bucket", "name": "a/b.parquet"}),
        ("/data/w.duckdb main.reports", {"namespace": "duckdb:///data/w.duckdb", "name": "main.reports"}),
        ("warehouse.main.people", {"namespace": "ldpsql", "name": "warehouse.main.people"}),
    ],
)
def test_data_have_the_names_of_the_specification(ledger: Ledger, name: str, expected: dict[str, str]) -> None:
    configured('file = "lineage.jsonl"')
    released(ledger, name)
    (output,) = json.loads(Path("lineage.jsonl").read_text(encoding="utf-8"))["outputs"]
    assert {key: output[key] for key in expected} == expected


def test_another_address_is_weaker_in_a_review_and_an_address_must_be_one(tmp_path: Path) -> None:
    none, some, other = (tmp_path / name for name in ("none.toml", "some.toml", "other.toml"))
    none.write_text("", encoding="utf-8")
    some.write_text('[lineage]\nurl = "http://a/x"\n', encoding="utf-8")
    other.write_text('[lineage]\nurl = "http://b/x"\n', encoding="utf-8")
    for old, new, verdict in [(none, some, "weaker"), (some, other, "weaker"), (some, none, "stronger")]:
        (change,) = json.loads(printed("policy", "diff", str(old), str(new), "--format", "json"))
        assert change["verdict"] == verdict
    other.write_text('[lineage]\nurl = "file:///etc/passwd"\n', encoding="utf-8")
    with pytest.raises(BadSettings, match=r"url in the section \[lineage\]"):
        printed("policy", "show", str(other))
