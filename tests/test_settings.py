"""Settings: what is found where, what goes before what, and mechanisms that they name."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from traceback import walk_tb

import duckdb
import polars as pl
import pytest

import ldpsql
from ldpsql.errors import BadSettings, InvalidSpec, UnknownName
from ldpsql.functions import Registry, fingerprint, registry, text_literal
from ldpsql.sql.named import sql_call
from tests.commands import printed


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_the_project_goes_before_the_user_entry_by_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "home" / "ldpsql.toml"
    write(user, "[mechanisms]\na = 'krr(1, [1, 2])'\nb = 'krr(1, [3, 4])'\n[defaults]\nformat = 'csv'\nestimator = 'inv'\n")
    write(tmp_path / "project" / "ldpsql.toml", "[mechanisms]\nb = 'krr(2, [3, 4])'\n[defaults]\nformat = 'json'\n")
    (tmp_path / "project" / "deeper").mkdir()
    monkeypatch.setenv("LDPSQL_CONFIG", str(user))
    monkeypatch.chdir(tmp_path / "project" / "deeper")
    loaded = Registry.load()
    for name, text in {"a": "krr(1, [1, 2])", "b": "krr(2, [3, 4])"}.items():
        assert loaded.mechanism(name) == loaded.mechanism(text)
    pl.DataFrame({"x": [1, 1, 2]}).write_csv("reports.csv")
    rows = json.loads(printed("estimate", "reports.csv", "x", "-m", "krr(0.1, [1, 2])"))  # the format of the project
    assert max(row["estimate"] for row in rows) > 1  # by the estimator of the user


def test_a_named_mechanism_is_a_mechanism_in_python_and_a_macro_in_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "ldpsql.toml", '[mechanisms]\ncity = "krr(1, [\'Lima\', \\"it\'s\\"])"\n')
    monkeypatch.chdir(tmp_path)
    registered = Registry.load()
    assert registered.mechanism("city") == registered.mechanism("krr(1, ['Lima', \"it's\"])")
    monkeypatch.setattr("ldpsql.sql.surface.registered", lambda: registered)
    with ldpsql.connect() as con:
        assert con.execute("SELECT ldp.perturb('it''s', ldp.m.city())").fetchall()[0][0] in ("Lima", "it's")
        assert len(con.sql("FROM duckdb_databases() WHERE database_name NOT IN ('system', 'temp', 'memory')").fetchall()) == 1
    with duckdb.connect() as other:
        ldpsql.attach(other, name="private", mechanisms={"town": {"mechanism": "krr", "epsilon": 1, "domain": [1, 2]}})
        assert other.execute("SELECT private.m.town().mechanism, private.m.city().mechanism").fetchall() == [("krr", "krr")]


@pytest.mark.parametrize("catalog", ["ldp", "private"])
def test_the_names_of_a_connection_are_mechanisms_in_functions_that_take_it(tmp_path: Path, catalog: str) -> None:
    text = "krr(0.5, ['Lima', 'Oslo'])"
    with ldpsql.connect(name=catalog, mechanisms={"Borough": text}) as con:
        con.execute("CREATE TABLE people AS SELECT 'Lima' AS city FROM range(20)")
        ldpsql.perturb_copy(con, "people", tmp_path / "reports.parquet", {"city": "borough"})
        ldpsql.perturb_table(con, "people", "reports", {"city": "Borough"})
        assert con.sql("SELECT count(*) FROM reports").fetchall() == [(20,)]
        assert ldpsql.estimate(con.table("reports"), text, column="city").diagnosis.record == "recorded"
        with pytest.raises(UnknownName, match="no mechanism named 'town'"):
            ldpsql.perturb_table(con, "people", "others", {"city": "town"})
        if catalog == "ldp":
            assert ldpsql.estimate_groups(con, "reports", "shares", report="city", keys=["city"], mechanism="borough") <= 2
    with ldpsql.connect() as other, pytest.raises(UnknownName):
        ldpsql.perturb_copy(other, f"{tmp_path}/reports.parquet", tmp_path / "others.parquet", {"city": "borough"})


def test_the_settings_of_one_test_do_not_stay_for_the_next() -> None:
    assert not registry().named


def test_a_macro_that_is_not_of_ldpsql_names_no_mechanism() -> None:
    with ldpsql.connect() as con:
        con.execute("CREATE SCHEMA m; CREATE MACRO m.borough() AS ldp.krr(1, [1, 2])")
        with pytest.raises(UnknownName):
            ldpsql.perturb_table(con, "SELECT 1 AS x", "reports", {"x": "borough"})


DAYS = {"type": "date32[day]", "values": ["2026-01-01", "2026-01-02"]}


@pytest.mark.parametrize(
    "text",
    [
        "krr(epsilon='0.1', domain=['a', 'b''c'], nulls='as:a')",
        "krr(epsilon=0.3, domain=[0.1, 2.5])",
        "krr(1, [True, False])",
        f"krr(1, {DAYS})",
        "krr(1, {'type': 'decimal128(3, 1)', 'values': ['0.1', '0.2']})",
        "square_wave(1, -1.5, 2.5, bins=8, outside='clip')",
        "matrix(domain=['a', 'b'], rows=[['0.75', '0.25'], ['0.25', '0.75']])",
        "planar_geometric(0.5, 4, 3, side=2)",
    ],
)
def test_the_constructor_call_in_sql_makes_the_same_mechanism(text: str) -> None:
    mechanism = registry().mechanism(text)
    with ldpsql.connect() as con:
        call = sql_call(mechanism, con)
        row = con.execute(f"SELECT ldp.describe({call}).ratio, {call}.domain").fetchall()[0]
    assert row[0] == str(ldpsql.certify(mechanism).certificate.ratio)
    assert row[1] == mechanism.values().listed.values.to_pylist()
    assert "2026" not in text or row[1][0] == datetime.date(2026, 1, 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hierarchy(1, 0, 100, step=0.1)", "DOUBLE"),
        ("hierarchy(1, 0, 20000, step=1)", "DOUBLE"),  # too many for a list in SQL
        ("hierarchy(1, '2026-01-01', '2026-12-31')", "DATE"),
        ("hierarchy(1, '2026-01-01 00:00:00', '2026-01-02 00:00:00', step='hour')", "TIMESTAMP"),
        ("hierarchy(1, '2026-01-01 00:00:00+00', '2026-01-02 00:00:00+00', step='hour')", "TIMESTAMP WITH TIME ZONE"),
    ],
)
def test_a_median_has_the_type_of_the_values_however_its_mechanism_is_written(text: str, kind: str) -> None:
    mechanism = registry().mechanism(text)
    with ldpsql.connect(mechanisms={"named": text}) as con:
        written = re.sub(r"'(\d[^']+)'", rf"'\1'::{kind}", text).replace("step=", "step := ")
        for made in (f"ldp.{written}", text_literal(text), "ldp.m.named()"):
            (row,) = con.execute(
                f"SELECT typeof(ldp.median(NULL, {made}).estimate), ldp.describe({made}).fingerprint"
            ).fetchall()
            assert row == (kind, fingerprint(mechanism))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[mechanisms]\n'drop table' = 'krr(1, [1, 2])'", "letters, digits"),
        ("[mechanisms]\ncity = 'kr(1, [1, 2])'", "'city' in the settings: there is no mechanism named 'kr'"),
        ("[mechanisms]\ncity = 'krr(1, [1, 2])'\nCity = 'krr(2, [1, 2])'", "differ only in case"),
        ("[mechanisms]\nkrr = 'krr(1, [1, 2])'", "as a plugin does"),
    ],
)
def test_settings_that_are_wrong_are_named(text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "ldpsql.toml", text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match=complaint):
        attached(monkeypatch)


@pytest.mark.parametrize("spec", ["city(2)", {"mechanism": "city"}, {"mechanism": "city", "epsilon": 2}])
def test_a_name_in_the_settings_is_no_kind_of_mechanism(
    spec: str | dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "ldpsql.toml", "[mechanisms]\ncity = 'krr(1, [1, 2])'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSpec, match="use city itself"):
        Registry.load().mechanism(spec)


def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = Registry.load()
    monkeypatch.setattr("ldpsql.sql.surface.registered", lambda: registered)
    ldpsql.connect()


CANARY = "canary7f3a"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"[mechanisms]\ncity = ['{CANARY}']", r"city in the section \[mechanisms\] of .*own\.toml must be a string"),
        (f"mechanisms = '{CANARY}'", r"\[mechanisms\] of .*own\.toml must be a section"),
        (f"[defaults]\nformat = ['{CANARY}']", r"format in the section \[defaults\] of .*own\.toml must be a string"),
        (f"defaults = ['{CANARY}']", r"\[defaults\] of .*own\.toml must be a section"),
        (
            f"[defaults]\ncolour = '{CANARY}'",
            r"own\.toml contains the unknown key 'colour' .* Hint: known: format, estimator\.",
        ),
        (
            f"[defaults]\nformats = '{CANARY}'",
            r"unknown key 'formats' in the section \[defaults\]\. Hint: did you mean 'format'\?",
        ),
        (
            f"[plugin]\nallow = ['{CANARY}']",
            r"own\.toml contains the unknown section \[plugin\]\. Hint: did you mean 'plugins'\?",
        ),
        (
            f"[tables.people]\nepsilno = '{CANARY}'\ncolumns = {{}}",
            r"unknown key 'epsilno' in the section \[tables\.people\]\. Hint: did you mean 'epsilon'\?",
        ),
        (
            f"[tables.people]\nepsilon = 1\ncolumns = {{}}\nkep = '{CANARY}'",
            r"unknown key 'kep' in the section \[tables\.people\]\. Hint: did you mean 'keep'\?",
        ),
        (
            f"[tables.people]\nepsilon = ['{CANARY}']\ncolumns = {{}}",
            r"epsilon in the section \[tables\.people\] .* must be a number",
        ),
        (f"[tables.people]\ncolumns = {{city = '{CANARY}'}}", r"epsilon in the section \[tables\.people\] of .* is missing"),
        (f"[tables.people]\nepsilon = 1\ncolumns = '{CANARY}'", r"columns in the section \[tables\.people\] .* a section"),
        (f"[tables.a]\nepsilon = 1\ncolumns = {{b = ['{CANARY}']}}", r"columns\.b in the section \[tables\.a\] .* a string"),
        (
            f"[tables.people]\nepsilon = 1\ncolumns = {{}}\npermanent = '{CANARY}'",
            r"permanent in the section \[tables\.people\] of .*own\.toml must be true or false",
        ),
        (
            f"[tables.people]\nepsilon = 1\ncolumns = {{}}\nkeep = ['a', ['{CANARY}']]",
            r"keep in the section \[tables\.people\] of .*own\.toml must be a list of names",
        ),
        (f"[tables]\npeople = '{CANARY}'", r"people in the section \[tables\] of .* must be a section"),
        (f"[plugins]\nallow = '{CANARY}'", r"allow in the section \[plugins\] of .*own\.toml must be a list of names"),
        (f"[plugins]\nallow = [['{CANARY}']]", r"allow in the section \[plugins\] of .*own\.toml must be a list of names"),
        (f"[ledger]\npath = ['{CANARY}']", r"path in the section \[ledger\] of .*own\.toml must be a string"),
        (f"[ledger]\nkey = {{a = '{CANARY}'}}", r"key in the section \[ledger\] of .*own\.toml must be a string"),
        (f"[ledger]\nkey = '{CANARY}", r"own\.toml cannot be read: .*at end of document"),
        (f"a = '{CANARY}\x00'", r"own\.toml cannot be read: Found invalid character"),
        (f"a = {'[' * 100_000}'{CANARY}'", r"own\.toml cannot be read: it is not TOML"),
        (f"a = {'9' * 5000}", r"own\.toml cannot be read: it is not TOML"),
    ],
)
def test_a_wrong_entry_is_named_with_its_file_and_no_value_goes_along(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "own.toml", text)
    monkeypatch.setenv("LDPSQL_CONFIG", str(tmp_path / "own.toml"))
    with pytest.raises(BadSettings, match=complaint) as caught:
        Registry.load()
    assert "\n" not in caught.value.message
    assert CANARY not in str(caught.value)
    assert not [name for name, variable in variables_within(caught.value) if CANARY in repr(variable)]
    assert caught.value.__cause__ is caught.value.__context__ is None  # the errors of pydantic and tomllib hold the content


def variables_within(error: BaseException) -> list[tuple[str, object]]:
    """Return the local variables of the frames of a traceback, except that of the test."""
    return [item for frame, _ in list(walk_tb(error.__traceback__))[1:] for item in frame.f_locals.items()]


def test_bytes_that_are_not_text_are_refused_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ldpsql.toml").write_bytes(b"a = '\xff\xfe'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match=r"ldpsql\.toml cannot be read: it is not TOML in UTF-8"):
        Registry.load()


def test_paths_of_the_ledger_are_relative_to_the_file_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "ldpsql.toml", "[ledger]\npath = 'budget.ledger'\nepsilon_budget = '2.5'\n")
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    ldpsql.perturb([1], "krr(1, [1, 2])", charge="people")
    assert (tmp_path / "budget.ledger").is_file()


def test_help_imports_neither_pydantic_nor_tomllib(tmp_path: Path) -> None:
    loaded = "{'pydantic', 'tomllib'} & {*sys.modules}"
    code = f"import sys, ldpsql.cli.app; from ldpsql import settings; settings.load(); sys.exit(bool({loaded}))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
