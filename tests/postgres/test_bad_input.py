"""A database that stops in the middle, or changes types and tables, is refused in one sentence; nothing is half-written."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import ldpsql
from ldpsql.errors import DestinationRefused, LdpError, OtherMechanism, SourceRefused
from ldpsql.ledger import Ledger, Policy
from tests.postgres.servers import call, running
from tests.postgres.test_postgres import psql

ibis: Any = pytest.importorskip("ibis")
CITY = "krr(1, ['Lima', \"O'slo\", ''])"
SLOW = """CREATE TABLE rows AS SELECT i AS id, 'Lima' AS city FROM generate_series(1, 2000) AS t(i);
    CREATE VIEW slow AS SELECT * FROM rows WHERE pg_sleep(0.01) IS NOT NULL"""


def connected(server: str) -> Any:
    return ibis.postgres.connect(host=server, user="test", database="postgres")


def stopped(folder: str) -> threading.Thread:
    """Stop a server at once, as if its machine were switched off, a second from now."""

    def stop() -> None:
        time.sleep(1)
        call("pg_ctl", "-D", f"{folder}/data", "-w", "-m", "immediate", "stop")

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def started(folder: str) -> None:
    options = f"-k {folder} -c listen_addresses=''"
    call("pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "-o", options, "start")


def test_a_server_that_stops_in_the_middle_leaves_nothing(server: str, tmp_path: Path) -> None:
    with running("stopping") as folder:
        psql(folder, SLOW)
        backend = connected(folder)
        table, thread = backend.table("slow"), stopped(folder)
        with pytest.raises(SourceRefused, match="postgres could not count") as refused:
            ldpsql.estimate(table, CITY, column="city")
        thread.join()
        assert "Lima" not in str(refused.value)
        with pytest.raises(SourceRefused, match="postgres could not count"):
            ldpsql.estimate(table, CITY, column="city")
        started(folder)
        address = f"postgresql:///postgres?host={folder}&user=test"
        ledger, thread = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget="1", privacy_unit="row")), stopped(folder)
        with duckdb.connect() as con, pytest.raises((SourceRefused, DestinationRefused)) as refusal:
            ldpsql.perturb_table(
                con, f"{address}#slow", f"{address}#out", {"city": CITY}, order="keep", charge=ldpsql.Charge(ledger, "people")
            )
        thread.join()
        assert "Lima" not in str(refusal.value)
        started(folder)
        assert psql(folder, "SELECT to_regclass('out') IS NULL") == [["t"]]
        assert "published" not in [row["state"] for row in ledger.history()]


def test_a_table_that_changes_after_it_was_named_is_refused(server: str) -> None:
    psql(server, "DROP TABLE IF EXISTS moving CASCADE; CREATE TABLE moving AS SELECT 'Lima' AS city FROM generate_series(1, 9)")
    backend = connected(server)
    table = backend.table("moving")
    for change in (
        "ALTER COLUMN city TYPE int USING 7",
        "ALTER COLUMN city TYPE date USING '2026-01-01'",
        "RENAME COLUMN city TO town",
        "RENAME TO moved",
    ):
        psql(server, f"ALTER TABLE moving {change}")
        with pytest.raises(LdpError) as refused:
            ldpsql.estimate(table, CITY, column="city")
        assert "Lima" not in str(refused.value)
    psql(server, "DROP TABLE moved")
    backend.disconnect()


def test_names_with_quotes_and_capitals_are_names(server: str) -> None:
    name, column = "Re\"por'ts", "Ci\"t'y"
    quoted = {one: '"' + one.replace('"', '""') + '"' for one in (name, column, "By")}
    psql(
        server,
        f"""DROP TABLE IF EXISTS {quoted[name]}; CREATE TABLE {quoted[name]} AS
        SELECT CASE i % 3 WHEN 0 THEN 'Lima' WHEN 1 THEN 'O''slo' ELSE '' END AS {quoted[column]}, i % 2 AS {quoted["By"]}
        FROM generate_series(1, 600) AS t(i)""",
    )
    backend = connected(server)
    rows = ldpsql.estimate(backend.table(name), CITY, column=column, by="By").to_arrow()
    assert rows["By"].unique().to_pylist() == [0, 1]
    assert rows["n"].unique().to_pylist() == [300]
    psql(server, f"DROP TABLE {quoted[name]}")
    backend.disconnect()


def test_an_empty_string_that_became_null_is_refused(server: str) -> None:
    psql(
        server,
        """DROP TABLE IF EXISTS emptied; CREATE TABLE emptied AS
        SELECT nullif((ARRAY['Lima', 'O''slo', ''])[1 + i % 3], '') AS city FROM generate_series(1, 60) AS t(i)""",
    )
    backend = connected(server)
    with pytest.raises(SourceRefused, match="empty string"):
        ldpsql.estimate(backend.table("emptied"), CITY, column="city")
    backend.disconnect()


def test_times_with_a_zone_are_the_times_that_were_drawn_or_refused(server: str) -> None:
    times = "krr(1, ['2026-01-01 00:00:00', '2026-01-01 12:00:00'])"
    psql(
        server,
        """DROP TABLE IF EXISTS timed; CREATE TABLE timed AS
        SELECT (timestamp '2026-01-01' + interval '12 hours' * (i % 2)) AS plain,
        (timestamptz '2026-01-01 00:00:00+02' + interval '12 hours' * (i % 2)) AS zoned FROM generate_series(1, 60) AS t(i)""",
    )
    backend = connected(server)
    table = backend.table("timed")
    assert ldpsql.estimate(table.mutate(x=table.plain.cast("string")), times, column="x").diagnosis.reports == 60
    with pytest.raises(LdpError):
        ldpsql.estimate(table, times, column="zoned")
    backend.disconnect()


def test_unsigned_numbers_of_clickhouse_are_numbers() -> None:
    from tests.postgres.test_warehouses import in_clickhouse  # noqa: PLC0415  # it needs chdb

    backend = in_clickhouse(pa.table({"a": pa.array([1], pa.int32())})).get_backend()
    backend.raw_sql("CREATE OR REPLACE TABLE unsigned (a UInt8, b UInt64) ENGINE = Memory")
    backend.raw_sql("INSERT INTO unsigned SELECT number % 2, 5000000000 + number % 2 FROM numbers(50)")
    table = backend.table("unsigned")
    assert ldpsql.estimate(table, "krr(1, [0, 1])", column="a").diagnosis.reports == 50
    assert ldpsql.estimate(table, "krr(1, [5000000000, 5000000001])", column="b").diagnosis.reports == 50


def test_what_perturb_wrote_records_its_mechanism_for_a_table_of_ibis(server: str) -> None:
    psql(
        server, "DROP TABLE IF EXISTS raw, drawn; CREATE TABLE raw AS SELECT i % 20 AS age FROM generate_series(1, 500) AS t(i)"
    )
    address, mechanism = f"postgresql:///postgres?host={server}&user=test", f"olh(1, {list(range(20))})"
    with duckdb.connect() as con:
        ldpsql.perturb_table(con, f"{address}#raw", f"{address}#drawn", {"age": mechanism})
    backend = connected(server)
    table = backend.table("drawn")
    assert table.columns == ("age_seed", "age_y")
    assert ldpsql.estimate(table, column="age").diagnosis.record == "recorded"
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(table, f"olh(2, {list(range(20))})", column="age")
    backend.disconnect()
