"""Mechanisms that are declared once, whose domains are columns of tables and files."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import polars as pl
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.engine import sql_struct
from ldpsql.errors import InvalidDomain, InvalidParameter, OtherMechanism, SourceRefused, UnknownName
from ldpsql.functions import Registry, registry
from tests.commands import python, run

SIZE = 5_000  # more than a list in SQL may have
DECLARE = "SELECT ldp.declare('item', ldp.krr(8, list(item ORDER BY item))) FROM items"
AGAIN = DECLARE.replace("))) FROM", ")), replace := true) FROM")
TYPES = {
    "VARCHAR": "'it''s ' || i",
    "SMALLINT": "i", "INTEGER": "i", "BIGINT": "i", "UINTEGER": "i", "HUGEINT": "i",
    "DOUBLE": "i / 7", "FLOAT": "i / 8",
    "DECIMAL(9,2)": "i / 4", "DATE": "DATE '2020-01-01' + i::INTEGER", "BOOLEAN": "i % 2 = 0",
    "TIMESTAMP": "make_timestamp(i * 1000000 + 1)", "TIMESTAMPTZ": "to_timestamp(i)", "TIMESTAMP_NS": "make_timestamp_ns(i)",
    "ENUM('a', 'b', 'c')": "chr((97 + i % 3)::INTEGER)",
}  # fmt: skip

OTHER = {"ENUM('a', 'b', 'c')": "VARCHAR[]", "HUGEINT": "DECIMAL(38,0)[]", "FLOAT": "DOUBLE[]"}  # what Python has for them


@pytest.fixture
def con() -> DuckDBPyConnection:
    con = ldpsql.connect()
    con.execute(f"CREATE TABLE items AS SELECT 'item ' || i AS item FROM range({SIZE}) t(i)")
    return con


def values(con: DuckDBPyConnection, report: str, mechanism: str) -> list[Any]:
    """Return the values of a mechanism, in their order."""
    rows = con.execute(f"SELECT unnest(ldp.inv({report}, {mechanism}), recursive := true)").fetchall()
    return [row[0] for row in rows]


def words_of(con: DuckDBPyConnection) -> list[str]:
    return [word for (word,) in con.execute("SELECT item FROM items ORDER BY item").fetchall()]


def one(con: DuckDBPyConnection, sql: str) -> object:
    ((value,),) = con.execute(sql).fetchall()
    return value


def test_a_declared_mechanism_gives_the_estimates_of_its_constructor(con: DuckDBPyConnection) -> None:
    con.execute(DECLARE)
    con.execute("CREATE TABLE reports AS SELECT item AS y FROM items, range(3) UNION ALL SELECT 'item 7' FROM range(500)")
    listed = "(SELECT list(item ORDER BY item) FROM items)"
    for call in ("ldp.inv", "ldp.ibu", "ldp.base_cut"):
        expected = con.execute(f"SELECT unnest({call}(y, ldp.krr(8, {listed}))) FROM reports").fetchall()
        assert expected == con.execute(f"SELECT unnest({call}(y, ldp.declared('ITEM'))) FROM reports").fetchall()


def test_values_keep_their_type_and_reports_are_values(con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_struct, "LONG", 1)
    con.execute(DECLARE)
    for sql_type, value in TYPES.items():
        con.execute(f"CREATE OR REPLACE TABLE items AS SELECT DISTINCT ({value})::{sql_type} AS item FROM range(20) t(i)")
        con.execute(AGAIN)
        typed = one(con, "SELECT typeof(list(item)) FROM items")
        con.execute("CREATE OR REPLACE TABLE r AS SELECT ldp.perturb(item, ldp.declared('item')) AS y FROM items, range(50)")
        assert one(con, "SELECT count(*) FROM r WHERE y NOT IN (SELECT item FROM items) OR y IS NULL") == 0
        con.execute("CREATE OR REPLACE TABLE rows AS SELECT unnest(ldp.ibu(y, ldp.declared('item')), recursive := true) FROM r")
        kept = "(SELECT list(value) FROM rows)", "ldp._domain(ldp.declared('item'))"
        for values in kept:
            assert one(con, f"SELECT {values}::VARCHAR = list(item ORDER BY item)::VARCHAR FROM items")
            assert one(con, f"SELECT typeof({values})") == OTHER.get(sql_type, typed)


def test_what_becomes_of_the_table_later_changes_nothing_until_it_is_declared_again(con: DuckDBPyConnection) -> None:
    first = one(con, DECLARE)
    con.execute("DELETE FROM items WHERE item < 'item 3'")
    assert one(con, "SELECT fingerprint FROM ldp.declared()") == first
    assert one(con, "SELECT len(ldp.inv('item 3', ldp.declared('item')))") == SIZE
    assert one(con, AGAIN) != first
    left = one(con, "SELECT count(*) FROM items")
    con.execute("DROP TABLE items")
    assert one(con, "SELECT len(ldp.inv('item 3', ldp.declared('item')))") == left


def test_a_prepared_statement_keeps_the_mechanism_that_it_was_prepared_with(con: DuckDBPyConnection) -> None:
    con.execute(DECLARE)
    con.execute("PREPARE q AS SELECT len(ldp.inv(y, ldp.declared('item'))) FROM (SELECT 'item 3' AS y)")
    con.execute("DELETE FROM items WHERE item = 'item 1'")
    con.execute(AGAIN)
    assert one(con, "EXECUTE q") == SIZE


def test_a_declared_name_keeps_its_mechanism_unless_it_is_to_be_replaced(con: DuckDBPyConnection) -> None:
    first = one(con, DECLARE)
    assert one(con, DECLARE) == first  # the same mechanism
    con.execute("INSERT INTO items VALUES ('item new')")
    for instead in ("false", "NULL"):
        with pytest.raises(duckdb.Error, match=r"LDP103.*another version.*replace := true"):
            con.execute(AGAIN.replace("true", instead))
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute("SELECT ldp.declare('ITEM', ldp.krr(7, ['a', 'b']))")
    assert one(con, "SELECT fingerprint FROM ldp.declared()") == first
    assert one(con, AGAIN) == one(con, "SELECT fingerprint FROM ldp.declared()") != first


@pytest.mark.parametrize("long", [1, sql_struct.LONG])
def test_whole_numbers_above_2_to_63_are_declared(long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_struct, "LONG", long)
    con = ldpsql.connect()
    con.execute("SELECT ldp.declare('u', ldp.krr(32, [18446744073709551615, 3, 9223372036854775808]::UBIGINT[]))")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb(18446744073709551615::UBIGINT, ldp.declared('u')) AS y FROM range(9)")
    assert con.sql("SELECT DISTINCT y, typeof(y) FROM r").fetchall() == [(2**64 - 1, "UBIGINT")]
    assert one(con, "SELECT ldp.inv(y, ldp.declared('u'))[1].value FROM r") == 2**64 - 1


def test_reports_of_another_version_of_the_domain_are_refused(con: DuckDBPyConnection) -> None:
    con.execute(DECLARE)
    ldpsql.perturb_table(con, "items", "reports", {"item": "item"})
    estimate = "FROM ldp.estimate(reports, item, ldp.declared('item'), estimator := 'inv')"
    con.execute(estimate)
    con.execute("INSERT INTO items VALUES ('item new')")
    con.execute(AGAIN)
    with pytest.raises(duckdb.Error, match=r"LDP408.*another version of its domain"):
        con.execute(estimate)


def test_each_database_has_its_own_names_and_cursors_share_them() -> None:
    connections = [ldpsql.connect() for _ in range(4)]

    def declare(con: DuckDBPyConnection, size: int) -> None:
        for _ in range(5):
            con.execute(f"SELECT ldp.declare('item', ldp.krr(1, range({size})))")

    threads = [Thread(target=declare, args=(con, 10 + n)) for n, con in enumerate(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, con in enumerate(connections):
        assert one(con.cursor(), "SELECT ldp.\"describe\"(ldp.declared('item')).inputs") == 10 + n
        assert one(con, 'SELECT "values" FROM ldp.declared()') == 10 + n


def test_a_declaration_survives_attach_and_rollback_and_needs_no_writable_database(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "w.duckdb")).close()
    con = ldpsql.connect(str(tmp_path / "w.duckdb"), read_only=True)
    con.execute("BEGIN")
    con.execute("SELECT ldp.declare('item', 'krr(1, [1, 2])')")
    con.execute("ROLLBACK")
    ldpsql.attach(con)
    assert one(con, "SELECT ldp.perturb(1, ldp.declared('item'))") in (1, 2)
    con.close()
    with ldpsql.connect(str(tmp_path / "w.duckdb")) as again, pytest.raises(duckdb.Error, match="LDP201"):
        again.execute("SELECT ldp.perturb(1, ldp.declared('item'))")


@pytest.mark.parametrize("name", ["it's", 'a"b', "", "a b", "a; DROP TABLE items", "x" * 64])
def test_a_name_has_letters_digits_and_underscores(con: DuckDBPyConnection, name: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute("SELECT ldp.declare($1, ldp.krr(1, [1, 2]))", [name])
    assert one(con, "SELECT count(*) FROM ldp.declared()") == 0


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT ldp.declared('nothing')", "LDP201.*no such declared"),
        ("SELECT ldp.declare('item', NULL)", "LDP104"),
        ("SELECT ldp.declare(NULL, ldp.krr(1, [1, 2]))", "LDP103"),
        ("SELECT ldp.declare('item', ldp.krr(1, [1, 1]))", "LDP102.*twice"),
        ("SELECT ldp.declare('item', ldp.krr(1, (SELECT list(nullif(item, 'item 1')) FROM items)))", "LDP102.*NULL"),
        ("SELECT ldp.declare('item', ldp.krr(1, (SELECT list(item) FROM items WHERE false)))", "LDP103.*domain"),
        ("SELECT ldp.declare('item', ldp.exponential(1, (SELECT list(item) FROM items), columns := 1))", "LDP103.*4096"),
    ],
)  # fmt: skip
def test_what_cannot_be_declared_is_refused(con: DuckDBPyConnection, sql: str, said: str) -> None:
    with pytest.raises(duckdb.Error, match=said):
        con.execute(sql)
    assert one(con, "SELECT count(*) FROM ldp.declared()") == 0


def test_a_mechanism_of_another_process_is_refused(tmp_path: Path) -> None:
    script = f"""
