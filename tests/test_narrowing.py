"""Answers about few columns of a table are estimated from the reports of these columns alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.functions import registry, text_literal
from ldpsql.inference.counting import SomeColumns
from ldpsql.questions import GroupedCounts
from ldpsql.testing import operator_of
from tests import commands

COLUMNS = "plan=krr(2, ['a', 'b']), age={age}, paid=krr(2, [false, true])"
AGES = {"listed": "krr(2, [10, 20, 30])", "hashed": "olh(2, [10, 20, 30])", "sets": "rappor(2, [10, 20, 30])"}
LARGE = """ldp.row({plan: ldp.krr(4, ['a', 'b', 'c']), age: ldp.krr(6, range(60)), spend: ldp.krr(6, range(600)),
                    other: ldp.krr(6, range(600))})"""


def people(n: int = 600) -> list[dict[str, object]]:
    """Return rows in which the columns depend on each other."""
    return [{"plan": "ab"[i % 2], "age": [10, 20, 30][i % 3 if i % 2 else 0], "paid": i % 5 < 2} for i in range(n)]


def narrow(reports: pa.Array, columns: list[str]) -> pa.Array:
    """Return the reports of some columns."""
    return pa.StructArray.from_arrays([reports.field(name) for name in columns], columns)


@pytest.fixture(scope="module")
def con() -> DuckDBPyConnection:
    return ldpsql.connect()


@pytest.mark.parametrize("kind", ["row", "one_of"])
@pytest.mark.parametrize("age", AGES)
def test_an_answer_is_that_of_the_row_of_its_columns(kind: str, age: str) -> None:
    parts = COLUMNS.format(age=AGES[age])
    whole, pair = f"{kind}({parts})", f"{kind}({parts.rsplit(', paid', 1)[0]})"
    reports = ldpsql.perturb(people(), whole)
    table, own = ldpsql.estimate(reports, whole), ldpsql.estimate(narrow(reports, ["plan", "age"]), pair)
    assert table.share({"plan": "a"}, {"age": [20, 30]}) == pytest.approx(own.share({"plan": "a"}, {"age": [20, 30]}), abs=1e-7)
    assert table.mean("age", {"plan": "b"}) == pytest.approx(own.mean("age", {"plan": "b"}), abs=1e-4)
    margins = [one.margin(["age", "plan"]).to_pylist() for one in (table, own)]
    for one, other in zip(*margins, strict=True):
        assert (one["plan"], one["age"]) == (other["plan"], other["age"])
        assert one["estimate"] == pytest.approx(other["estimate"], abs=1e-7)


def test_an_answer_about_one_column_is_that_of_its_mechanism() -> None:
    whole = f"row({COLUMNS.format(age=AGES['listed'])})"
    reports = ldpsql.perturb(people(), whole)
    alone = ldpsql.estimate(reports.field("age"), AGES["listed"])
    margin = ldpsql.estimate(reports, whole).margin("age")
    # Shares are summed in another order, so that their last bits may differ.
    assert margin["estimate"].to_pylist() == pytest.approx(alone.estimate.tolist(), rel=1e-12)
    assert margin["std_error"].to_pylist() == pytest.approx(alone.std_error.tolist(), rel=1e-6)


def test_the_margin_of_whole_rows_is_that_of_a_krr_that_keeps_more_often() -> None:
    mechanism = registry().mechanism("joint_krr(2, {'plan': ['a', 'b'], 'age': [10, 20, 30], 'paid': [false, true]})")
    cells = mechanism.values().listed.values
    chances = operator_of(mechanism).matrix()[0]  # if all people are in the first cell
    counts = GroupedCounts.of(cells, pa.array(np.rint(chances * 1e6).astype(np.int64)))
    some = SomeColumns.of(mechanism, (0, 1))
    assert some is not None
    [(_, likelihood)] = some.likelihoods(counts)
    assert likelihood.operator.inputs == 6
    assert registry().estimator("ibu").fit(likelihood).theta[0] == pytest.approx([1, 0, 0, 0, 0, 0], abs=1e-4)


def test_nothing_is_left_out_where_the_other_columns_count_or_nothing_can_be() -> None:
    row = registry().mechanism(f"row({COLUMNS.format(age=AGES['listed'])})")
    hashed = registry().mechanism("joint_olh(2, {'plan': ['a', 'b'], 'age': [10, 20, 30]})")
    assert SomeColumns.of(row, (0, 1, 2)) is None
    assert SomeColumns.of(row, ()) is None
    assert SomeColumns.of(hashed, (0,)) is None
    assert SomeColumns.of(registry().mechanism("krr(1, ['a', 'b'])"), (0,)) is None


def test_an_option_for_all_cells_keeps_all_cells() -> None:
    whole = f"row({COLUMNS.format(age=AGES['listed'])})"
    reports = ldpsql.perturb(people(), whole)
    started = ldpsql.estimate(reports, whole, f"ibu(stop=0, start=[{', '.join(['0.05'] * 11)}, 0.45])")
    assert started.share({"plan": "b", "age": 30, "paid": True}).estimate == pytest.approx(0.45)
    assert started.share({"paid": True}).estimate == pytest.approx(0.70)


def test_rows_that_report_none_of_the_columns_are_left_out() -> None:
    whole = f"row({COLUMNS.format(age=AGES['listed'])})"
    plans = [None] * 3 + ["a"] * 9 + ["b"] * 2
    columns = pa.array(plans), pa.array([10] * 3 + [20] * 9 + [None] * 2), pa.array([None] * 12 + [True] * 2)
    table = ldpsql.estimate(pa.StructArray.from_arrays(columns, ["plan", "age", "paid"]), whole)
    own = table.of.of_columns(SomeColumns(registry().mechanism(whole), (0,)))
    assert own is not None
    assert own.likelihood.n.tolist() == [11.0]
    alone = ldpsql.estimate(plans, "krr(2, ['a', 'b'])")
    assert table.margin("plan")["estimate"].to_pylist() == pytest.approx(alone.estimate)


def test_sql_answers_about_few_columns_of_a_table_that_has_too_many_cells(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE MACRO large() AS {LARGE}")
    con.execute(
        """CREATE TABLE large AS
        SELECT ldp.perturb({plan: ['a', 'b', 'c'][1 + i % 3], age: i % 50, spend: i, other: i}, large()) AS report,
               i % 2 AS half
        FROM range(300) t(i) ORDER BY random()"""
    )
    row = con.execute(
        """SELECT ldp.share(report, large(), of := {plan: 'a'}), ldp.mean(report, large(), of := 'spend'),
                  ldp.difference(report, large(), {plan: 'a'}, {age: {low: 25}}, {age: {high: 24}}),
                  ldp.margin(report, large(), ['plan'])
           FROM large GROUP BY half"""
    ).fetchall()
    assert len(row) == 2
    for share, mean, difference, margin in row:
        assert all(answer["std_error"] > 0 for answer in (share, mean, difference, *margin))
    assert len(con.execute("FROM ldp.margin(large, report, large(), columns := ['plan'])").fetchall()) == 3


def test_sql_and_python_answer_alike_about_few_columns(con: DuckDBPyConnection) -> None:
    whole = f"one_of({COLUMNS.format(age=AGES['hashed'])})"
    reports = ldpsql.perturb(people(), whole)
    con.register("ones", pa.table({"report": reports}))
    [answer] = con.execute(f"SELECT ldp.share(report, {text_literal(whole)}, of := {{paid: true}}) FROM ones").fetchone() or [
        None
    ]
    assert answer is not None
    assert list(answer.values()) == pytest.approx(list(ldpsql.estimate(reports, whole).share({"paid": True})))


def test_some_columns_of_a_row_are_estimated_by_their_names(tmp_path: Path) -> None:
    whole = f"row({COLUMNS.format(age=AGES['listed'])})"
    reports = ldpsql.perturb(people(), whole)
    pq.write_table(pa.table({name: reports.field(name) for name in ("plan", "age", "paid")}), tmp_path / "reports.parquet")
    frame = pq.read_table(tmp_path / "reports.parquet")
    pair = ldpsql.estimate(frame, whole, column=["paid", "plan"])
    assert pair.values.values.type.names == ["plan", "paid"]
    again = ldpsql.estimate(tmp_path / "reports.parquet", whole, column=["plan", "paid"])
    assert pair.estimate.tolist() == again.estimate.tolist()
    options = ["-c", "plan", "-c", "paid", "-m", whole, "--format", "csv"]
    run = commands.run("estimate", str(tmp_path / "reports.parquet"), *options)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 5
    with pytest.raises(ldpsql.InvalidParameter, match="not the columns"):
        ldpsql.estimate(frame, whole, column=["plan", "plan"])
