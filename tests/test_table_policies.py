"""The policy of a table: its mechanisms, what a row may spend in all, what is kept, and who a person is."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import ldpsql
import ldpsql.polars
from ldpsql import Key, certify
from ldpsql.cli.export_client import export_client
from ldpsql.errors import BadSettings, InvalidParameter, LdpError, NotReleased, RowBudgetExceeded, UnknownName
from ldpsql.functions import Registry, registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import MetricLdp
from ldpsql.registry.tables import table_policy
from ldpsql.sql.scripts import lint_files
from ldpsql.testing import examples
from tests.commands import app

SETTINGS = """
[mechanisms]
city = "krr(epsilon=1, domain=['Lima', 'Oslo'])"
[tables.people]
epsilon = 2
columns = { city = "city", age = "square_wave(low=0, high=100)", sex = {mechanism = "krr", share = 0.25, domain = ["f", "m"]} }
keep = ["region"]
reports = "stored"
[tables.users]
epsilon = "0.3"
columns = { a = "krr(0.1, ['x', 'y'])", b = "krr(0.2, ['x', 'y'])" }
unit = "person"
[tables.thirds]
epsilon = 1
columns = { a = "krr(domain=['x', 'y'])", b = "oue(domain=['x', 'y'])", c = "krr(domain=['x', 'y'])" }
"""
PEOPLE: dict[str, list[Any]] = {
    "city": ["Lima", "Oslo"],
    "age": [1.0, 99.0],
    "sex": ["f", "m"],
    "region": ["n", "s"],
    "secret": [7, 8],
}
FRAME = pl.DataFrame({name: values * 50 for name, values in PEOPLE.items()})
SHARE = "epsilon = 1\ncolumns = {a = {mechanism = 'krr', share = 1, domain = [1, 2]}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return settled(tmp_path, monkeypatch, SETTINGS)


def settled(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    (folder / "ldpsql.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    loaded = Registry.load()
    monkeypatch.setattr(registry(), "named", loaded.named)
    monkeypatch.setattr(registry(), "policies", loaded.policies)
    monkeypatch.setattr(registry(), "_settled", {})
    return folder


def epsilons(name: str) -> dict[str, Fraction]:
    claims = {column: certify(m).certificate.claim for column, m in table_policy(name).mechanisms.items()}
    return {column: claim.epsilon.value for column, claim in claims.items()}


def test_a_policy_of_permanent_reports_refuses_to_draw_new_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = """[tables.people]
epsilon = 1
columns = { city = "krr(1, ['Lima', 'Oslo'])" }
permanent = true
[mechanisms]
both = "row(city := people_city, other := krr(1, [1, 2]))"
"""
    row = {"mechanism": "row", "columns": {"city": "people_city", "other": "krr(1, [1, 2])"}}
    pairs = pa.array([{"city": "Lima", "other": 1}])
    settled(folder, monkeypatch, policy)
    key, frame = Key.create(folder / "key"), FRAME.with_row_index("id")
    with duckdb.connect() as con:
        for run in (
            lambda: ldpsql.perturb_batches(frame, policy="people"),
            lambda: ldpsql.perturb_table(con, frame, "reports", policy="people"),
            lambda: ldpsql.perturb_copy(con, frame, "reports.parquet", policy="people"),
            lambda: ldpsql.perturb_table(con, frame, "reports", {"city": "people_city"}),
            lambda: ldpsql.perturb_batches(frame, {"city": " people_city "}),
            lambda: ldpsql.perturb(frame["city"], "people_city"),
            lambda: frame.select(pl.col("city").ldp.perturb("people_city")),  # type: ignore[attr-defined]
            lambda: ldpsql.perturb(pairs, row),  # type: ignore[call-overload]
            lambda: ldpsql.perturb(pairs, "both"),
            lambda: export_client("people_city", folder / "city.mjs"),
            lambda: export_client("one_of(city := people_city, other := krr(1, [1, 2]))", folder / "city.mjs"),
        ):
            with pytest.raises(InvalidParameter, match=r"\[tables.people\] declares permanent reports, .* would draw new ones"):
                run()
        con.register("people", frame.to_arrow())
        ldpsql.attach(con, key=key)
        for query in (
            "SELECT ldp.perturb(city, ldp.m.people_city()) FROM people",
            "SELECT ldp.perturb(city, 'people_city') FROM people",
            "SELECT ldp.perturb({a: city, b: 1}, ldp.row({a: ldp.m.people_city(), b: ldp.krr(1, [1, 2])})) FROM people",
            "SELECT ldp.perturb({city: city, other: 1}, 'row(city := people_city, other := krr(1, [1, 2]))') FROM people",
            "SELECT ldp.perturb({city: city, other: 1}, 'row({city: people_city, other: krr(1, [1, 2])})') FROM people",
            "SELECT ldp.perturb({city: city, other: 1}, ldp.m.both()) FROM people",
            "SELECT ldp.declare('lasting', ldp.m.people_city())",
            "FROM ldp.perturb_rows(people, {city: ldp.m.people_city()})",
            "SELECT ldp.perturb_mixed(city, 'a', {a: ldp.m.people_city()}) FROM people",
            "SELECT ldp.perturb_mixed(city, 'a', MAP {'a': ldp.m.people_city()}) FROM people",
        ):
            with pytest.raises(duckdb.Error, match=r"LDP103.*declares permanent reports, .* in SQL ldp.perturb_once"):
                con.sql(query).fetchall()
        once = con.sql("SELECT ldp.perturb_once(city, ldp.m.people_city(), id, column_name := 'city') AS city FROM people")
        counted = con.sql("SELECT ldp.ibu(city, ldp.m.people_city()) FROM once").fetchall()
        runs = [
            ldpsql.perturb_table(con, frame, into, policy="people", permanent=True, key=key, user="id", order="keep")
            for into in ("first", "second")
        ]
        assert [run.rows for run in runs] == [len(frame)] * 2
        assert con.sql("FROM first").fetchall() == con.sql("FROM second").fetchall()
        assert con.sql("SELECT city FROM first").fetchall() == once.fetchall()
        assert con.sql("SELECT ldp.ibu(city, ldp.m.people_city()) FROM first").fetchall() == counted
    with ldpsql.connect(ledger=Ledger.open(folder / "ledger", Policy(epsilon_budget=1)).path) as con:
        con.register("people", frame.to_arrow())
        for call in ("ldp.m.people_city()", "'people_city'", "ldp.m.both()"):
            with (
                pytest.raises(duckdb.Error, match=r"LDP103.*declares permanent reports"),
                ldpsql.release(con, "people", {"city": call}, "reports"),
            ):
                pytest.fail("charged")
        assert Ledger.open(folder / "ledger").history() == []
    with pytest.raises(BadSettings, match=r"permanent in the section \[tables.people\] of .* must be true or false"):
        settled(folder, monkeypatch, policy.replace("true", "'perhaps'"))


def test_columns_without_an_epsilon_divide_what_the_others_leave() -> None:
    assert epsilons("people") == {"city": 1, "age": Fraction(1, 2), "sex": Fraction(1, 2)}
    assert epsilons("users") == {"a": Fraction(1, 10), "b": Fraction(2, 10)}  # 0.1 + 0.2 is 0.3, exactly
    assert epsilons("thirds") == dict.fromkeys("abc", Fraction(333_333, 10**6))  # rounded down


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        ("epsilon = 1.9\ncolumns = {a = 'krr(1, [1, 2])', b = 'krr(0.900001, [1, 2])'}", RowBudgetExceeded, "epsilon 1.900001"),
        (SHARE + ", b = \"krr('0.000001', [1, 2])\"}", RowBudgetExceeded, "1.000001"),
        ("epsilon = 9\ncolumns = {a = 'planar_geometric(1, 5, 5, 1)'}", RowBudgetExceeded, "epsilon_per_distance 1 "),
        ("epsilon = 9\ncolumns = {a = 'gaussian(1, 0, 100, 0.001)'}", RowBudgetExceeded, "delta"),
        ("epsilon = 1\ncolumns = {a = 'krr(1, [1, 2])', b = 'krr(domain=[1, 2])'}", BadSettings, "nothing of the total"),
        ("epsilon = 1\ncolumns = {a = {mechanism = 'krr', share = 1.5, domain = [1, 2]}}", BadSettings, "a share"),
        ("epsilon = 1\ncolumns = {a = {mechanism = 'krr', share = 0.5, epsilon = 1, domain = [1, 2]}}", BadSettings, "a share"),
        ("epsilon = 'much'\ncolumns = {a = 'krr(1, [1, 2])'}", BadSettings, "must be a positive number"),
        ("epsilon = 0\ncolumns = {a = 'krr(1, [1, 2])'}", BadSettings, "must be a positive number"),
        ("epsilon = 1\ncolumns = {}", BadSettings, "no columns"),
        ("epsilon = 1\ncolumns = {a = 'krr(1, [1, 2])'}\nkeep = ['a']", BadSettings, "both perturbs and keeps"),
        ("epsilon = 1\ncolumns = {a = 'nothing(1)'}", BadSettings, "no mechanism named 'nothing'"),
    ],
)  # fmt: skip
def test_a_row_that_would_spend_more_and_a_policy_that_cannot_be_read_are_refused(
    table: str, error: type[LdpError], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, f"[tables.t]\n{table}")
    with pytest.raises(error, match=words), ldpsql.connect() as con:
        ldpsql.perturb_table(con, FRAME, "out", policy="t")


OVERSPENT = "[tables.t]\nepsilon = 1\ncolumns = {a = 'krr(1, [1, 2])', b = \"krr('0.000001', [1, 2])\"}"


def test_no_column_of_a_policy_that_spends_too_much_can_be_drawn_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, OVERSPENT + "\n[tables.u]\nepsilon = 1\ncolumns = {a = 'krr(1, [1, 2])'}")
    with ldpsql.connect() as con:
        for draw in ("ldp.perturb(1, ldp.m.t_a())", "ldp.perturb(1, 't_a')"):
            with pytest.raises(duckdb.Error, match="LDP308"):
                con.execute(f"SELECT {draw}")
        with pytest.raises(RowBudgetExceeded):
            ldpsql.perturb_table(con, pl.DataFrame({"a": [1, 2]}), "out", {"a": "t_a"})
        assert con.execute("SELECT count(ldp.perturb(1, ldp.m.u_a())) FROM range(3)").fetchall() == [(3,)]
    with pytest.raises(RowBudgetExceeded):
        ldpsql.perturb(pl.Series("a", [1, 2]), "t_a")


@pytest.mark.parametrize(
    "text",
    [
        "[mechanisms]\np_city = 'krr(5, [1, 2])'\n[tables.p]\nepsilon = 1\ncolumns = {city = 'krr(1, [1, 2])'}",
        "[mechanisms]\nP_City = 'krr(5, [1, 2])'\n[tables.p]\nepsilon = 1\ncolumns = {city = 'krr(1, [1, 2])'}",
        "[tables.a]\nepsilon = 1\ncolumns = {b_c = 'krr(1, [1, 2])'}\n"
        "[tables.a_b]\nepsilon = 5\ncolumns = {c = 'krr(5, [1, 2])'}",
        "[tables.joint]\nepsilon = 1\ncolumns = {krr = 'krr(1, [1, 2])'}",
    ],
)
def test_the_name_of_a_column_never_stands_for_another_mechanism(text: str, tmp_path: Path) -> None:
    (tmp_path / "ldpsql.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BadSettings, match="and another mechanism"):
        Registry.load()


def test_totals_of_metric_claims_and_of_delta_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "{a = 'planar_geometric(2, 5, 5, 1)', b = 'krr(1, [1, 2])'}"
    text = f"[tables.t]\nepsilon = 1\nepsilon_per_distance = 2\ndelta = '0.001'\ncolumns = {columns}"
    settled(tmp_path, monkeypatch, text)
    assert set(table_policy("t").mechanisms) == {"a", "b"}


@pytest.mark.parametrize(
    "place", ["'planar_geometric(2, 5, 5, 1)'", "{mechanism = 'planar_geometric', columns = 5, rows = 5, side = 1}", "'far'"]
)
def test_a_column_with_an_epsilon_per_distance_takes_nothing_from_the_ordinary_total(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = f"{{a = {place}, b = 'krr(domain=[1, 2])', c = 'truncated_geometric(low=0, high=9)'}}"
    named = "[mechanisms]\nfar = 'planar_geometric(2, 5, 5, 1)'"
    settled(tmp_path, monkeypatch, f"{named}\n[tables.t]\nepsilon = 1\nepsilon_per_distance = 4\ncolumns = {columns}")
    assert epsilons("t") == {"a": 2, "b": 1, "c": 2}


def test_a_mechanism_declares_whether_its_epsilon_is_per_distance() -> None:
    for kind in registry().mechanisms.values():
        for example in examples(kind)[:1] if "epsilon" in kind.model_fields else []:
            assert kind.per_distance == isinstance(example.claim(), MetricLdp), kind.name


def test_a_policy_stands_for_columns_and_keep_in_every_way_to_perturb(tmp_path: Path) -> None:
    columns = ["city", "age", "sex", "region"]
    with ldpsql.connect() as con:
        ldpsql.perturb_table(con, FRAME, "out", policy="people")
        assert con.table("out").columns == columns
        assert con.execute("SELECT count(*) FROM ldp.estimate(out, sex)").fetchall() == [(2,)]
        claims = con.execute(
            "SELECT ldp.describe(ldp.m.people_age()).claim, ldp.describe(ldp.m.people_city()).claim"
        ).fetchall()
        assert claims == [("0.5-LDP", "1-LDP")]
        for arguments in ({}, {"columns": {"city": "city"}, "policy": "people"}, {"policy": "people", "keep": ["secret"]}):
            with pytest.raises(InvalidParameter, match="either columns"):
                ldpsql.perturb_table(con, FRAME, "other", **arguments)
        with pytest.raises(UnknownName, match="policy of a table"):
            ldpsql.perturb_table(con, FRAME, "other", policy="peple")
        ldpsql.perturb_copy(con, FRAME, tmp_path / "a.parquet", policy="people")
    assert pl.read_parquet(tmp_path / "a.parquet").columns == columns
    assert ldpsql.perturb_batches(FRAME, policy="people").read_all().column_names == columns
    assert FRAME.ldp.perturb(policy="people").columns == columns  # type: ignore[attr-defined]


def test_the_command_line_takes_the_name_of_a_policy_after_table(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "people.parquet")
    perturb = ["perturb", "people.parquet"]
    ran = CliRunner().invoke(app, [*perturb, "out.parquet", "--table", "people"])
    assert ran.exit_code == 0, ran.output
    assert pl.read_parquet(tmp_path / "out.parquet").columns == ["city", "age", "sex", "region"]
    assert ldpsql.estimate(tmp_path / "out.parquet", "age").values.texts
    duckdb.connect("w.duckdb").close()
    assert CliRunner().invoke(app, [*perturb, "reports", "--table", "people", "--database", "w.duckdb"]).exit_code == 0
    with duckdb.connect("w.duckdb") as con:
        assert len(con.table("reports")) == 100
    for arguments in (
        ["x.parquet", "people"],
        ["x.parquet", "--table"],
        ["x.parquet", "--table", "people", "-c", "city", "-m", "city"],
    ):
        assert isinstance(CliRunner().invoke(app, [*perturb, *arguments]).exception, InvalidParameter)
    assert not (tmp_path / "x.parquet").exists()


def test_the_privacy_unit_of_a_policy_is_that_of_the_ledger(tmp_path: Path) -> None:
    ledger = ldpsql.Ledger.open(tmp_path / "ledger", ldpsql.Policy(epsilon_budget="0.3", privacy_unit="person"))
    frame = pl.DataFrame({"a": ["x", "y"], "b": ["y", "x"], "person": [1, 2]})
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE users AS FROM frame")
        with pytest.raises(NotReleased, match="privacy unit"):
            ldpsql.perturb_table(con, "users", "out", policy="users")
        with pytest.raises(NotReleased, match="privacy unit"):
            ldpsql.perturb_table(con, FRAME, "out", policy="people", charge=ldpsql.Charge(ledger, "people"))
        ldpsql.perturb_table(con, "users", "out", policy="users", charge=ldpsql.Charge(ledger, "users"))
        assert con.table("out").columns == ["a", "b"]
    assert {entry["users"] for entry in ledger.history()} == {2}
    with pytest.raises(NotReleased, match="privacy unit"):
        ldpsql.perturb_batches(frame, policy="users")


def test_the_lint_knows_the_reports_that_a_policy_names(tmp_path: Path) -> None:
    queries = tmp_path / "q.sql"
    queries.write_text("SELECT region, avg(age) FROM stored GROUP BY region", encoding="utf-8")
    (place,) = lint_files([queries])
    assert place.finding.remedy == "ldp.mean(age, ldp.m.people_age()); a sum is that times count(age)"