import ldpsql
con = ldpsql.connect({str(tmp_path / "db")!r})
con.execute("CREATE TABLE items AS SELECT 'declared there ' || i AS item FROM range({SIZE}) t(i)")
con.execute("{DECLARE}")
con.execute("CREATE TABLE stored AS SELECT ldp.declared('item') AS m")
"""
    assert python(script).returncode == 0
    with (
        ldpsql.connect(str(tmp_path / "db")) as con,
        pytest.raises(duckdb.Error, match=r"LDP104.*another process.*declare it again"),
    ):
        con.execute("SELECT ldp.perturb('declared there 1', (SELECT m FROM stored))")


def test_a_list_replaces_a_long_domain(con: DuckDBPyConnection) -> None:
    con.execute(DECLARE)
    made = "struct_update(ldp.declared('item'), \"domain\" := ['a', 'b'])"
    assert one(con, f'SELECT ldp."describe"({made}).inputs') == 2


def settings(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry()
    (folder / "ldpsql.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    loaded = Registry.load()
    monkeypatch.setattr("ldpsql.sql.named.registry", lambda: loaded)
    monkeypatch.setattr("ldpsql.sql.surface.registered", lambda: loaded)


ITEM = '[mechanisms.item]\nmechanism = "krr"\nepsilon = 4\ndomain = '


def test_the_settings_name_a_column_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = pl.DataFrame({"item": [f"item {n}" for n in range(SIZE)]})
    (tmp_path / "data").mkdir()
    words.sample(fraction=1, shuffle=True).write_parquet(tmp_path / "data" / "items.parquet")
    (tmp_path / "deeper").mkdir()
    settings(tmp_path, ITEM + '{file = "data/items.parquet", column = "item"}', monkeypatch)
    monkeypatch.chdir(tmp_path / "deeper")
    with ldpsql.connect() as con:
        assert values(con, "'item 1'", "ldp.m.item()") == sorted(words["item"])
    loaded = Registry.load()
    assert loaded.mechanism("item") is loaded.mechanism("item")


def test_the_settings_name_a_column_of_a_table_that_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(tmp_path, ITEM + '{table = "shop.items", column = "id", order = "place"}', monkeypatch)
    with ldpsql.connect() as con:
        with pytest.raises(duckdb.Error, match=r"LDP520.*shop\.items.*attach ldpsql again"):
            con.execute("SELECT ldp.perturb(1, ldp.m.item())")
        con.execute("CREATE SCHEMA shop; CREATE VIEW shop.items AS SELECT i AS id, -i AS place FROM range(3) t(i)")
        ldpsql.attach(con)
        assert values(con, "1::BIGINT", "ldp.m.item()") == [2, 1, 0]
        assert one(con, "SELECT ldp.perturb(1, ldp.m.item())") in (0, 1, 2)
    with pytest.raises(SourceRefused, match="no database is open"):
        Registry.load().mechanism("item")


def test_only_the_mechanism_of_a_changed_table_is_refused() -> None:
    changed = {"mechanism": "krr", "epsilon": 1, "domain": {"table": "items", "column": "item", "fingerprint": "0"}}
    absent = changed | {"domain": {"table": "absent", "column": "item"}}
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE items AS SELECT unnest(['a', 'b']) AS item")
        ldpsql.attach(con, mechanisms={"changed": changed, "absent": absent, "item": "krr(1, ['a', 'b'])"})
        assert one(con, "SELECT ldp.perturb('a', ldp.m.item())") in ("a", "b")
        with pytest.raises(duckdb.Error, match=r"LDP408\] the domain in the table 'items' is not .*fingerprint is now"):
            con.execute("SELECT ldp.perturb('a', ldp.m.changed())")
        with pytest.raises(OtherMechanism, match=r"not the version.*its fingerprint is now"):
            ldpsql.perturb_table(con, "items", "reports", {"item": "changed"})
        with pytest.raises(SourceRefused, match=r"'item' of the table 'absent' cannot be read.*attach ldpsql again"):
            ldpsql.perturb_table(con, "items", "reports", {"item": "absent"})


def test_the_list_of_an_empty_table_is_refused_in_words_that_explain_it(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP103\] krr needs the parameter domain, which is missing or NULL\. Hint: krr\("):
        con.execute("SELECT ldp.declare('none', ldp.krr(4, list(item ORDER BY item))) FROM items WHERE false")


REFERENCES = {
    "{'table': 'no items', 'column': 'item'}": (SourceRefused, "cannot be read"),
    "{'table': 'items', 'column': 'no'}": (SourceRefused, "cannot be read"),
    "{'table': 'items; DROP TABLE items', 'column': 'item'}": (SourceRefused, "cannot be read"),
    "{'table': 'items', 'column': 'item\" FROM items; --'}": (SourceRefused, "cannot be read"),
    "{'table': 'items'}": (InvalidDomain, "name of its column"),
    "{'table': 'items', 'file': 'items.csv', 'column': 'item'}": (InvalidDomain, "the table or the file"),
    "{'table': 'items', 'column': 1}": (InvalidDomain, "the table or the file"),
    "{'table': 'items', 'column': 'item', 'where': 'x'}": (InvalidDomain, "the table or the file"),
    "{'file': 'nothing.parquet', 'column': 'item'}": (SourceRefused, "no file"),
    "{'table': 'items', 'column': 'item', 'fingerprint': '0'}": (OtherMechanism, "not the version"),
    "{'table': 'twice', 'column': 'item'}": (InvalidDomain, "twice"),
    "{'table': 'missing', 'column': 'item'}": (InvalidDomain, "NULL"),
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_column_that_cannot_be_a_domain_is_refused_without_its_values(con: DuckDBPyConnection, reference: str) -> None:
    con.execute("CREATE VIEW twice AS FROM items UNION ALL FROM items")
    con.execute("CREATE VIEW missing AS SELECT nullif(item, 'item 1') AS item FROM items")
    kind, said = REFERENCES[reference]
    with pytest.raises(kind, match=said) as refusal:
        ldpsql.perturb_table(con, "items", "reports", {"item": f"krr(1, {reference})"})
    assert "item 1" not in f"{refusal.value} {refusal.value.hint}"
    assert refusal.value.hint


def test_only_the_owner_of_the_process_names_files() -> None:
    for text in (
        "krr(1, {'file': '/etc/passwd', 'column': 'column0'})",
        {"mechanism": "krr", "epsilon": 1, "domain": {"file": "x"}},
    ):
        with pytest.raises(InvalidDomain, match="list of values here, not the name of a table or a file"):
            registry().mechanism(text)
    with ldpsql.connect() as con, pytest.raises(duckdb.Error, match="LDP102"):
        con.execute("SELECT ldp.perturb('a', 'krr(1, {''file'': ''/etc/passwd'', ''column'': ''column0''})')")


@pytest.mark.parametrize("name", ["a.b", 'quo"te', "it's", "UPPER case", "select"])
def test_tables_of_any_name_hold_domains(con: DuckDBPyConnection, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    con.execute(f"CREATE TABLE {quoted} AS FROM items")
    domain = {"table": quoted, "column": "item"}
    ldpsql.attach(con, mechanisms={"item": {"mechanism": "krr", "epsilon": 1, "domain": domain}})
    assert values(con, "'item 1'", "ldp.m.item()") == words_of(con)


def test_a_domain_is_any_column_of_python(con: DuckDBPyConnection) -> None:
    words, frame = words_of(con), con.sql("SELECT item FROM items ORDER BY item")
    for column in (words, frame.pl()["item"], frame.df()["item"], frame.to_arrow_table().column("item")):
        made = registry().mechanism({"mechanism": "krr", "epsilon": 4, "domain": column})
        assert made.values().listed.texts == words
        ldpsql.attach(con, mechanisms={"item": made})
        assert one(con, "SELECT len(ldp.inv('item 1', ldp.m.item()))") == SIZE


def test_a_long_domain_is_not_in_the_plan_of_a_query(con: DuckDBPyConnection) -> None:
    con.execute(DECLARE)
    con.execute("CREATE VIEW shares AS SELECT unnest(ldp.inv(item, ldp.declared('item')), recursive := true) FROM items")
    plan = "".join(str(row) for row in con.execute("EXPLAIN FROM shares").fetchall())
    assert "item 17" not in plan
    assert one(con, "SELECT count(*) FROM shares") == SIZE


def test_the_command_line_reads_domains_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"item": [f"item {n}" for n in range(SIZE)]}).write_parquet("items.parquet")
    mechanism = "krr(epsilon=4, domain={'file': 'items.parquet', 'column': 'item'})"
    assert run("perturb", "items.parquet", "reports.parquet", "-c", "item", "-m", mechanism).returncode == 0
    estimated = run("estimate", "reports.parquet", "-c", "item", "-m", mechanism, "--estimator", "inv", "--format", "csv")
    assert estimated.returncode == 0, estimated.stderr
    assert len(estimated.stdout.splitlines()) == SIZE + 1
    pl.DataFrame({"item": [f"item {n}" for n in range(SIZE + 1)]}).write_parquet("items.parquet")
    refused = run("estimate", "reports.parquet", "-c", "item", "-m", mechanism)
    assert refused.returncode == 5
    assert "LDP408" in refused.stderr


def test_unknown_names_are_proposed(con: DuckDBPyConnection) -> None:
    con.execute(DECLARE)
    with pytest.raises(duckdb.Error, match="did you mean 'item'"):
        con.execute("SELECT ldp.declared('itme')")
    with pytest.raises(UnknownName):
        ldpsql.perturb_table(con, "items", "reports", {"item": "itme"})


def test_a_name_of_the_settings_that_is_declared_too_is_refused_in_python() -> None:
    with ldpsql.connect(mechanisms={"city": "krr(0.01, ['a', 'b'])"}) as con:
        con.execute("SELECT ldp.declare('CITY', ldp.krr(20, ['a', 'b']))")
        con.execute("CREATE TABLE p AS SELECT 'a' AS w FROM range(10)")
        with pytest.raises(InvalidParameter, match="both name this mechanism"):
            ldpsql.perturb_table(con, "p", "o", {"w": "city"})


def test_a_name_that_comes_from_a_column_is_in_no_message(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error) as caught:
        con.execute("SELECT system.main.__ldp_declared_values('SeCrEt' || i, ldp._catalog()) FROM range(3) t(i)").fetchall()
    assert "SeCrEt" not in str(caught.value)


def test_versions_of_a_very_long_domain_are_not_estimated_together(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO levels() AS MAP {'1': ldp.olh(1, range(5000), outside := 'as:0'), '2': ldp.olh(1, range(5001))}")
    con.execute("CREATE MACRO m() AS ldp.olh(1, range(5000), outside := 'as:0')")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb(i % 9, m()) AS x, '1' AS v FROM range(99) t(i)")
    with pytest.raises(duckdb.Error, match=r"LDP103.*versions of a domain"):
        con.execute("SELECT ldp.ibu({level: v, report: x}, levels()) FROM r").fetchall()
