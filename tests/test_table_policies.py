"""The policy of a table: its mechanisms, what a row may spend in all, what is kept, and who a person is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import ldpsql
from ldpsql import Key, certify
from ldpsql.errors import BadSettings, InvalidParameter, LdpError, NotReleased, OutsidePolicy, RowBudgetExceeded, UnknownName
from ldpsql.functions import Registry, registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import MetricLdp
from ldpsql.registry.tables import table_policy
from ldpsql.testing import examples
from tests.commands import app, printed

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
            lambda: printed("export-client", "-m", "people_city", "-o", f"{folder}/city.mjs"),
            lambda: printed("export-client", "-m", "one_of(city := people_city, other := krr(1, [1, 2]))"),
        ):
            with pytest.raises(OutsidePolicy, match=r"\[tables.people\] declares permanent reports, .* would draw new ones"):
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
            "FROM ldp.perturb_rows(people, {city: ldp.m.people_city()})",
            "SELECT ldp.perturb(city, {a: ldp.m.people_city()}, 'a') FROM people",
            "SELECT ldp.perturb(city, MAP {'a': ldp.m.people_city()}, 'a') FROM people",
        ):
            with pytest.raises(duckdb.Error, match=r"LDP307.*declares permanent reports, .* in SQL ldp.perturb_once"):
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
                pytest.raises(OutsidePolicy, match="declares permanent reports"),
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
    assert ldpsql.estimate(tmp_path / "out.parquet", column="age").values.texts
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
    (place,) = json.loads(printed("lint", str(queries), "--format", "json"))
    assert place["remedy"] == "ldp.mean(age, ldp.m.people_age()); a sum is that times count(age)"


# --- a policy binds whoever reads its table, however the table and the mechanism are written ---

BINDING = """
[mechanisms]
city = "krr(1, ['Lima', 'Oslo'])"
[tables.people]
epsilon = 1
columns = {{ city = "city" }}
keep = ["id"]
permanent = {permanent}
"""
MORE = "krr(8, ['Lima', 'Oslo'])"


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a database with the table of a policy, a copy of it under another name, a view and a file."""
    with ldpsql.connect(str(tmp_path / "wh.duckdb"), key=Key.create(tmp_path / "key")) as con:
        con.execute("""
            CREATE TABLE people AS
                SELECT i AS id, ['Lima', 'Oslo'][1 + i % 2] AS city, i AS ssn, city AS home FROM range(100) t(i);
            CREATE TABLE others AS FROM people; CREATE VIEW seen AS FROM people; CREATE TEMP VIEW fleeting AS FROM people;
            CREATE MACRO of_people() AS TABLE FROM people; COPY people TO 'people.parquet'""")
        yield con


READ = ["people", "main.people", "seen", "of_people()", "'people.parquet'", "read_parquet('peo' || 'ple.parquet')", "fleeting"]


@pytest.mark.parametrize("permanent", ["true", "false"])
def test_sql_draws_from_the_table_of_a_policy_only_with_its_mechanisms(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, permanent: str
) -> None:
    settled(tmp_path, monkeypatch, BINDING.format(permanent=permanent))
    ldpsql.attach(bound)
    for source in READ:
        with pytest.raises(duckdb.Error, match="LDP307"):
            bound.execute(f"SELECT ldp.perturb(city, ldp.{MORE}) FROM {source}").fetchall()
    for sql in (
        f"FROM ldp.perturb_rows(people, {{city: ldp.{MORE}}})",
        "FROM ldp.perturb_rows(people, {city: ldp.m.people_city()}, keep := ['ssn', 'id'])",
        "FROM ldp.perturb_rows(seen, {city: ldp.m.people_city()}, keep := 'ssn')",
        "FROM ldp.perturb_rows(people, {home: ldp.m.people_city()})",
        f"SELECT ldp.perturb(city, {{a: ldp.{MORE}}}, 'a') FROM people",
        f"SELECT ldp.perturb_once(city, ldp.{MORE}, id) FROM people",
        f"CREATE TABLE stored AS SELECT (SELECT ldp.perturb(p.city, ldp.{MORE})) FROM people AS p",
        f"UPDATE people SET city = ldp.perturb(city, ldp.{MORE})",
        f"PREPARE later AS SELECT ldp.perturb(city, ldp.{MORE}) FROM people; EXECUTE later",
    ):
        with pytest.raises(duckdb.Error, match="LDP307"):
            bound.execute(sql).fetchall()
    with pytest.raises(duckdb.Error, match="LDP307"):
        bound.execute(f"SELECT ldp.perturb(city, ldp.{MORE}) FROM people WHERE id = $1", [3]).fetchall()
    bound.execute(f"SELECT ldp.perturb(city, ldp.{MORE}) FROM others").fetchall()
    bound.execute("SELECT ldp.perturb_once(city, ldp.m.people_city(), id) FROM fleeting").fetchall()
    document = bound.execute("SELECT ldp.document(ldp.m.city())").fetchall()[0][0].replace("'", "''")
    for call in (
        "struct_update(ldp.m.people_city(), permanent_table := NULL)",
        *("ldp.m.city()", "ldp.krr(1.0, ['Oslo', 'Lima'])", f"'{document}'", "ldp.declared('mine')"),
    ):
        bound.execute("SELECT ldp.declare('mine', ldp.m.people_city())").fetchall()
        query = f"SELECT ldp.perturb(city, {call}) FROM seen"
        if permanent == "false":
            bound.execute(query).fetchall()
            bound.execute(f"FROM ldp.perturb_rows(seen, {{City: {call}}}, keep := 'ID')").fetchall()
            continue
        with pytest.raises(duckdb.Error, match=r"LDP307.*declares permanent reports"):
            bound.execute(query).fetchall()


