"""A table of Ibis is counted by its engine in one query, and gives the estimates that DuckDB gives."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import ibis
import polars as pl
import pyarrow as pa
import pytest

import ldpsql
from ldpsql.bulk import backends
from ldpsql.errors import BadCounts, FetchedReports, OtherMechanism, SourceRefused, UnknownName
from ldpsql.functions import fingerprint, registry
from tests.warehouses import CITY, answers, differences, flat_reports, repeated_differences, reports


def in_duckdb(table: pa.Table) -> Any:
    backend = ibis.duckdb.connect()
    backend.con.register("arrow", table)
    backend.raw_sql("CREATE TABLE reports AS FROM arrow")
    return backend.table("reports")


def in_polars(table: pa.Table) -> Any:
    return ibis.polars.connect({"reports": pl.from_arrow(table)}).table("reports")


def in_sqlite(table: pa.Table) -> Any:
    backend = ibis.sqlite.connect()
    kinds = {"string": "TEXT", "date32[day]": "DATE", "double": "REAL"}
    columns = ", ".join(f'"{field.name}" {kinds.get(str(field.type), "INTEGER")}' for field in table.schema)
    backend.con.execute(f"CREATE TABLE reports ({columns})")
    rows = [tuple(map(_in_sqlite, row.values())) for row in table.to_pylist()]
    backend.con.executemany(f"INSERT INTO reports VALUES ({', '.join('?' * len(table.schema))})", rows)
    return backend.table("reports")


def _in_sqlite(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


@pytest.mark.parametrize("make", [in_duckdb, in_polars])
def test_all_questions_have_the_answers_of_duckdb(make: Callable[[pa.Table], Any]) -> None:
    table = make(reports())
    assert max(differences(table)) <= 1e-12
    assert max(differences(table, "FURTHER")) <= 1e-12


@pytest.mark.parametrize("make", [in_duckdb, in_polars])
def test_reports_of_a_person_are_a_list_that_the_engine_makes(make: Callable[[pa.Table], Any]) -> None:
    assert list(repeated_differences(make(reports()))) == [0.0]


def test_each_question_is_one_query_of_sqlite_that_returns_counts_or_sums() -> None:
    table = in_sqlite(flat_reports())
    statements: list[str] = []
    table.get_backend().con.set_trace_callback(statements.append)
    assert max(*differences(table), *differences(table, "FURTHER")) <= 1e-12
    selects = [text for text in statements if text.startswith("SELECT") and '"reports"' in text]
    assert len(selects) == len(answers()) + len(answers("FURTHER"))
    assert sum("GROUP BY" not in text for text in selects) == 1  # a logistic regression needs the rows


def test_rows_that_no_sums_replace_come_with_a_warning_or_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"column": "city", "question": "regression", "outcome": "smoker", "family": "logistic"}
    monkeypatch.setattr(backends, "_MANY", 3000)
    with pytest.warns(FetchedReports, match="3,003 rows"):
        ldpsql.estimate(in_duckdb(reports()), CITY, **asked)
    monkeypatch.setattr(backends, "MOST_CELLS", 3000)
    with pytest.raises(SourceRefused, match="more than 3,000 rows"):
        ldpsql.estimate(in_duckdb(reports()), CITY, **asked)


@pytest.mark.parametrize("make", [in_duckdb, in_polars, in_sqlite])
def test_a_negative_weight_next_to_a_raw_column_is_refused(make: Callable[[pa.Table], Any]) -> None:
    table = make(pa.table({"x": ["a", "a", "b"], "y": [1.0, 2.0, 3.0], "w": [3.0, -1.0, 1.0]}))
    with pytest.raises(BadCounts, match="negative"):
        ldpsql.estimate(table, "krr(1, ['a', 'b'])", column="x", question="outcome", outcome="y", weight="w")


def test_edge_cases_of_raw_columns_have_the_answers_of_a_frame() -> None:
    columns = [("x", pa.string()), ("y", pa.float64()), ("g", pa.string())]
    cases: list[tuple[list[Any], list[Any], list[Any]]] = [
        ([], [], []),
        (["a"], [1.0], ["p"]),
        ([None, None], [1.0, 2.0], ["p", "q"]),
        (["a", "b"], [None, None], ["p", "p"]),
        (["a", "z"], [1.0, 2.0], ["p", None]),
        (["a", "b", "a"], [1e200, 1.0, 2.0], ["p", None, "p"]),
    ]
    for number, case in enumerate(cases):
        table = pa.table([pa.array(values, kind) for values, (_, kind) in zip(case, columns, strict=True)], ["x", "y", "g"])
        for asked in ({"question": "outcome"}, {"question": "regression", "regressors": ["y", "y"]}):
            by = "g" if ("regressors" in asked) == number % 2 else ()
            given = {"outcome": "y", "by": by, **asked}
            outcomes = [_answer_or_error(each, given) for each in (table, in_duckdb(table), in_sqlite(table))]
            assert outcomes[0] == outcomes[1] == outcomes[2]


def _answer_or_error(data: Any, asked: dict[str, Any]) -> str:
    """Return the answer, or the error, as text."""
    try:
        return str(ldpsql.estimate(data, "krr(1, ['a', 'b'])", column="x", **asked).to_arrow().to_pylist())
    except ldpsql.LdpError as refusal:
        return str(refusal)


@pytest.mark.parametrize(
    ("make", "wrong"), [(in_duckdb, "text"), (in_duckdb, float("nan")), (in_sqlite, "text"), (in_sqlite, float("inf"))]
)
def test_a_raw_column_or_a_weight_of_other_things_than_numbers_is_refused(make: Callable[[pa.Table], Any], wrong: Any) -> None:
    odd = pa.array([1.0, wrong]) if isinstance(wrong, float) else pa.array(["1", "secret"])
    table = make(pa.table({"x": ["a", "b"], "odd": odd, "y": [1.0, 2.0]}))
    for asked in ({"outcome": "odd"}, {"outcome": "y", "weight": "odd"}):
        with pytest.raises(BadCounts, match="not finite") as refused:
            ldpsql.estimate(table, "krr(1, ['a', 'b'])", column="x", question="outcome", **asked)
        assert "secret" not in str(refused.value)


def test_conditions_joins_and_computed_keys_are_expressions_of_ibis() -> None:
    table = in_duckdb(reports())
    names = ibis.memtable({"Reg ion": ["north"], "name": ["the north"]})
    some = ldpsql.estimate(table.join(names, "Reg ion").filter(table.w > 1), CITY, column="city", by="name").to_arrow()
    with ldpsql.connect() as con:
        con.register("r", reports())
        query = "SELECT * FROM r WHERE \"Reg ion\" = 'north' AND w > 1"
        expected = ldpsql.estimate(con.sql(query), CITY, column="city").to_arrow()
    assert some["name"].unique().to_pylist() == ["the north"]
    assert some["estimate"].to_pylist() == expected["estimate"].to_pylist()


LEVELS = {"low": "krr(1, ['a', 'b'])", "high": "krr(3, ['a', 'b'])"}


@pytest.mark.parametrize("make", [in_duckdb, in_polars])
def test_levels_rows_lists_and_pairs_are_counted_alike(make: Callable[[pa.Table], Any]) -> None:
    with ldpsql.connect() as con:
        table = con.sql(
            """SELECT {level: ['low', 'high'][1 + i % 2], report: 'ab'[1 + i // 2 % 2]} AS leveled, 'ab'[1 + i % 2] AS x,
                      (i % 7 < 3) AS y, ['ab'[1 + i % 2], 'ab'[1 + i % 3 // 2]] AS several,
                      ldp.perturb([{key: 'k', value: 0.5}], ldp.pckv_grr(2.0, ['k', 'l'], padding := 2)) AS pairs
               FROM range(400) AS people(i)"""
        ).to_arrow_table()
    made = make(table)
    levels = ldpsql.estimate(made, LEVELS, column="leveled")
    assert levels.estimate.tolist() == ldpsql.estimate(table["leveled"], LEVELS).estimate.tolist()
    row = "row(x=krr(1, ['a', 'b']), y=krr(1, [true, false]))"
    assert (
        ldpsql.estimate(made, row, column=["x", "y"]).estimate.tolist()
        == ldpsql.estimate(table, row, column=["x", "y"]).estimate.tolist()
    )
    by_frame = ldpsql.estimate(table, LEVELS, column="leveled", by="y").to_arrow()
    assert ldpsql.estimate(made, LEVELS, column="leveled", by="y").to_arrow().equals(by_frame)
    hashed = "olh(1, ['a', 'b'])"
    lists = pa.table({"z": [[{"seed": 0, "y": i // 2 % 2}] * (1 + i % 2) for i in range(40)]})
    assert (
        ldpsql.estimate(make(lists), hashed, column="z").estimate.tolist()
        == ldpsql.estimate(lists["z"], hashed).estimate.tolist()
    )
    several = ldpsql.estimate(made, "krr(1, ['a', 'b'])", column="several")
    assert several.estimate.tolist() == ldpsql.estimate(table["several"], "krr(1, ['a', 'b'])").estimate.tolist()
    pairs = "pckv_grr(2, ['k', 'l'], padding := 2)"
    keyed = ldpsql.estimate(made, pairs, column="pairs", question="key_value").to_arrow()
    assert keyed.equals(ldpsql.estimate(table, pairs, column="pairs", question="key_value").to_arrow())


def test_recorded_mechanisms_are_read_from_comments_and_types() -> None:
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 'ab'[1 + i % 2] AS city FROM range(500) AS t(i)")
        typed = con.sql("FROM ldp.perturb_rows(people, {city: ldp.krr(1.0, ['a', 'b'])})").to_arrow_table()
        expected = ldpsql.estimate(typed, column="city").estimate.tolist()
    assert ldpsql.estimate(in_duckdb(typed), column="city").estimate.tolist() == expected
    backend = ibis.duckdb.connect()
    ldpsql.perturb_table(backend.con, pa.table({"city": ["a", "b"] * 50}), "reports", {"city": "krr(1, ['a', 'b'])"})
    table = backend.table("reports")
    assert ldpsql.estimate(table.filter(table.city == "a"), column="city").diagnosis.reports > 0
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(table, "krr(2, ['a', 'b'])", column="city")


@pytest.mark.parametrize("make", [in_duckdb, in_polars, in_sqlite])
def test_a_constant_column_records_the_mechanism_also_of_a_selection(make: Callable[[pa.Table], Any]) -> None:
    one, other = (fingerprint(registry().mechanism(f"krr({epsilon}, ['a', 'b'])")) for epsilon in (1, 2))
    rows = {"city": ["a", "b"] * 50, "city_drawn_by": [one] * 60 + [other] * 40, "day": [1] * 60 + [2] * 40}
    table = make(pa.table(rows))
    first = table.filter(table.day == 1)
    assert ldpsql.estimate(first, column="city").diagnosis.record == "recorded"
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(first, "krr(2, ['a', 'b'])", column="city")
    with pytest.raises(OtherMechanism, match="several"):
        ldpsql.estimate(table, column="city")
    moved = first.rename(town="city", town_drawn_by="city_drawn_by")
    assert ldpsql.estimate(moved, column="town", by="day").to_arrow()["n"].to_pylist() == [60, 60]


def test_reports_that_all_differ_come_with_a_warning_that_has_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(range(200))
    drawn = ldpsql.perturb(list(range(200)) * 5, f"oue(1, {values})")
    monkeypatch.setattr(backends, "_MANY", 500)
    with pytest.warns(FetchedReports, match="1,000 rows"):
        ldpsql.estimate(in_duckdb(pa.table({"x": drawn})), f"oue(1, {values})", column="x")
    monkeypatch.setattr(backends, "MOST_CELLS", 100)
    with pytest.raises(SourceRefused, match="more than 100"):
        ldpsql.estimate(in_duckdb(pa.table({"x": drawn})), f"oue(1, {values})", column="x")


@pytest.mark.parametrize("weight", [-1.0, None, float("nan"), float("inf")])
def test_a_bad_weight_is_refused(weight: float | None) -> None:
    table = pa.table({"x": ["a", "b", None], "w": pa.array([1.0, weight, -3.0], pa.float64())})
    with pytest.raises(BadCounts):
        ldpsql.estimate(in_duckdb(table), "krr(1, ['a', 'b'])", column="x", weight="w")


def test_a_weight_of_zero_and_a_report_that_is_null_count_nothing() -> None:
    table = pa.table({"g": [1, 1, 2, 3], "x": ["a", "b", "a", None], "w": [1.0, 0.0, 0.0, -1.0]})
    asked: dict[str, Any] = {"column": "x", "by": "g", "weight": "w", "question": "share", "of": "a"}
    there, here = (ldpsql.estimate(each, "krr(1, ['a', 'b'])", **asked).to_arrow() for each in (in_duckdb(table), table))
    assert there.to_pylist() == here.to_pylist()


def test_what_the_engine_refuses_is_one_sentence_without_values(tmp_path: Any) -> None:
    with sqlite3.connect(tmp_path / "r.db") as con:
        con.execute("CREATE TABLE reports (city TEXT)")
        con.execute("INSERT INTO reports VALUES ('a secret')")
    table = ibis.sqlite.connect(tmp_path / "r.db").table("reports")
    with pytest.raises(ldpsql.LdpError) as refused:
        ldpsql.estimate(table, "krr(1, ['a', 'b'])", column="city")
    assert "secret" not in str(refused.value)
    with pytest.raises(UnknownName):
        ldpsql.estimate(table, "krr(1, ['a', 'b'])", column="town")
    with pytest.raises(UnknownName):
        ldpsql.estimate(table, "krr(1, ['a', 'b'])", column="city", by="region")
    table.get_backend().con.execute("DROP TABLE reports")
    with pytest.raises(SourceRefused, match="sqlite could not count") as gone:
        ldpsql.estimate(table, "krr(1, ['a', 'b'])", column="city")
    assert gone.value.__context__ is None
