"""``ldpsql ask`` answers as an estimate in Python does, from files, with the mechanism that the reports record."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ldpsql
from ldpsql import Estimate
from ldpsql.cli.queries import Arguments
from ldpsql.errors import InvalidParameter, LdpError
from ldpsql.functions import registry
from tests.commands import app

KRR = {"mechanism": "krr", "epsilon": 1}
PERSON = {"plan": "krr(3, ['free', 'paid'])", "age": "krr(3, [20, 30, 40])", "member": "krr(3, [false, true])"}
ROWS = [{"plan": ["free", "paid"][i % 2], "age": [20, 30, 40][i % 3 if i % 2 else 0], "member": i % 5 == 0} for i in range(900)]
COLUMNS = ["-c", "plan", "-c", "age", "-c", "member"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files of reports that record their mechanisms."""
    place = tmp_path_factory.mktemp("ask")
    people = pa.Table.from_pylist([row | {"half": number % 2} for number, row in enumerate(ROWS)])
    for name in ("one.parquet", "two.parquet"):
        pq.write_table(ldpsql.perturb_batches(people, PERSON, keep=["half"]).read_all(), place / name)
    return place


@pytest.fixture(scope="module")
def table(folder: Path) -> Estimate:
    """The estimate that the command answers from."""
    return ldpsql.estimate(folder / "one.parquet", column=list(PERSON))


def asked(folder: Path, question: str, *arguments: str, columns: list[str] = COLUMNS) -> list[dict[str, Any]]:
    """Run the command and return its rows."""
    source = str(folder / "one.parquet")
    ran = CliRunner().invoke(app, ["ask", question, source, *columns, *arguments, "--format", "json"])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code == 0, ran.output
    return list(json.loads(ran.stdout))


def numbers(row: dict[str, Any]) -> list[float]:
    return [row[name] for name in ("estimate", "std_error", "low", "high")]


def test_shares_means_and_variances_are_those_of_the_estimate(folder: Path, table: Estimate) -> None:
    [share] = asked(folder, "share", "--of", "plan=paid", "--of", "age=30,40", "--given", "member=false")
    assert numbers(share) == pytest.approx(list(table.share({"plan": "paid", "age": [30, 40]}, {"member": False})))
    [mean] = asked(folder, "mean", "--of", "age", "--given", "plan=paid")
    assert numbers(mean) == pytest.approx(list(table.mean("age", {"plan": "paid"})))
    [variance] = asked(folder, "variance", "--of", "AGE")
    assert numbers(variance) == pytest.approx(list(table.variance("age")))
    [median] = asked(folder, "median", "--of", "age", "--given", "age=25..")
    assert median["estimate"] == table.quantile(0.5, "age", {"age": {"low": 25}}).estimate


def test_tables_may_be_given_columns(folder: Path, table: Estimate) -> None:
    rows = asked(folder, "margin", "--columns", "plan, age", "--given", "plan")
    assert [row.pop("n") for row in rows] == [900] * 6
    assert rows == [pytest.approx(row) for row in table.margin(["plan", "age"], "plan").to_pylist()]


def test_differences_are_those_of_conditions_or_of_people(folder: Path, table: Estimate) -> None:
    [row] = asked(folder, "difference", "--of", "age", "--given", "plan=paid", "--versus", "plan=free")
    assert list(row.values())[:-1] == pytest.approx(list(table.difference("age", {"plan": "paid"}, {"plan": "free"})))
    [row] = asked(folder, "compare", "--of", "plan=paid", "--against", str(folder / "two.parquet"))
    other = ldpsql.estimate(folder / "two.parquet", column=list(PERSON))
    assert list(row.values()) == pytest.approx(list(table.compare(other, {"plan": "paid"})))


def test_independence_is_tested(folder: Path, table: Estimate) -> None:
    [row] = asked(folder, "independence", "--columns", "plan,age")
    assert row["p_value"] == pytest.approx(table.independence(["plan", "age"]).p_value)


def test_each_group_is_asked(folder: Path) -> None:
    rows = asked(folder, "mean", "--of", "age", "--by", "half")
    assert [row["half"] for row in rows] == [0, 1]
    assert all(row["low"] < row["high"] for row in rows)


