"""What would redraw is found, whatever way it calls the functions, and nothing else is."""

from __future__ import annotations

import warnings
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import PrivacyLeakWarning
from ldpsql.lint import lint
from ldpsql.mechanism import certify
from ldpsql.registry import registry

REDRAWS = {
    "plain": "CREATE VIEW v AS SELECT ldp.perturb(city, city()) FROM people",
    "quoted": 'CREATE VIEW v AS SELECT "ldp"."perturb"(city, city()) FROM people',
    "upper case": "CREATE VIEW v AS SELECT LDP.PERTURB(city, city()) FROM people",
    "through a macro": "CREATE MACRO noisy(x) AS ldp.perturb(x, city()); CREATE VIEW v AS SELECT noisy(city) FROM people",
    "through two": """CREATE MACRO noisy(x) AS ldp.perturb(x, city());
        CREATE MACRO noisier(x) AS TABLE SELECT noisy(x); CREATE VIEW v AS FROM noisier('Lima')""",
    "below": "CREATE VIEW v AS WITH r AS (SELECT ldp.perturb(city, city()) AS c FROM people) SELECT ldp.ibu(c, city()) FROM r",
    "generated": "CREATE TABLE v (city VARCHAR, report VARCHAR GENERATED ALWAYS AS (ldp.perturb(city, city())))",
}
SOUND = {
    "estimate": "CREATE VIEW v AS SELECT ldp.ibu(city, city()) FROM people",
    "permanent": "CREATE VIEW v AS SELECT ldp.perturb_once(city, city(), 1) FROM people",
    "budget": "CREATE VIEW v AS FROM ldp.budget()",
    "text": "CREATE VIEW v AS SELECT 'ldp.perturb(city)' AS c, city AS perturb FROM people",
    "table": "CREATE TABLE v AS SELECT ldp.perturb(city, city()) AS city FROM people",
    "generated": "CREATE TABLE v (city VARCHAR, short VARCHAR GENERATED ALWAYS AS (lower(city)))",
}


@pytest.fixture
def people(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute("CREATE TABLE people AS SELECT 'Lima' AS city")
    return con


@pytest.mark.parametrize("statement", REDRAWS.values(), ids=REDRAWS.keys())
def test_what_redraws_is_found(people: DuckDBPyConnection, statement: str) -> None:
    people.execute(statement)
    assert [finding.name for finding in lint(people)] == ["main.v"]


@pytest.mark.parametrize("statement", SOUND.values(), ids=SOUND.keys())
def test_what_does_not_is_left_alone(people: DuckDBPyConnection, statement: str) -> None:
    people.execute(statement)
    assert lint(people) == []


def test_attach_warns_of_what_is_in_the_file(tmp_path: Path) -> None:
    with ldpsql.connect(str(tmp_path / "db")) as con:
        con.execute("CREATE VIEW v AS SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))")
    with duckdb.connect(str(tmp_path / "db"), read_only=True) as con, pytest.warns(PrivacyLeakWarning, match=r"view main\.v"):
        ldpsql.attach(con)


def test_a_large_epsilon_is_warned_of_once() -> None:
    mechanism = registry().mechanism("krr(epsilon=8.125, domain=['a', 'b', 'c'])")
    with pytest.warns(PrivacyLeakWarning, match="epsilon 8.125 protects very little"):
        certify(mechanism)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certify(mechanism)
        certify(registry().mechanism("krr(epsilon=8, domain=['a', 'b', 'c'])"))


@pytest.mark.parametrize("mechanism", ["oue", "olh", "subset_selection"])
def test_reports_are_not_perturbed_again_where_their_type_tells_them(con: DuckDBPyConnection, mechanism: str) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.{mechanism}(1, ['a', 'b', 'c'])")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb('a', m()) AS report")
    with pytest.raises(duckdb.InvalidInputException, match="LDP304"):
        con.execute("SELECT ldp.perturb(report, m()) FROM reports").fetchall()