def test_runs_on_the_table_of_a_policy_do_what_it_says_in_every_way_to_perturb(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, BINDING.format(permanent="false"))
    for source in ("people", "seen", "people.parquet", tmp_path / "people.parquet", bound.sql("FROM people")):
        for columns, keep in (({"city": MORE}, []), ({"city": "city"}, ["ssn"]), ({"ssn": "krr(1, [1, 2])"}, [])):
            with pytest.raises(OutsidePolicy, match=r"\[tables.people\] does not allow"):
                ldpsql.perturb_table(bound, source, "out", columns, keep=keep)
            with pytest.raises(OutsidePolicy):
                ldpsql.perturb_copy(bound, source, tmp_path / "out.parquet", columns, keep=keep)
    assert ldpsql.perturb_table(bound, "seen", "kept", {"city": registry().mechanism("city")}, keep=["id"]).rows == 100
    assert ldpsql.perturb_table(bound, "others", "free", {"city": MORE}, keep=["ssn"]).rows == 100
    ledger = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=20))
    with pytest.raises(OutsidePolicy):  # a frame goes by the name of its charge
        ldpsql.perturb_batches(FRAME, {"city": MORE}, charge=ldpsql.Charge(ledger, "people"))
    assert len(ldpsql.perturb_batches(FRAME, {"city": MORE}).read_all()) == len(FRAME)  # and without one by nothing
    bound.close()
    command = ["perturb", "people", "out.parquet", "--database", "wh.duckdb", "-c", "city", "-m", MORE, "--keep", "ssn"]
    ran = CliRunner().invoke(app, command)
    assert isinstance(ran.exception, OutsidePolicy)
    assert not (tmp_path / "out.parquet").exists()
    assert ledger.history() == []


HIDDEN = [  # how a statement can name people.parquet, or people_file
    "read_parquet('peo' || 'ple.parquet')",
    "read_parquet('peo'\n'ple.parquet')",
    "read_parquet(E'peo\\x70le.parquet')",
    "read_parquet($$people.parquet$$)",
    "read_parquet(people.parquet)",
    "people.parquet",
    "query('FROM ' || 'people.parquet')",
    "-- it's\n 'people.parquet'",
    "read_parquet(/* ' */ 'people.parquet' /* ' */)",
    "read_parquet(people_file)",
    "file_of('people' || '_file')",
    "file_of(x := concat('people', '_file'))",
    "passed(1, 'people' || '_file')",
    "passed(1)",
]
OTHERS = """
    COPY others TO 'others.parquet'; COPY people TO 'people_file' (FORMAT parquet);
    CREATE MACRO file_of(x) AS TABLE FROM read_parquet(x);
    CREATE MACRO passed(y, x := 'people' || '_file') AS TABLE FROM file_of(x)"""


