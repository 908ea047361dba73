"""PostgreSQL returns the shares that DuckDB returns, on a million reports: needs initdb, pg_ctl and psql."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ldpsql
from tests.commands import printed
from tests.postgres.servers import call

CITY = "krr(1, ['Lima', \"O'slo\", 'Rome', 'Kyiv', 'Riga'])"
ROWS = 1_000_000
EXPORT = ("export-sql", "--dialect", "postgres", "--by", "region")


def psql_file(server: str, file: Path) -> None:
    """Run a file: a query with a table may be longer than an argument of a command."""
    file.chmod(0o644)
    call("psql", "-h", server, "-U", "test", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-q", "-f", str(file))


def psql(server: str, text: str, *options: str) -> list[list[str]]:
    out = call(
        "psql", "-h", server, "-U", "test", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-At", "-F", "\t", *options, "-c", text
    )
    return [line.split("\t") for line in out.splitlines()]


BITS = "array_to_string(list_transform(range({}), lambda i: (x[i // 64 + 1] >> (i % 64)) & 1), '')"
# Mechanisms, a value for each number, the columns that PostgreSQL reads instead of the reports, and their types.
LINEAR = {
    f"oue(1, {list(range(70))})": ("i % 9", [BITS.format(70)], "x text"),
    "rappor(2, ['a', 'b', 'c'])": ("'abc'[1 + i % 3]", [BITS.format(3)], "x text"),
    "subset_selection(1, [1, 2, 3, 4, 5])": ("1 + i % 4", [BITS.format(5)], "x text"),
    "encoding(1, ['a', 'b', 'c'], 'hadamard')": ("'abc'[1 + i % 3]", [BITS.format(3)], "x text"),
    "hadamard_response(2, ['a', 'b', 'c', 'd', 'e'], 4, 4)": ("'abcde'[1 + i % 4]", ["x"], "x integer"),
    f"olh(1, {list(range(20))})": ("i % 9", ["x.seed", "x.y"], "x_seed bigint, x_y integer"),
    f"olh(2.5, {list(range(30))})": ("i % 9", ["x.seed", "x.y"], "x_seed bigint, x_y integer"),
    "square_wave(4, 0, 100, bins := 12)": ("i % 70", ["x"], "x integer"),
    "hybrid(3, 0, 1, bins := 6)": ("(i % 7) / 10", ["x"], "x integer"),
    "stochastic_rounding(1, 0, 1, bins := 2)": ("(i % 3) / 2", ["x"], "x integer"),
    "truncated_geometric(1, 0, 6)": ("i % 7", ["x"], "x integer"),
    "geometric(2, 0, 5)": ("i % 4", ["x"], "x integer"),
    "planar_geometric(1, columns := 4, rows := 3)": ("i % 11", ["x"], "x integer"),
}


@pytest.mark.parametrize("text", LINEAR)
def test_postgresql_inverts_as_ldpsql_does(server: str, text: str) -> None:
    value, columns, types = LINEAR[text]
    file = Path(server) / "linear.csv"
    with ldpsql.connect() as con:
        con.execute(f"""CREATE TABLE reports AS SELECT ['north', NULL][1 + i % 3 // 2] AS region,
            ldp.perturb({value}, ldp.{text}) AS x FROM range(3000) t(i)""")
        con.execute(f"COPY (SELECT region, {', '.join(columns)} FROM reports) TO '{file}' (HEADER false)")
        file.chmod(0o644)
        parts = {"north": con.table("reports").filter("region IS NOT NULL"), "": con.table("reports").filter("region IS NULL")}
        expected = {region: ldpsql.estimate(part, text, "inv(misfit='allow')", column="x") for region, part in parts.items()}
    psql(server, f"DROP TABLE IF EXISTS linear CASCADE; CREATE TABLE linear (region text, {types})")
    psql(server, f"COPY linear FROM '{file}' (FORMAT csv)")
    (Path(server) / "query.sql").write_text(
        printed(*EXPORT, "-m", text, "--table", "linear", "-c", "x", "--name", "linear_shares"), "utf-8"
    )
    psql_file(server, Path(server) / "query.sql")
    rows = psql(server, "SELECT * FROM linear_shares")
    for region, estimate in expected.items():
        own = np.array([[float(cell) for cell in row[2:]] for row in rows if row[0] == region])
        theirs = np.array([estimate.estimate, estimate.std_error, estimate.low, estimate.high]).T
        np.testing.assert_allclose(own[:, :4], theirs, rtol=0, atol=1e-12)
        assert set(own[:, 5]) == {0.0}


def test_postgresql_returns_the_same_to_twelve_digits_on_a_million_reports(server: str) -> None:
    with ldpsql.connect() as con:
        values = "['Lima', 'Rome', 'Rome', 'O''slo'][1 + i % 4]"
        con.execute(f"""CREATE TABLE reports AS SELECT ['north', NULL][1 + i % 2] AS region,
            ldp.perturb({values}, ldp.krr(1, ['Lima', 'O''slo', 'Rome', 'Kyiv', 'Riga'])) AS city FROM range({ROWS}) t(i)""")
        file = Path(server) / "reports.csv"
        con.execute(f"COPY reports TO '{file}' (HEADER false)")
        file.chmod(0o644)
        expected = {
            (region, estimator): ldpsql.estimate(
                con.table("reports").filter(f"region IS {test}"), CITY, estimator, column="city"
            )
            for region, test in (("north", "NOT NULL"), ("", "NULL"))
            for estimator in ("ibu", "inv")
        }
    psql(server, "CREATE TABLE reports (region text, city text)")
    psql(server, f"COPY reports FROM '{file}' (FORMAT csv)")
    psql(server, printed(*EXPORT, "-m", CITY, "--table", "reports", "-c", "city", "--name", "shares"))
    rows = psql(server, "SELECT * FROM shares")
    assert sum(float(row[10]) for row in rows) == ROWS * 5
    for (region, estimator), estimate in expected.items():
        first = 2 if estimator == "ibu" else 6
        own = np.array([[float(cell) for cell in row[first : first + 4]] for row in rows if row[0] == region])
        theirs = np.array([estimate.estimate, estimate.std_error, estimate.low, estimate.high]).T
        np.testing.assert_allclose(own, theirs, rtol=0, atol=1e-12)
