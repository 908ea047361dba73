"""Mechanisms as documents: what they hold, where they are read, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

import ldpsql
from ldpsql import certify
from ldpsql.errors import BadSettings, InvalidParameter, InvalidSpec, LdpError, OtherMechanism, SourceRefused, UnknownName
from ldpsql.functions import Registry, document_text, fingerprint, registry, text_literal
from ldpsql.mechanisms import TOTAL
from tests import clients
from tests.commands import app
from tests.laws.subjects import ESTIMATES_ONLY

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "reference" / "mechanism.schema.json").read_text(encoding="utf-8"))
KRR = "krr(1, ['Lima', 'Oslo'])"


TEXTS = [
    *clients.TEXTS.values(),
    *(f"{name}(1, ['book', 'film'], low := 0, high := 5)" for name in ("pckv", "pckv_grr", "pckv_ue")),
    *(f"{name}(1, ['book', 'film'], low := 0, high := 5, bins := 8)" for name in ("pckv_pm", "pckv_pm_ue")),
    "pem(1, max_bytes := 4)",
    "planar_laplace(1, columns := 3, rows := 4)",
    "blahut_arimoto(2, ['a', 'b', 'c'], [1, 2, 3], columns := 3)",
    "optimal(1, ['a', 'b', 'c'], [3, 2, 1])",
    "optimal_mean(1, 0, 1, [3, 1], bins := 2)",
    "optimal_metric(1, ['a', 'b', 'c'], [3, 2, 1], columns := 3)",
]


def test_every_mechanism_becomes_a_document_of_the_schema_and_comes_back() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for text in TEXTS:
        mechanism = registry().mechanism(text)
        written = document_text(mechanism)
        validator.validate(json.loads(written))
        assert registry().mechanism(written) == mechanism
        assert registry().mechanism(ldpsql.document(mechanism)) == mechanism


def test_the_texts_are_of_every_mechanism() -> None:
    assert {registry().mechanism(text).name for text in TEXTS} | ESTIMATES_ONLY == registry().mechanisms.keys()


def test_the_schema_refuses_what_is_no_document() -> None:
    whole = ldpsql.document(registry().mechanism(KRR))
    for change in ({"version": 2}, {"channel": {"structure": "coin"}}, {"ratio": 2.7}, {"more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(whole | change, SCHEMA)


@pytest.mark.parametrize("name", ["matrix", "square_wave", "exponential", "laplace", "geometric"])
def test_a_document_holds_the_exact_weights(name: str) -> None:
    channel: Any = certify(clients.mechanism(name)).channel
    held = ldpsql.document(clients.mechanism(name))["channel"]
    table = held.get("noise", held)
    rows = [unpacked(row, table["distinct"]) for row in table["rows"]]
    assert all(sum(row) == TOTAL for row in rows)
    expected = channel.noise[None] if "noise" in held else channel.weights()
    assert rows == expected.tolist()


def unpacked(row: list[int], distinct: list[str]) -> list[int]:
    out: list[int] = []
    for number in row:
        out += [out[-1]] * -number if number < 0 else [int(distinct[number])]
    return out


def test_a_document_has_the_fingerprint_that_reports_record() -> None:
    mechanism = registry().mechanism(KRR)
    assert ldpsql.document(mechanism)["fingerprint"] in fingerprint(mechanism)


PARTS: list[tuple[str, Any]] = [
    ("channel", {"structure": "keep_or_spread", "size": 2, "keep": str(TOTAL - 1), "spread": "1"}),
    ("parameters", {"epsilon": "2", "domain": ["Lima", "Oslo"]}),
    ("parameters", {"epsilon": "1", "domain": ["Oslo", "Lima"]}),
    ("claim", "0.1-LDP"),
    ("ratio", "2/1"),
    ("fingerprint", "0" * 32),
    ("values", {"kind": "listed", "type": "string", "values": ["Oslo", "Lima"], "null": None, "outside": None}),
    ("comment", "more"),
]


@pytest.mark.parametrize(("part", "changed"), PARTS, ids=range(len(PARTS)))
def test_a_changed_document_is_refused(part: str, changed: object) -> None:
    with pytest.raises(OtherMechanism, match="make another mechanism than it describes"):
        registry().mechanism(ldpsql.document(registry().mechanism(KRR)) | {part: changed})


@pytest.mark.parametrize("version", [True, 1.0, "1", 2, None])
def test_a_version_is_the_whole_number_one(version: object) -> None:
    with pytest.raises(InvalidSpec, match="does not have version"):
        registry().mechanism(json.dumps(ldpsql.document(registry().mechanism(KRR)) | {"version": version}))


def test_a_document_is_not_written_where_it_cannot_be_read_back(tmp_path: Path) -> None:
    run = CliRunner().invoke
    refused = run(app, ["describe", "-m", KRR, "-o", str(tmp_path / "city.txt")])
    assert isinstance(refused.exception, InvalidParameter)
    assert not (tmp_path / "city.txt").exists()
    assert run(app, ["describe", "-m", KRR, "-o", str(tmp_path / "city.json")]).exit_code == 0


@pytest.mark.parametrize("extra", ['{"claim": "0.1-LDP",', '{"parameters": {"epsilon": "0.1", "domain": ["Lima", "Oslo"]},'])
def test_a_document_that_says_something_twice_is_refused(extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = document_text(registry().mechanism(KRR)).replace("{", extra, 1)
    with pytest.raises(InvalidSpec, match="each name occurs once"):
        registry().mechanism(text)
    (tmp_path / "city.json").write_text(text, encoding="utf-8")
    (tmp_path / "ldpsql.toml").write_text('[mechanisms]\ncity = {document = "city.json"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match="is not a document"):
        Registry.load()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", InvalidSpec),
        ('{"format": "ldpsql.mechanism"}', InvalidSpec),
        ('{"format": "ldpsql.mechanism", "version": 2, "mechanism": "krr", "parameters": {}}', InvalidSpec),
        ('{"format": "ldpsql.mechanism", "version": 1, "mechanism": "coin", "parameters": {}}', UnknownName),
        ('{"format": "ldpsql.mechanism", "version": 1, "mechanism": 1, "parameters": {}}', InvalidSpec),
        ('{"format": "ldpsql.mechanism", "version": 1, "mechanism": "krr", "parameters": []}', InvalidSpec),
        ("[" * 100_000, InvalidSpec),
        ('{"a":' * 100_000, InvalidSpec),
        ('{"format": 1}', InvalidSpec),
        ("{}", InvalidSpec),
    ],
)
def test_what_is_no_document_is_refused_with_a_code(text: str, error: type[LdpError]) -> None:
    with pytest.raises(error):
        registry().mechanism(text)


def test_sql_python_and_the_settings_read_and_write_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = registry().mechanism(KRR)
    text = document_text(mechanism)
    (tmp_path / "city.json").write_text(text, encoding="utf-8")
    (tmp_path / "ldpsql.toml").write_text('[mechanisms]\ncity = {document = "city.json"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert Registry.load().mechanism("city") == mechanism
    assert ldpsql.perturb(["Lima"], text).to_pylist()[0] in ("Lima", "Oslo")
    with ldpsql.connect() as con:
        ((written,),) = con.execute("SELECT ldp.document(ldp.krr(1, ['Lima', 'Oslo']))").fetchall()
        assert written == text
        drawn = con.sql(f"SELECT ldp.perturb('Lima', {text_literal(text)}) AS report")
        assert drawn.types == ["VARCHAR"]
        assert drawn.fetchall()[0] in (("Lima",), ("Oslo",))
        con.execute("CREATE TABLE people AS SELECT 'Lima' AS city")
        ldpsql.perturb_table(con, "people", "reports", {"city": "city.json"})
        assert ldpsql.estimate(con.table("reports"), mechanism, column="city").diagnosis.record == "recorded"
        with pytest.raises(SourceRefused):
            ldpsql.perturb_table(con, "people", "others", {"city": "other.json"})


def test_a_policy_of_a_table_takes_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "city.json").write_text(document_text(registry().mechanism(KRR)), encoding="utf-8")
    policy = '[tables.people]\nepsilon = 3\ncolumns = {city = {document = "city.json"}, age = "krr(domain=[1, 2])"}'
    (tmp_path / "ldpsql.toml").write_text(policy, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    loaded = Registry.load()
    assert loaded.mechanism("people_city") == registry().mechanism(KRR)
    assert loaded.mechanism("people_age") == registry().mechanism("krr(2, [1, 2])")


@pytest.mark.parametrize("content", ["", "[]", "{}", '"krr"'])
def test_settings_refuse_a_file_that_holds_no_document(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "city.json").write_text(content, encoding="utf-8")
    (tmp_path / "ldpsql.toml").write_text('[mechanisms]\ncity = {document = "city.json"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match="is not a document"):
        Registry.load()


def test_text_opens_no_file_without_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "city.json").write_text(document_text(registry().mechanism(KRR)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LdpError):
        registry().mechanism("city.json")


def test_names_of_the_settings_and_texts_are_documented_and_certified(tmp_path: Path) -> None:
    (tmp_path / "ldpsql.toml").write_text(f'[mechanisms]\npeople_city = "{KRR}"\n')
    code = "import ldpsql; print(ldpsql.document('people_city')['fingerprint'], ldpsql.certify('people_city').epsilon)"
    asked = run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    own = ldpsql.document(KRR)
    assert own == ldpsql.document(registry().mechanism(KRR))
    assert asked.stdout.split() == [own["fingerprint"], str(certify(KRR).epsilon)]
    assert ldpsql.shuffled(KRR, reports=100, delta=1e-6).mechanism == "krr"
