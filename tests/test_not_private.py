"""Reports without a claim of privacy: every surface estimates from them, and none draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import numpy as np
import polars as pl
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Charge, Key, Mechanism, NotPrivate, certify
from ldpsql.errors import LdpError
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import TOTAL, Channel, Domain, NoClaim, UndrawnChannel, floor_mixing
from tests.commands import app, printed

ROWS = [
    ["5/6", "1/6", "0"],
    ["0", "1", "0"],
    [".1", ".2", ".7"],
]  # the second value is always reported as it is
PRAM = f"not_private(['a', 'b', 'c'], {ROWS})"
VALUE = "['a', 'b', 'c', 'b'][1 + i % 4]"


@pytest.fixture
def r(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute(f"CREATE MACRO m() AS ldp.{PRAM}; CREATE TABLE r AS SELECT {VALUE} AS x, i % 2 AS g FROM range(600) t(i)")
    return con


def test_shares_are_those_of_the_inverse_in_sql_python_and_commands(r: DuckDBPyConnection, tmp_path: Path) -> None:
    rows = np.array([[5 / 6, 1 / 6, 0.0], [0.0, 1.0, 0.0], [0.1, 0.2, 0.7]])
    expected = np.linalg.solve(rows.T, [1 / 4, 1 / 2, 1 / 4])
    r.execute(f"COPY r TO '{tmp_path}/r.parquet'")
    of_sql = [row[1] for row in r.execute("FROM ldp.estimate(r, x, m(), estimator := 'inv')").fetchall()]
    estimate = ldpsql.estimate(r.table("r").to_arrow_table()["x"], PRAM, "inv")
    written = printed("estimate", f"{tmp_path}/r.parquet", "-c", "x", "-m", PRAM, "--estimator", "inv", "--format", "json")
    for answer in (of_sql, estimate.estimate, [row["estimate"] for row in json.loads(written)]):
        assert answer == pytest.approx(expected, abs=1e-12)
    assert ldpsql.estimate(r.table("r").to_arrow_table()["x"], PRAM).diagnosis.status == "certified"
    ((share,),) = r.execute("SELECT ldp.share(x, m(), 'b', estimator := 'inv') FROM r").fetchall()
    assert share["estimate"] == pytest.approx(expected[1], abs=1e-12)


def test_it_is_marked_wherever_it_is_shown(r: DuckDBPyConnection, tmp_path: Path) -> None:
    ((described,),) = r.execute("SELECT ldp.describe(m())").fetchall()
    assert (described["claim"], described["realised_epsilon"]) == (str(NoClaim()), np.inf)
    assert (described["ratio"], described["slack"]) == ("infinite", None)
    document = ldpsql.document(PRAM)
    assert document["claim"] == str(NoClaim())
    assert document["privacy"] == {"epsilon": None}
    schema = Path(__file__).parents[1] / "docs" / "reference" / "mechanism.schema.json"
    jsonschema.validate(json.loads(json.dumps(document)), json.loads(schema.read_text(encoding="utf-8")))
    assert registry().mechanism(document) == registry().mechanism(PRAM)
    assert "under not_private" in ldpsql.estimate(["a", "b", "c"] * 200, PRAM).heading
    r.execute(f"COPY r TO '{tmp_path}/r.parquet'")
    assert str(NoClaim()) in printed("export-sql", "-m", PRAM)
    printed("report", f"{tmp_path}/r.parquet", "-c", "x", "-m", PRAM, "-o", f"{tmp_path}/page.html")
    assert str(NoClaim()) in (tmp_path / "page.html").read_text(encoding="utf-8")


STATEMENTS = {
    "perturb": "SELECT ldp.perturb(x, m()) FROM r",
    "perturb_rows": "FROM ldp.perturb_rows(r, {x: m()})",
    "perturb by level": "SELECT ldp.perturb('a', MAP {'l': m()}, 'l')",
    "a declared one": "SELECT ldp.perturb('a', ldp.declared('pram'))",
    "a row": "SELECT ldp.describe(ldp.row(columns := {x: m(), y: ldp.krr(1, [1, 2])}))",
    "one of a row": "SELECT ldp.describe(ldp.one_of(columns := {x: m(), y: ldp.krr(1, [1, 2])}))",
    "text": f"SELECT ldp.perturb('a', {'$$' + PRAM + '$$'})",
}


@pytest.mark.parametrize("road", STATEMENTS)
def test_sql_draws_nothing(r: DuckDBPyConnection, road: str) -> None:
    r.execute("SELECT ldp.declare('pram', m())")
    with pytest.raises(duckdb.Error, match=r"LDP301.*no claim of privacy"):
        r.execute(STATEMENTS[road]).fetchall()


ROADS: dict[str, Callable[[DuckDBPyConnection, Path], Any]] = {
    "a column": lambda con, path: ldpsql.perturb(["a"], PRAM),
    "no rows": lambda con, path: ldpsql.perturb([], PRAM),
    "a frame": lambda con, path: pl.DataFrame({"x": ["a"]}).ldp.perturb({"x": PRAM}),  # type: ignore[attr-defined]
    "batches": lambda con, path: list(ldpsql.perturb_batches(con.table("r").to_arrow_reader(), {"x": PRAM})),
    "a table": lambda con, path: ldpsql.perturb_table(con, "r", "made", {"x": PRAM}),
    "a file": lambda con, path: ldpsql.perturb_copy(con, "r", path / "made.parquet", {"x": PRAM}),
    "permanent reports": lambda con, path: ldpsql.perturb_once(
        con.table("r").to_arrow_table(), {"x": PRAM}, key=Key.create(path / "key"), user="g"
    ),
    "a charge": lambda con, path: ldpsql.perturb(["a"], PRAM, charge=Charge(ledger(path), "people")),
    "two phases": lambda con, path: ldpsql.two_phases(["a", "b", "c"] * 9, PRAM, "optimal", epsilon=1),
    "a client": lambda con, path: printed("export-client", "-m", PRAM),
    "test vectors": lambda con, path: printed("vectors", "-m", PRAM),
    "the command": lambda con, path: CliRunner().invoke(
        app, ["perturb", f"{path}/r.parquet", f"{path}/made.parquet", "-c", "x", "-m", PRAM], catch_exceptions=False
    ),
}


def ledger(path: Path) -> Ledger:
    return Ledger.open(path / "budget.ledger", Policy(epsilon_budget=100))


@pytest.mark.parametrize("road", ROADS)
def test_python_and_commands_draw_nothing_charge_nothing_and_leave_nothing(
    r: DuckDBPyConnection, tmp_path: Path, road: str
) -> None:
    r.execute(f"COPY r TO '{tmp_path}/r.parquet'")
    with pytest.raises(LdpError) as refused:
        ROADS[road](r, tmp_path)
    assert "no claim of privacy" in str(refused.value)
    assert not (tmp_path / "made.parquet").exists()
    assert r.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'made'").fetchall() == [(0,)]
    if (tmp_path / "budget.ledger").exists():
        assert Ledger.open(tmp_path / "budget.ledger").history() == []


def test_zeros_stay_zeros_and_every_row_sums_to_one() -> None:
    weights = UndrawnChannel.of(registry().mechanism(PRAM).rows).weights()  # type: ignore[attr-defined]
    assert [sum(map(int, row)) for row in weights] == [TOTAL] * 3
    assert (weights == 0).tolist() == [[False, False, True], [True, False, False], [False, False, False]]
    assert weights[1].tolist() == [0, TOTAL - 1, 1]  # 64 bits cannot hold the whole


class Lying(Mechanism):
    """No claim, and a channel that draws."""

    name = "lying"

    def values(self) -> Domain:
        return Domain.of(["a", "b"])

    def claim(self) -> NoClaim:
        return NoClaim()

    def channel(self) -> Channel:
        row = registry().mechanism("matrix(['a', 'b'], [['.7', '.3'], ['.3', '.7']])").rows  # type: ignore[attr-defined]
        return floor_mixing(row, ldpsql.Epsilon.parse("1").value)


def test_a_mechanism_without_a_claim_whose_channel_draws_is_refused() -> None:
    with pytest.raises(NotPrivate, match="cannot draw"):
        certify(Lying())
