"""Reports say which mechanism drew them, wherever they are kept, and no other mechanism estimates them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Counts, DenseChannel, KeepOrSpread, merge, partial_counts, partial_supports, privic
from ldpsql.channels import AnyChannel
from ldpsql.channels.exported import digest as channel_digest
from ldpsql.errors import LdpError, OtherMechanism, UnmarkedReports
from ldpsql.functions import fingerprint, registry, text_literal
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import CategoricalMechanism
from tests.commands import app

CITIES = ["Kyiv", "Lima", "Oslo", "Rome"]
DREW = f"krr(1, {CITIES})"
OTHERS = [f"krr(1.1, {CITIES})", f"krr(1, {[*CITIES, 'Bern', 'Riga']})", f"subset_selection(1, {CITIES})"]
PEOPLE = pa.table({"city": CITIES * 500, "region": ["north", "south"] * 1000})


pytestmark = pytest.mark.usefixtures("unsaid")


@pytest.fixture
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnmarkedReports)
        yield


def drawn() -> pa.Table:
    return ldpsql.perturb_batches(PEOPLE, {"city": DREW}, keep=["region"]).read_all()


def digest(mechanism: str) -> str:
    return fingerprint(registry().mechanism(mechanism)).split()[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("krr(1, ['a', 'b'])", "krr(epsilon=1.0, domain=['b', 'a'])"),  # the order of the values does not matter to krr
        ("krr(1, ['a', 'b'])", "krr(1, ['a', 'b'], nulls='as:a', outside='as:b')"),
        ("krr(1, [1.0, 2.5])", "krr(1, ['1', '2.5'])"),
    ],
)
def test_mechanisms_that_draw_alike_have_one_fingerprint(one: str, other: str) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("krr(1, ['a', 'b'])", "krr(1.000001, ['a', 'b'])"),
        ("krr(1, ['a', 'b'])", "krr(1, ['a', 'c'])"),
        ("krr(1, ['a', 'b'])", "oue(1, ['a', 'b'])"),
        ("oue(1, ['a', 'b'])", "oue(1, ['b', 'a'])"),  # a bit stands for the value at its place
        ("square_wave(1, 0, 100)", "square_wave(1, 0, 100, bins=64)"),
    ],
)
def test_mechanisms_that_draw_differently_have_different_fingerprints(one: str, other: str) -> None:
    assert digest(one) != digest(other)


def test_sql_and_python_give_the_same_fingerprint(con: DuckDBPyConnection) -> None:
    (text,) = con.execute("SELECT ldp.describe(ldp.krr(1.0, ['Rome', 'Oslo', 'Lima', 'Kyiv'])).fingerprint").fetchall()[0]
    assert text.split()[0] == digest(DREW)
    (text,) = con.execute("SELECT ldp.describe(ldp.oue(0.5, [1.50, 2])).fingerprint").fetchall()[0]
    assert text.split()[0] == digest("oue(0.5, [1.5, 2])")


@pytest.mark.parametrize(
    "call",
    [
        "ldp.krr(1, [TIMESTAMPTZ '2026-01-01 00:00:00+00', TIMESTAMPTZ '2026-01-02 00:00:00+00'])",
        "ldp.joint_krr(1, {t: [TIMESTAMPTZ '2026-01-01 00:00:00+00', TIMESTAMPTZ '2026-01-02 00:00:00+00'], n: [1, 2]})",
        "ldp.hierarchy(1, TIMESTAMPTZ '2026-01-01 00:00:00+00', TIMESTAMPTZ '2026-02-01 00:00:00+00', step := 'hour')",
    ],
)
def test_the_time_zone_of_the_session_does_not_change_the_fingerprint(call: str, con: DuckDBPyConnection) -> None:
    lines = set()
    for zone in ("UTC", "Asia/Kolkata", "America/New_York"):
        con.execute(f"SET TimeZone = '{zone}'")
        ((line,),) = con.execute(f"SELECT ldp.describe({call}).fingerprint").fetchall()
        lines.add(line.split()[0])
    assert len(lines) == 1


def test_every_mechanism_has_a_fingerprint_of_one_line_that_reads_back() -> None:
    for text in (DREW, "square_wave(1, 0, 100)", "planar_geometric(1, 5, 5, 1)", f"olh(1, {list(range(5000))})"):
        line = fingerprint(registry().mechanism(text))
        assert "\n" not in line
        assert len(line) < 1_200


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.usefixtures("silent")
def test_a_stream_and_a_table_of_arrow_keep_the_fingerprint_and_refuse_other_mechanisms(other: str) -> None:
    table = drawn()
    ldpsql.estimate(table, DREW, column="city")
    ldpsql.estimate(table.to_reader(100), DREW, column="city")
    for frame in (table, table.to_reader()):
        with pytest.raises(OtherMechanism, match="krr\\(epsilon='1'"):
            ldpsql.estimate(frame, other, column="city")


@pytest.mark.usefixtures("silent")
def test_counts_carry_the_fingerprint_and_those_of_different_mechanisms_do_not_add_up() -> None:
    counts, plain = partial_counts(drawn(), "city"), Counts.of(pa.array(CITIES), pa.array([1, 1, 1, 1]))
    for each in (counts, merge([counts, plain]), counts + counts, Counts.from_arrow(counts.to_arrow())):
        ldpsql.estimate(each, DREW)
        with pytest.raises(OtherMechanism):
            ldpsql.estimate(each, OTHERS[0])
    other = partial_counts(ldpsql.perturb_batches(PEOPLE, {"city": OTHERS[0]}), "city")
    with pytest.raises(OtherMechanism, match="do not add up"):
        merge([counts, plain, other])


def test_supports_are_counted_for_the_mechanism_that_drew_only() -> None:
    table = ldpsql.perturb_batches(PEOPLE, {"city": f"oue(1, {CITIES})"}).read_all()
    partial_supports(table, "city", f"oue(1, {CITIES})")
    with pytest.raises(OtherMechanism):
        partial_supports(table, "city", f"oue(1, {CITIES[::-1]})")


@pytest.mark.parametrize("name", ["out.parquet", "out", "out.arrow"])
@pytest.mark.usefixtures("silent")
def test_files_keep_the_fingerprint_and_the_command_line_refuses_other_mechanisms(name: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        ldpsql.perturb_copy(con, PEOPLE, tmp_path / name, {"city": DREW}, keep=["region"])
    estimate = ["estimate", str(tmp_path / name), "--column", "city", "--mechanism"]
    right = CliRunner().invoke(app, [*estimate, DREW])
    assert (right.exit_code, right.stderr) == (0, "")
    for other in OTHERS:
        refused = CliRunner().invoke(app, [*estimate, other]).exception
        assert isinstance(refused, OtherMechanism)
        assert "krr(epsilon='1'" in refused.message


@pytest.mark.usefixtures("silent")
def test_a_folder_of_partitions_keeps_the_fingerprint_in_each_file(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        ldpsql.perturb_copy(con, PEOPLE, tmp_path / "out", {"city": DREW}, keep=["region"], partition_by=["region"])
    files = [*(tmp_path / "out").rglob("*.parquet")]
    assert len(files) > 1
    for file in files:
        assert ldpsql.estimate(pq.read_table(file), DREW, column="city").diagnosis.record == "recorded"
        with pytest.raises(OtherMechanism):
            ldpsql.estimate(pq.read_table(file), OTHERS[0], column="city")


def table_of_reports(
    con: DuckDBPyConnection, name: str = "reports", mechanism: str = DREW, *, append: bool = False, replace: bool = False
) -> None:
    ldpsql.perturb_table(con, PEOPLE, name, {"city": mechanism}, keep=["region"], append=append, replace=replace)


@pytest.mark.usefixtures("silent")
def test_a_table_keeps_the_fingerprint_as_a_comment_of_its_column(con: DuckDBPyConnection) -> None:
    con.execute('CREATE SCHEMA "of city"')
    for name, sql in (("reports", "reports"), ("of city.Reports", '"of city"."Reports"')):
        table_of_reports(con, name)
        ldpsql.estimate(con.table(sql), DREW, column="city")
        for other in OTHERS:
            with pytest.raises(OtherMechanism):
                ldpsql.estimate(con.table(sql), other, column="city")
            with pytest.raises(OtherMechanism):
                ldpsql.estimate_groups(con, sql, "out", report="city", keys=["region"], mechanism=other)
    ldpsql.estimate_groups(con, "reports", "out", report="city", keys=["region"], mechanism=DREW)


@pytest.mark.usefixtures("silent")
def test_a_view_has_the_fingerprint_of_its_table(con: DuckDBPyConnection) -> None:
    table_of_reports(con)
    con.execute("CREATE VIEW north AS FROM reports WHERE region = 'north'")
    ldpsql.estimate_groups(con, "north", "out", report="city", keys=["region"], mechanism=DREW)
    with pytest.raises(OtherMechanism):
        ldpsql.estimate_groups(con, "north", "out", report="city", keys=["region"], mechanism=OTHERS[0])


@pytest.mark.usefixtures("silent")
def test_reports_are_not_appended_to_those_of_another_mechanism(con: DuckDBPyConnection) -> None:
    table_of_reports(con)
    table_of_reports(con, append=True)
    with pytest.raises(OtherMechanism):
        table_of_reports(con, mechanism=OTHERS[0], append=True)
    assert con.execute("SELECT count(*) FROM reports").fetchall() == [(2 * len(PEOPLE),)]
    ldpsql.estimate(con.table("reports"), DREW, column="city")
    table_of_reports(con, mechanism=OTHERS[0], replace=True)
    ldpsql.estimate(con.table("reports"), OTHERS[0], column="city")


def test_rows_that_nobody_knows_the_mechanism_of_get_no_fingerprint(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE old AS SELECT 'Lima' AS city, 'north' AS region")
    con.execute("CREATE TABLE empty AS FROM old LIMIT 0; COMMENT ON COLUMN empty.city IS 'where people live'")
    for name in ("old", "empty"):
        table_of_reports(con, name, append=True)
    comments = dict(con.execute("SELECT table_name, comment FROM duckdb_columns() WHERE column_name = 'city'").fetchall())
    assert comments["old"] is None
    assert comments["empty"] == f"where people live\n{fingerprint(registry().mechanism(DREW))}"


@pytest.mark.usefixtures("silent")
def test_the_command_line_compares_tables_of_a_database(tmp_path: Path) -> None:
    database = str(tmp_path / "a.duckdb")
    with duckdb.connect(database) as con:
        table_of_reports(con)
    estimate = ["estimate", "reports", "--database", database, "--column", "city", "--mechanism"]
    assert CliRunner().invoke(app, [*estimate, DREW]).stderr == ""
    assert isinstance(CliRunner().invoke(app, [*estimate, OTHERS[0]]).exception, OtherMechanism)


def test_without_a_fingerprint_a_warning_comes_once(con: DuckDBPyConnection, tmp_path: Path) -> None:
    table = drawn().replace_schema_metadata(None)
    con.register("tabled", table).execute("CREATE TABLE raw AS FROM tabled")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            ldpsql.estimate(table, DREW, column="city")
            ldpsql.estimate(con.table("raw"), DREW, column="city")
            ldpsql.estimate_groups(con, "raw", "out", report="city", keys=["region"], mechanism=DREW, replace=True)
    assert [warning.category for warning in caught] == [UnmarkedReports]
    con.execute(f"COPY raw TO '{tmp_path / 'raw.parquet'}'")
    result = CliRunner().invoke(app, ["estimate", str(tmp_path / "raw.parquet"), "--column", "city", "--mechanism", DREW])
    assert result.exit_code == 0
    assert result.stderr.count("nothing says which mechanism") == 1


@pytest.mark.usefixtures("silent")
def test_python_does_not_warn_of_what_can_hold_no_fingerprint(tmp_path: Path) -> None:
    table = drawn()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    for reports in (table["city"], table["city"].to_pylist(), frame["city"]):
        ldpsql.estimate(reports, DREW)
    ldpsql.estimate(frame, DREW, column="city")
    frame.write_csv(tmp_path / "reports.csv")
    result = CliRunner().invoke(app, ["estimate", str(tmp_path / "reports.csv"), "--column", "city", "--mechanism", DREW])
    assert result.exit_code == 0
    assert result.stderr.startswith("note: unrecorded")  # a command has no other place to say so


def released(tmp_path: Path) -> DuckDBPyConnection:
    Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=9))
    con = ldpsql.connect(ledger=tmp_path / "ledger")
    con.execute(f"CREATE MACRO city() AS ldp.krr(1, {CITIES}); CREATE TABLE people AS SELECT 'Lima' AS city FROM range(500)")
    return con


@pytest.mark.usefixtures("silent")
def test_a_release_into_a_table_writes_the_fingerprint(tmp_path: Path) -> None:
    with released(tmp_path) as con:
        with ldpsql.release(con, "people", {"city": "city()"}, "reports"):
            con.execute("CREATE TABLE reports AS SELECT ldp.perturb(city, city()) AS city FROM people")
        ldpsql.estimate(con.table("reports"), DREW, column="city")
        with pytest.raises(OtherMechanism):
            ldpsql.estimate(con.table("reports"), OTHERS[0], column="city")


def test_a_release_does_not_break_a_transaction_that_is_still_open(tmp_path: Path) -> None:
    with released(tmp_path) as con:
        con.execute("CREATE TABLE reports (city VARCHAR)")
        con.execute("BEGIN")
        with ldpsql.release(con, "people", {"city": "city()"}, "reports"):
            con.execute("INSERT INTO reports SELECT ldp.perturb(city, city()) FROM people")
        con.execute("COMMIT")
        assert con.execute("SELECT count(*) FROM reports").fetchall() == [(500,)]
        with pytest.raises(OtherMechanism):
            ldpsql.estimate(con.table("reports"), OTHERS[0], column="city")


def test_a_release_to_anything_but_a_table_is_published(tmp_path: Path) -> None:
    with released(tmp_path) as con:
        for number, destination in enumerate(
            ["s3://bucket/x.parquet", "no 'such\" table", str(tmp_path / "x.parquet"), "people"]
        ):
            with ldpsql.release(con, "people", {"city": "city()"}, destination, part=str(number)):
                con.execute("CREATE OR REPLACE TEMP TABLE t AS SELECT ldp.perturb(city, city()) FROM people")


def test_the_reports_of_a_run_of_privic_say_the_mechanism_of_each_cycle(tmp_path: Path) -> None:
    frame, state = pl.DataFrame({"cell": [0, 1, 2, 3, 4, 5] * 100}), tmp_path / "state.duckdb"
    first, second = privic.collect(frame, state, privic.start(1.5, range(6), columns=3), cycles=2)
    with duckdb.connect(str(state)) as con:
        ((comment,),) = con.execute("SELECT comment FROM duckdb_columns() WHERE column_name = 'report'").fetchall()
        assert comment.splitlines() == [fingerprint(first.mechanism), fingerprint(second.mechanism)]
        with pytest.raises(OtherMechanism, match="several mechanisms"):
            ldpsql.estimate(con.table("privic.reports"), first.mechanism, column="report")


def test_a_forged_fingerprint_is_not_repeated_in_a_message() -> None:
    secret = {"ldpsql.mechanism.city": f"ldpsql:{'0' * 32} krr(1, ['a secret', 'b'])"}
    with pytest.raises(OtherMechanism) as refused:
        ldpsql.estimate(drawn().replace_schema_metadata(secret), DREW, column="city")
    assert "secret" not in str(refused.value)
    assert isinstance(refused.value, LdpError)


def test_metadata_of_other_makers_are_no_hindrance() -> None:
    spark = {"org.apache.spark.sql.parquet.row.metadata": b'{"fields": [{"name": "city"}, 3]}', b"\xff": b"\xff"}
    assert ldpsql.estimate(drawn().replace_schema_metadata(spark), DREW, column="city").diagnosis.record == "unrecorded"
    line = fingerprint(registry().mechanism(DREW)).replace('"', '\\"')
    row = f'{{"fields": [{{"name": "city", "metadata": {{"ldpsql.mechanism": "{line}"}}}}]}}'
    spark = {"org.apache.spark.sql.parquet.row.metadata": row.encode()}
    assert ldpsql.estimate(drawn().replace_schema_metadata(spark), column="city").diagnosis.record == "recorded"


def test_sql_refuses_columns_that_another_mechanism_drew(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE MACRO drew() AS ldp.krr(1, {CITIES}); CREATE MACRO other() AS ldp.krr(2, {CITIES})")
    con.execute("CREATE TABLE people AS SELECT 'Rome' AS home FROM range(200) t(i)")
    ldpsql.perturb_table(con, "people", "reports", {"home": DREW})
    con.execute("CREATE SCHEMA s; CREATE TABLE s.reports AS FROM reports; CREATE VIEW chosen AS FROM reports")
    for name in ("reports", '"Reports"', "main.reports", "memory.reports", "memory.main.reports", "chosen", "main.chosen"):
        query = f"SELECT count(*) FROM ldp.estimate({name}, Home, {{}}())"
        assert con.execute(query.format("drew")).fetchall() == [(4,)]
        with pytest.raises(duckdb.Error, match="LDP408"):
            con.execute(query.format("other")).fetchall()
    con.execute("CREATE TEMP TABLE hidden AS FROM main.reports; ALTER TABLE hidden RENAME TO reports")
    con.execute("CREATE TEMP TABLE chosen AS FROM reports")
    for unknown in ("s.reports", "chosen", "reports"):
        assert con.execute(f"SELECT count(*) FROM ldp.estimate({unknown}, home, other())").fetchall() == [(4,)]


@pytest.mark.parametrize("columns", ["c", "{c: c}", "[c]", "ldp.counts(c)"])
def test_reports_of_one_mechanism_in_two_fields_are_refused_instead_of_counted_by_half(
    con: DuckDBPyConnection, columns: str
) -> None:
    con.execute("CREATE TABLE people AS SELECT 'Lima' AS c FROM range(9)")
    for name, domain in (("one", "['Lima', 'Oslo']"), ("other", "['Oslo', 'Lima']")):
        con.execute(f"CREATE TABLE {name} AS FROM ldp.perturb_rows(people, {{c: ldp.krr(1, {domain})}})")
    con.execute("CREATE VIEW both_drew AS FROM one UNION ALL FROM other")
    with pytest.raises(duckdb.Error, match=r"LDP408.*order.*struct_extract_at"):
        con.execute(f"SELECT ldp.ibu({columns}) FROM both_drew")
    for query in ("FROM ldp.estimate(both_drew, c)", "SELECT ldp.ibu(c, ldp.krr(1, ['Lima', 'Oslo'])) FROM both_drew"):
        with pytest.raises(duckdb.Error, match="LDP408"):
            con.execute(query)
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(con.table("both_drew"), column="c")


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("unsaid")
def test_a_warning_that_a_filter_makes_an_error_stays_what_it_is() -> None:
    with pytest.raises(UnmarkedReports, match="nothing says which mechanism drew these reports"):
        ldpsql.estimate(drawn().replace_schema_metadata(None), DREW, column="city")


class Coin(CategoricalMechanism):
    """A coin of a plugin."""

    name = "coin"

    def channel(self) -> AnyChannel:
        return KeepOrSpread.within(len(self.domain), Fraction(5, 2))


class ChangedCoin(Coin):
    """The same coin in the next version of the plugin."""

    def channel(self) -> AnyChannel:
        return KeepOrSpread.within(len(self.domain), Fraction(2))


def test_a_plugin_that_draws_otherwise_with_the_same_parameters_is_noticed_and_old_records_are_not() -> None:
    old, new = (kind(epsilon=1, domain=["Lima", "Oslo"]) for kind in (Coin, ChangedCoin))
    line, changed = fingerprint(old), fingerprint(new)
    assert line.split(".")[0] == changed.split(".")[0]
    stored = ldpsql.perturb_batches(pl.DataFrame({"city": ["Lima"] * 9}), {"city": old}).read_all()
    ldpsql.estimate(stored, old, column="city")
    with pytest.raises(OtherMechanism, match="with other probabilities than it has now"):
        ldpsql.estimate(stored, new, column="city")
    with pytest.raises(OtherMechanism, match="several mechanisms"):
        estimate_commented(stored, f"{line}\n{changed}", new)
    before = re.sub(r"\.[0-9a-f]{16}", "", line)  # as it was written before there were digits of the channel
    for mechanism in (old, new):
        estimate_commented(stored, before, mechanism)
        estimate_commented(stored, f"{before}\n{fingerprint(mechanism)}", mechanism)


def estimate_commented(reports: pa.Table, comment: str, mechanism: CategoricalMechanism) -> None:
    """Estimate from a table of DuckDB whose column has this comment."""
    with duckdb.connect() as con:
        con.register("drawn", reports)
        con.execute(f"CREATE TABLE reports AS FROM drawn; COMMENT ON COLUMN reports.city IS {text_literal(comment)}")
        ldpsql.estimate(con.table("reports"), mechanism, column="city")


def test_reports_are_not_appended_to_those_of_the_same_plugin_that_drew_otherwise(con: DuckDBPyConnection) -> None:
    old, new = (kind(epsilon=1, domain=["Lima", "Oslo"]) for kind in (Coin, ChangedCoin))
    frame = pl.DataFrame({"city": ["Lima"] * 9})
    ldpsql.perturb_table(con, frame, "coins", {"city": old})
    ldpsql.perturb_table(con, frame, "coins", {"city": old}, append=True)
    with pytest.raises(OtherMechanism):
        ldpsql.perturb_table(con, frame, "coins", {"city": new}, append=True)


def test_the_last_digits_of_a_table_which_differ_between_machines_do_not_change_its_digest() -> None:
    weights = np.array([[3 << 61, 5 << 61], [5 << 61, 3 << 61]], dtype=np.uint64)
    nudged = weights + np.array([[1, -1], [-1, 1]], dtype=np.int64).astype(np.uint64)
    moved = weights + (np.array([[1, -1], [-1, 1]], dtype=np.int64) << 42).astype(np.uint64)
    table, same, other = (channel_digest(DenseChannel(each)) for each in (weights, nudged, moved))
    assert table == same
    assert table != other