def test_a_file_is_seen_however_a_statement_names_it(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, BINDING.format(permanent="false"))
    bound.execute(OTHERS)
    ldpsql.attach(bound)
    for source in HIDDEN:
        draws = f"SELECT ldp.perturb(city, ldp.{MORE}) FROM {source}"
        for statement in (draws, f"{draws} WHERE 'others.parquet' <> ''"):
            with pytest.raises(duckdb.Error, match="LDP307"):
                bound.execute(statement).fetchall()


def test_a_policy_is_looked_up_once_for_a_statement_however_many_rows_it_reads(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, BINDING.format(permanent="false"))
    ldpsql.attach(bound)
    looked_up = []
    monkeypatch.setattr("ldpsql.ledger.guard.identity_of_statement", lambda cursor, sql, **_: looked_up.append(sql))
    bound.execute("INSERT INTO people SELECT i, 'Lima', i, 'Oslo' FROM range(20000) t(i)")
    for rows in (0, 20_100, 20_100):
        query = f"SELECT ldp.perturb(city, ldp.m.city()) FROM people LIMIT {rows}"
        assert len(bound.execute(query).fetchall()) == rows
    assert len(looked_up) == 2


def test_a_policy_of_a_view_takes_the_place_of_those_of_its_tables(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = f'[tables.seen]\nepsilon = 8\ncolumns = {{ city = "{MORE}" }}\n'
    settled(tmp_path, monkeypatch, BINDING.format(permanent="true") + view)
    assert ldpsql.perturb_table(bound, "seen", "out", policy="seen").rows == 100
    with pytest.raises(OutsidePolicy, match="another policy"):
        ldpsql.perturb_table(bound, "people", "more", policy="seen")


def test_a_release_draws_from_no_other_table_than_its_dataset(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, "")
    ldpsql.attach(bound, ledger=Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=1)))
    call = "ldp.krr(1, ['Lima', 'Oslo'])"
    with ldpsql.release(bound, "others", {"city": call}, "reports"):
        for other in ("people", "seen", "people.parquet", "others JOIN people USING (id, city, ssn)"):
            source = f"'{other}'" if "." in other else other
            with pytest.raises(duckdb.Error, match=r"LDP320.*another table or file"):
                bound.execute(f"SELECT ldp.perturb(city, {call}) FROM {source}").fetchall()
        bound.execute(f"CREATE TABLE reports AS SELECT ldp.perturb(city, {call}) AS city FROM others")


def test_a_release_draws_from_no_other_file_than_its_dataset(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, "")
    bound.execute(OTHERS)
    ldpsql.attach(bound, ledger=Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=1)))
    call = "ldp.krr(1, ['Lima', 'Oslo'])"
    with ldpsql.release(bound, "others.parquet", {"city": call}, "reports"):
        for source in HIDDEN:
            draws = f"SELECT ldp.perturb(city, {call}) FROM {source}"
            for statement in (draws, f"{draws} WHERE 'others.parquet' <> ''"):
                with pytest.raises(duckdb.Error, match=r"LDP320.*another table or file"):
                    bound.execute(statement).fetchall()
        bound.execute(f"CREATE TABLE reports AS SELECT ldp.perturb(city, {call}) AS city FROM 'others.parquet'")


def test_a_table_of_no_release_is_not_read_because_reports_are_to_go_there(
    bound: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path, monkeypatch, "")
    ldpsql.attach(bound, ledger=Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=3)))
    call = "ldp.krr(1, ['Lima', 'Oslo'])"
    more = f"INSERT INTO reports SELECT ldp.perturb(city, {call}) FROM others WHERE (SELECT count(*) FROM reports) < 999"
    with (
        pytest.raises(duckdb.Error, match=r"LDP320.*another table or file"),
        ldpsql.release(bound, "others", {"city": call}, "people"),
    ):
        bound.execute(f"SELECT ldp.perturb(city, {call}) FROM people")
    bound.execute("CREATE SCHEMA raw")
    for name in ("reports", '"of/people"'):
        bound.execute(f"CREATE TABLE raw.{name} AS FROM people")
        with (
            pytest.raises(duckdb.Error, match=r"LDP320.*another table or file"),
            ldpsql.release(bound, "others", {"city": call}, name),
        ):
            bound.execute(f"SELECT ldp.perturb(city, {call}) FROM raw.{name}")
    bound.execute("CREATE TABLE reports(city VARCHAR)")
    for again in (False, True):
        with ldpsql.release(bound, "others", {"city": call}, "reports", again=again):
            bound.execute(more)
    assert bound.execute("SELECT count(*) FROM reports").fetchall() == [(200,)]