def test_a_column_by_itself_is_asked_by_its_name(folder: Path) -> None:
    alone = ldpsql.estimate(folder / "one.parquet", column="age")
    [share] = asked(folder, "share", "--of", "age=..35", columns=["age"])
    assert numbers(share) == pytest.approx(list(alone.share({"high": 35})))
    assert len(asked(folder, "mean", "--of", "age", columns=["age"])) == 1


def test_values_and_ranges_are_written_in_the_type_of_the_column() -> None:
    days = Arguments(registry().mechanism(KRR | {"domain": [date(2013, 1, 1), date(2013, 1, 2)]}), "day")
    assert days.sql(["day=2013-01-01"]) == "[TRY_CAST('2013-01-01' AS DATE)]"
    assert days.sql(["day=..2013-01-02"]) == "{'high': TRY_CAST('2013-01-02' AS DATE)}"
    assert Arguments(registry().mechanism(KRR | {"domain": ["a..b", "it's"]}), "x").sql(["x=a..b,it's"]) == (
        "[TRY_CAST('a..b' AS VARCHAR), TRY_CAST('it''s' AS VARCHAR)]"
    )
    for text in ("day=2013-01-01..tomorrow", "month=1"):
        with pytest.raises(InvalidParameter):
            days.sql([text])


@pytest.mark.parametrize(
    "arguments",
    [
        ["mode"],
        ["mean", "--of", "aeg"],
        ["mean", "--of", "plan"],
        ["mean", "--share", "plan=paid"],
        ["share", "--of", "plan=gratis"],
        ["share", "--of", "age=20..3x"],
        ["share", "--of", "half=1"],
        ["margin", "--columns", "plan,town"],
        ["margin", "--columns", "plan", "--versus", "age=20"],
        ["median", "--of", "age", "--against", "two.parquet"],
        ["difference", "--of", "age", "--versus", "plan=paid"],
        ["independence", "--columns", "plan"],
        ["independence", "--columns", "plan,age", "--given", "member=true"],
        ["compare", "--of", "age", "--against", "{folder}/two.parquet", "--by", "half"],
        ["compare", "--of", "age"],
        ["quantile"],
        ["median", "--q=0.5"],
    ],
)
def test_a_question_that_makes_no_sense_is_refused(folder: Path, arguments: list[str]) -> None:
    with pytest.raises((LdpError, duckdb.Error), match=r"\[LDP(10[23]|201)\].* Hint: "):
        asked(folder, *(argument.format(folder=folder) for argument in arguments))


def test_keys_named_like_columns_of_the_answer_keep_their_values(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(1, ['Lima', 'Oslo'])")
    con.execute("CREATE TABLE r AS SELECT * FROM (VALUES (7, 1, 'Lima'), (8, 2, 'Oslo'), (8, 2, 'Oslo')) t(n, low, city)")
    for by, columns in (("n", ["n_1"]), ("{n: n}", ["n_1"]), ("{low: low, n: n, g: n}", ["low_1", "n_1", "g"])):
        for question in (f"estimate(r, city, m(), by := {by})", f"share(r, city, m(), 'Lima', \"by\" := {by})"):
            answer = con.sql(f"FROM ldp.{question} ORDER BY ALL")
            keys = answer.columns[: len(columns)]
            assert keys == columns
            found = con.sql(f"SELECT DISTINCT {', '.join(columns)}, n FROM answer ORDER BY ALL").fetchall()
            assert found == ([(1, 7, 7, 1), (2, 8, 8, 2)] if "g" in columns else [(7, 1), (8, 2)])


def test_a_value_with_a_comma_is_a_value_and_a_range_names_its_column() -> None:
    places = Arguments(registry().mechanism(KRR | {"domain": ["Lima", "Oslo", "Rome, GA"]}), "city")
    assert places.sql(["Rome, GA"]) == "'Rome, GA'"
    assert places.sql(["Lima,Oslo"]) == "['Lima', 'Oslo']"
    ages = Arguments(registry().mechanism(KRR | {"domain": [20, 30, 40]}), "age")
    for text in ("30..40", "30.."):
        with pytest.raises(InvalidParameter, match=r"Hint: age=18\.\.65"):
            ages.sql([text])
    assert Arguments(registry().mechanism(KRR | {"domain": ["a..b", "c"]}), "x").sql(["a..b"]) == "'a..b'"
