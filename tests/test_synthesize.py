"""Rows drawn from an estimate: `ldp.synthesize`, `ldpsql.synthesize`, ``ldpsql synthesize``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection
from duckdb import Error as DuckDBError
from numpy.typing import NDArray
from typer.testing import CliRunner

import ldpsql
from ldpsql import synthesize
from ldpsql.channels.randomness import Words
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.simulated import drawn_cells
from tests.commands import app

SHARES = """
CREATE TABLE shares AS FROM (VALUES
    ('Lima', DATE '2024-01-01', 0.5::DOUBLE, 0.1::DOUBLE, 0.4, 0.6, 300::BIGINT),
    ('Lima', DATE '2024-01-02', 0.2, 0.1, 0.1, 0.3, 300),
    ('Oslo', DATE '2024-01-01', 0.3, 0.1, 0.2, 0.4, 300), ('Oslo', DATE '2024-01-02', 0.0, NULL, 0.0, 0.1, 300)
) AS t(city, day, estimate, std_error, low, high, n)
"""


def constant(word: int) -> Words:
    def words(count: int) -> NDArray[np.uint64]:
        return np.full(count, word, np.uint64)

    return words


@pytest.fixture(scope="module")
def con() -> DuckDBPyConnection:
    made = ldpsql.connect()
    made.execute(SHARES)
    return made


def test_a_cell_occurs_as_often_as_its_share_says_and_values_keep_their_types(con: DuckDBPyConnection) -> None:
    rows = con.execute("SELECT city, day, count(*) FROM ldp.synthesize(shares, 1000) GROUP BY ALL ORDER BY ALL").fetchall()
    assert [(city, str(day), n) for city, day, n in rows] == [
        ("Lima", "2024-01-01", 500), ("Lima", "2024-01-02", 200), ("Oslo", "2024-01-01", 300)
    ]  # fmt: skip
    assert con.execute("DESCRIBE FROM ldp.synthesize(shares, 1)").fetchall()[1][:2] == ("day", "DATE")


@pytest.mark.parametrize("offset", [0, 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_cells_are_rounded_up_or_down_and_all_rows_are_drawn(offset: int, rows: int) -> None:
    shares = np.array([0.1, 0.0, 0.33, 0.57])
    each = np.bincount(drawn_cells(shares, rows, constant(offset)), minlength=4)
    assert each.sum() == rows
    assert (np.abs(each - rows * shares) < 1.0 + 1e-9).all()
    assert each[1] == 0


def test_the_rounding_is_fair() -> None:
    offsets = [(2 * i + 1) << 59 for i in range(16)]  # the middles of sixteenths
    shares = np.array([5.0, 3.0, 8.0])
    drawn = [drawn_cells(shares, 1, constant(at))[0] for at in offsets]
    assert np.bincount(drawn, minlength=3).tolist() == [5, 3, 8]


@pytest.mark.parametrize(("share", "number"), [("DOUBLE", "BIGINT"), ("DECIMAL(9, 3)", "HUGEINT"), ("FLOAT", "DOUBLE")])
def test_groups_occur_as_often_as_they_have_reports(con: DuckDBPyConnection, share: str, number: str) -> None:
    con.execute(f"""CREATE OR REPLACE TABLE groups AS SELECT key, value, estimate::{share} AS estimate, n::{number} AS n
        FROM (VALUES ('a', 1, 0.5, 30), ('a', 2, 0.5, 30), ('b', 1, 1.0, 90), ('b', 2, -0.1, 90)) t(key, value, estimate, n)""")
    rows = con.execute("SELECT key, value, count(*) FROM ldp.synthesize(groups, 120) GROUP BY ALL ORDER BY ALL").fetchall()
    assert rows == [("a", 1, 15), ("a", 2, 15), ("b", 1, 90)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("shares, -1", "whole number"), ("shares, NULL", "whole number"), ("shares, 100_000_001", "whole number"),
        ("shares, 'many'", "whole number"), ("shares, 1.5", "whole number"), ("unknown, 1", "share is NULL"),
        ("zero, 1", "share is NULL"), ("empty, 1", "no estimate"), ("raw, 1", "from an estimate"), ("named, 1", "rename"),
        ("words, 1", "must be numbers"),
    ],
)  # fmt: skip
def test_what_is_not_an_estimate_is_refused_without_a_value(con: DuckDBPyConnection, call: str, message: str) -> None:
    con.execute("""
        CREATE OR REPLACE TABLE unknown AS SELECT 'secret' AS v, NULL::DOUBLE AS estimate;
        CREATE OR REPLACE TABLE zero AS SELECT 'secret' AS v, 0.0::DOUBLE AS estimate;
        CREATE OR REPLACE TABLE empty AS FROM shares WHERE false;
        CREATE OR REPLACE TABLE words AS SELECT 'secret' AS v, 1.0::DOUBLE AS estimate, 'secret' AS n;
        CREATE OR REPLACE TABLE raw AS SELECT 'secret' AS v;
        CREATE OR REPLACE TABLE named AS SELECT 3 AS n, 'secret' AS v, 1.0::DOUBLE AS estimate, 5 AS n_1;
    """)
    with pytest.raises(DuckDBError, match=message) as refused:
        con.execute(f"FROM ldp.synthesize({call})").fetchall()
    assert "LDP103" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_rows_of_a_joint_estimate_have_a_column_for_each_variable() -> None:
    mechanism = "row(city=krr(9, ['Lima', 'Oslo']), adult=krr(9, [false, true]))"
    reports = ldpsql.perturb([{"city": "Lima", "adult": True}] * 500, mechanism)
    rows = ldpsql.synthesize(ldpsql.estimate(reports, mechanism, "best"), 100)
    assert rows.column_names == ["city", "adult"]
    assert rows.column("adult").type == pa.bool_()
    assert len(rows) == 100
    # at most 1 of 4,000 bits is not kept, so that the estimate is above .9 but once in 10^50
    assert rows.to_pylist().count({"city": "Lima", "adult": True}) > 85


def test_rows_of_one_column_and_of_a_table_in_python(con: DuckDBPyConnection) -> None:
    one = ldpsql.estimate(["a"] * 9 + ["b"], "krr(20, ['a', 'b'])")
    assert sorted(synthesize(one, 10).column("value").to_pylist()) == ["a"] * 9 + ["b"]
    table = con.table("shares").to_arrow_table()
    assert sorted(synthesize(table, 10).column("city").to_pylist()) == ["Lima"] * 7 + ["Oslo"] * 3
    for rows in (-1, True, "3", 2.0):
        with pytest.raises(InvalidParameter):
            synthesize(table, rows)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="from an estimate"):
        synthesize(["a", "b"], 10)


def test_the_command_draws_rows_of_each_group(tmp_path: Path) -> None:
    reports = pa.table({"region": ["n"] * 30 + ["s"] * 10, "city": ["a"] * 30 + ["b"] * 10})
    pq.write_table(reports, tmp_path / "r.parquet")
    call = ["synthesize", str(tmp_path / "r.parquet"), "city", "-m", "krr(20, ['a', 'b'])", "--by", "region", "--rows", "8"]
    done = CliRunner().invoke(app, [*call, "--estimator", "ibu"])
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout.split()) == ["n,a"] * 6 + ["region,value"] + ["s,b"] * 2
