"""Exported estimators: pure SQL, in a client that never imported ldpsql, gives what ldpsql gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

from ldpsql.errors import InvalidParameter
from ldpsql.registry.registry import registry
from ldpsql.sql import export
from ldpsql.sql.named import sql_call

# A client of DuckDB: reads macros, then queries, and prints the rows of each; errors are printed in place of rows.
CLIENT = """
import sys, json, duckdb
con = duckdb.connect(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
told = json.load(sys.stdin)
con.execute(told["macros"])
def run(query):
    try:
        return con.execute(query).fetchall()
    except duckdb.Error as error:
        return str(error)
print(json.dumps([run(query) for query in told["queries"]], default=str))
assert not [name for name in sys.modules if name.startswith("ldpsql")]
"""

MECHANISMS = {
    "krr(epsilon=1, domain=['a', 'b', 'NAME__steps', \"it's\"])": "['a', 'b', 'NAME__steps'][1 + i % 3]",
    "krr(epsilon=2, domain=[10, 20, 30, 40, 50, 60, 70])": "10 + 10 * least(2, i % 9)",
    "truncated_geometric(epsilon=1, low=0, high=6)": "i % 7",
    "square_wave(epsilon=1, low=0, high=100, bins=12)": "i % 70",
    "planar_geometric(epsilon=1, columns=4, rows=3)": "i % 11",
    f"oue(epsilon=1, domain={list(range(70))})": "i % 15",
    "subset_selection(epsilon=1, domain=[1, 2, 3, 4, 5])": "1 + i % 4",
}


def client(macros: str, queries: list[str], *arguments: str, cwd: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, *arguments],
        input=json.dumps({"macros": macros, "queries": queries}),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_pure_sql_gives_what_ldpsql_gives_to_twelve_digits_for_every_structure_and_estimator(
    con: DuckDBPyConnection, tmp_path: Path
) -> None:
    macros, asked, expected = "", [], []
    for i, (text, values) in enumerate(MECHANISMS.items()):
        mechanism, name, path = registry().mechanism(text), f"m{i}", tmp_path / f"{i}.parquet"
        made = sql_call(mechanism, con)
        con.execute(f"COPY (SELECT i % 3 AS g, ldp.perturb({values}, {made}) AS r FROM range(3000) t(i)) TO '{path}'")
        macros += export.macros(mechanism, name)
        for method in ("inv", "inv_n", "inv_p", "ibu"):
            stepped = method == "ibu" and mechanism.name != "krr"
            option = ", steps := 30" if stepped else ""
            asked.append(f"SELECT g, unnest({name}_{method}(r{option})) AS s FROM '{path}' GROUP BY g ORDER BY g, s")
            ours = f"{method}(stop=30)" if stepped else method
            query = f"SELECT key, unnest(ldp._rows(({made}).domain, __ldp_estimate(c, ldp._plan('{ours}', {made})))) AS s"
            groups = f"(SELECT g AS key, histogram(r) AS c FROM '{path}' GROUP BY g)"
            expected.append(con.sql(f"{query} FROM {groups} ORDER BY key, s").fetchall())
    for query, rows, right in zip(asked, client(macros, asked, cwd=tmp_path), expected, strict=True):
        assert len(rows) == len(right), (query, rows)
        for (key, exported), (group, own) in zip(rows, right, strict=True):
            assert key == group
            assert exported["value"] == own["value"]
            for column in exported.keys() - {"value"}:
                assert exported[column] == pytest.approx(own[column], abs=1e-12), (query, column)


@pytest.mark.slow
def test_exported_estimators_refuse_what_ldpsql_refuses_and_give_null_for_nothing(tmp_path: Path) -> None:
    macros = export.macros(registry().mechanism("krr(epsilon=1, domain=['a', 'b', 'c'])"), "city")
    macros += export.macros(registry().mechanism("oue(epsilon=1, domain=['a', 'b', 'c'])"), "bits")
    impossible, raw, foreign, nothing, enum = client(
        macros,
        [
            "SELECT city_ibu('canary')",
            "SELECT city_ibu('a') FROM range(1000)",
            "SELECT bits_inv([255::UBIGINT])",
            "SELECT city_ibu(NULL::VARCHAR), bits_inv(NULL::UBIGINT[])",
            "SELECT len(city_inv(x::ENUM('a', 'b', 'c'))) FROM (VALUES ('a'), ('b'), ('c')) t(x)",
        ],
        cwd=tmp_path,
    )
    assert "[LDP401]" in impossible
    assert "canary" not in impossible
    assert "[LDP305]" in raw
    assert "[LDP401]" in foreign
    assert nothing == [[None, None]]
    assert enum == [[3]]


def test_a_database_holds_the_macros_in_the_format_of_an_older_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "city.duckdb"
    mechanism = registry().mechanism("krr(epsilon=1, domain=['a', 'b'])")
    export.write(mechanism, "city", path)
    export.write(mechanism, "town", path)
    queries = ["SELECT len(city_ibu('a')), len(town_inv('b'))", "SELECT tags['storage_version'] FROM duckdb_databases()"]
    answers = client("SELECT 1", queries, str(path), cwd=tmp_path)
    assert answers[0] == [[2, 2]]
    assert "v1.2.0" in str(answers[1])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("olh(epsilon=1, domain=[1, 2, 3])", "city"),
        ("square_wave(epsilon=1, low=0, high=1, bins=1024)", "city"),
        ("krr(epsilon=1, domain=[1, 2])", "city; DROP TABLE people"),
    ],
)
def test_what_sql_cannot_say_is_refused(text: str, name: str) -> None:
    with pytest.raises(InvalidParameter):
        export.macros(registry().mechanism(text), name)


def test_perturbation_is_never_exported() -> None:
    text = export.macros(registry().mechanism("krr(epsilon=1, domain=['a', 'b'])"), "city")
    assert "random" not in text
    assert {
        line.split()[4].split("(")[0] for line in text.splitlines() if line.startswith("CREATE OR REPLACE MACRO city_")
    } == {
        *(f"city_{method}{form}" for method in ("inv", "inv_n", "inv_p", "ibu") for form in ("", "_counts")),
        *(
            f"city__{part}"
            for part in ["counted", "scaled", "clipped", "nearest", "filled", "explained", "rows", "stepped", "shares"]
        ),
    }


def test_numbers_keep_their_last_bit() -> None:
    numbers = np.array([0.1, 1 / 3, 5e-324, 1e300, -2.5])
    assert [float(export.number(number)) for number in numbers] == numbers.tolist()
