"""Kept columns carry the values of their rows, and nothing else that Arrow holds."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ldpsql
from ldpsql import Ledger, Policy
from ldpsql.bulk.columns import kept, kept_type
from ldpsql.errors import SourceRefused

KRR = "krr(1, ['a', 'b'])"
HIDDEN = "HGFEDCBA"
NUMBER = int.from_bytes(HIDDEN.encode(), "little")
ROWS = 300
IDS = [f"person-{i:05}-of-a-long-name" for i in range(ROWS)]


def under_nulls(column: pa.Array) -> pa.Array:
    """The same buffers, with all rows NULL."""
    return pa.Array.from_buffers(
        column.type,
        len(column),
        [pa.py_buffer(bytes(len(column) // 8 + 1)), *column.buffers()[1 : column.type.num_buffers]],
        children=[column.values] if pa.types.is_list(column.type) else None,
    )


def masked() -> pd.Series:
    series = pd.Series([NUMBER] * ROWS, dtype="Int64")
    series[:] = pd.NA
    return series


HIDING: dict[str, Callable[[], Any]] = {
    "numbers under NULLs": lambda: pa.table({"n": under_nulls(pa.array([NUMBER] * ROWS))}),
    "text under NULLs": lambda: pa.table({"n": under_nulls(pa.array([HIDDEN] * ROWS))}),
    "lists under NULLs": lambda: pa.table({"n": under_nulls(pa.array([[NUMBER]] * ROWS))}),
    "in a list": lambda: pa.table({"n": pa.ListArray.from_arrays([0, ROWS], under_nulls(pa.array([NUMBER] * ROWS)))}),
    "a struct under NULLs": lambda: pa.table(
        {"n": pa.StructArray.from_arrays([pa.array([NUMBER] * ROWS)], ["x"], mask=pa.array([True] * ROWS))}
    ),
    "a dictionary": lambda: pa.table({"n": pa.DictionaryArray.from_arrays(pa.array([0] * ROWS), pa.array(["x", HIDDEN]))}),
    "pandas: NA": lambda: pd.DataFrame({"n": masked()}),
    "Polars: a part of a text": lambda: pl.DataFrame({"n": ["x" * 20 + HIDDEN] * ROWS}).select(pl.col("n").str.slice(0, 18)),
    "Polars: filtered rows": lambda: pl.DataFrame({"n": ["x" * 20, "y" * 20 + HIDDEN] * ROWS}).filter(pl.col("n") == "x" * 20),
    "metadata": lambda: pa.table({"n": [1] * ROWS}, pa.schema([pa.field("n", pa.int64(), metadata={"most": HIDDEN})])),
}


def with_city(frame: object) -> object:
    if isinstance(frame, pa.Table):
        return frame.append_column("city", pa.array(["a"] * frame.num_rows))
    return frame.assign(city="a") if isinstance(frame, pd.DataFrame) else frame.with_columns(city=pl.lit("a"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", HIDING)
def test_a_kept_column_has_only_the_values_of_its_rows(name: str, tmp_path: Path) -> None:
    frame = with_city(HIDING[name]())
    for order in ("random", "keep"):
        file = tmp_path / f"{order}.arrow"
        ldpsql.perturb_copy(duckdb.connect(), frame, file, {"city": KRR}, keep=["n"], order=order)
        assert HIDDEN.encode() not in file.read_bytes()
    stream, reader = io.BytesIO(), ldpsql.perturb_batches(frame, {"city": KRR}, keep=["n"])
    with pa.ipc.new_stream(stream, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    assert HIDDEN.encode() not in stream.getvalue()


def ids_of_views() -> pa.Array:
    return pa.array(IDS, pa.string_view())


NESTED = {
    "list views": pa.array([[i] for i in IDS], pa.list_view(pa.string())),
    "large list views of views": pa.array([[i] for i in IDS], pa.large_list_view(pa.string_view())),
    "a struct of list views": pa.array([{"x": [i]} for i in IDS], pa.struct([("x", pa.list_view(pa.string_view()))])),
    "maps of views": pa.array([[("k", i)] for i in IDS], pa.map_(pa.string(), pa.string_view())),
    "lists of a fixed size": pa.array([[i] for i in IDS], pa.list_(pa.string_view(), 1)),
    "dictionaries of views": pa.DictionaryArray.from_arrays(pa.array(range(ROWS)), ids_of_views()),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array(range(1, ROWS + 1)), ids_of_views()),
    "views": ids_of_views(),
    "JSON": pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), ids_of_views()),
}


@pytest.mark.parametrize("name", NESTED)
def test_the_bytes_of_a_file_are_in_the_order_of_the_shuffled_rows(name: str, tmp_path: Path) -> None:
    """Of 299 steps half go up, with a standard deviation of 5: the bound is 10 of them away."""
    frame = pa.table({"city": ["a"] * ROWS, "id": NESTED[name]})
    ldpsql.perturb_copy(duckdb.connect(), frame, tmp_path / "r.arrow", {"city": KRR}, keep=["id"])
    written = (tmp_path / "r.arrow").read_bytes()
    places = np.array([written.find(i.encode()) for i in IDS])
    assert places.min() > 0
    assert 100 < (np.diff(places) > 0).sum() < 200


@pytest.mark.parametrize("setting", ["produce_arrow_string_view", "arrow_output_list_view"])
def test_settings_of_the_connection_about_arrow_change_nothing(setting: str, tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute(f"SET {setting} = true")
    con.execute("CREATE TABLE t AS SELECT 'a' AS city, [i::VARCHAR] AS l, i::VARCHAR::UNION(x VARCHAR) AS u FROM range(9) t(i)")
    ldpsql.perturb_copy(con, "t", tmp_path / "r.arrow", {"city": KRR}, keep=["l", "u"])
    schema = pa.ipc.open_file(tmp_path / "r.arrow").schema
    assert schema.field("l").type.value_type == pa.string()
    assert con.execute("SELECT current_setting($1)", [setting]).fetchone() == (True,)


MIXED = [
    pa.array([None, [None, 1], [], [2]], pa.list_(pa.int64())),
    pa.array([None, [None, "x"], [], ["y"]], pa.large_list_view(pa.string_view())),
    pa.array(
        [None, {"x": None, "y": [1]}, {"x": "a", "y": None}], pa.struct([("x", pa.string_view()), ("y", pa.list_(pa.int8()))])
    ),
    pa.array([None, [("k", None)], []], pa.map_(pa.string(), pa.string_view())),
    pa.array([None, [1, None]], pa.list_(pa.int64(), 2)),
    pa.array([None, "x", "y", "x"]).dictionary_encode(),
    pa.array([None, None], pa.null()),
    pa.array([{}, None], pa.struct([])),
    pa.StructArray.from_arrays(
        [pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])], ["u"], mask=pa.array([False, True])
    ),
    pa.array([None, True, False]),
    pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]),
    pa.array([], pa.list_view(pa.string_view())),
    pa.array([], pa.map_(pa.string(), pa.string_view())),
]


@pytest.mark.parametrize("column", MIXED, ids=lambda column: str(column.type))
def test_kept_values_are_the_same(column: pa.Array) -> None:
    for rows in (column, column[1:], column[:0]):
        result = kept(rows)
        result.validate(full=True)
        assert result.type == kept_type(column.type)
        assert result.to_pylist() == rows.to_pylist()


FIRST_FILES: dict[str, tuple[pa.Array, pa.Array]] = {
    "a fraction after whole numbers": (pa.array([1, 2]), pa.array([1.5, 2.0])),
    "more digits": (pa.array([Decimal("1.1")], pa.decimal128(5, 1)), pa.array([Decimal("1.15")], pa.decimal128(5, 2))),
    "a time after days": (pa.array([date(2026, 1, 1)]), pa.array([datetime(2026, 1, 1, 5)])),
    "a number after booleans": (pa.array([True]), pa.array([5])),
    "a fraction in a list": (pa.array([[1]]), pa.array([[1.5]])),
}


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("name", FIRST_FILES)
def test_files_whose_first_one_would_change_the_values_of_another_are_refused(name: str, split: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, column in enumerate(FIRST_FILES[name]):
        drawn = pa.array(["a"] * len(column))
        pq.write_table(pa.table({"x": drawn, "k": column, "other": column}), tmp_path / "in" / f"{number}.parquet")
    out = tmp_path / ("out" if split else "out.parquet")
    with pytest.raises(SourceRefused, match=r"\[LDP520\] the column 'k' has a type in the first file .* union_by_name = true"):
        ldpsql.perturb_copy(duckdb.connect(), tmp_path / "in", out, {"x": KRR}, keep=["k"])
    assert ldpsql.perturb_copy(duckdb.connect(), tmp_path / "in", out, {"x": KRR}).rows == sum(map(len, FIRST_FILES[name]))


def test_whole_numbers_of_several_sizes_are_one_column(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int64(), pa.int16(), pa.uint32())):
        pq.write_table(pa.table({"x": ["a"], "k": pa.array([number], kind)}), tmp_path / f"{number}.parquet")
    ldpsql.perturb_copy(duckdb.connect(), tmp_path / "*.parquet", tmp_path / "out.parquet", {"x": KRR}, keep=["k"])
    assert sorted(pq.read_table(tmp_path / "out.parquet")["k"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "head", "line", "last"),
    [
        ("people.csv", "x,k\n", "a,1\n", "a,1.5\n"),
        ("people.csv", "x,k\n", "a,1\n", "a,15e-1\n"),
        ("people.csv", "x,k\n", "a,2026-01-01\n", "a,2026-01-02 05:00:00\n"),
        ("people.csv", "x,k\n", "a,31/01/2026\n", "a,31/01/2026 05:00:00\n"),
        ("people.json", "", '{"x": "a", "k": 1}\n', '{"x": "a", "k": 1.5}\n'),
        ("people.json", "", '{"x": "a", "k": 9223372036854775808}\n', '{"x": "a", "k": 1.5}\n'),
        ("people.json", "", '{"x": "a", "k": "2026-01-01"}\n', '{"x": "a", "k": "2026-01-02 05:00:00"}\n'),
    ],
)
def test_a_value_below_the_lines_that_show_the_type_of_its_column_is_kept_or_refused(
    name: str, head: str, line: str, last: str, tmp_path: Path
) -> None:
    lines, con = 25_000, duckdb.connect()
    (tmp_path / name).write_text(head + line * lines)
    assert ldpsql.perturb_copy(con, tmp_path / name, tmp_path / "out.parquet", {"x": KRR}, keep=["k"]).rows == lines
    (tmp_path / name).write_text(head + line * lines + last)
    with pytest.raises(SourceRefused, match="does every column have one type"):
        ldpsql.perturb_copy(con, tmp_path / name, tmp_path / "out.parquet", {"x": KRR}, keep=["k"], replace=True)
    (tmp_path / name).write_text(head + line + last)  # DuckDB sees both
    ldpsql.perturb_copy(con, tmp_path / name, tmp_path / "out.parquet", {"x": KRR}, keep=["k"], replace=True)
    texts = {str(value) for value in pq.read_table(tmp_path / "out.parquet")["k"].to_pylist()}
    assert len(texts) == 2
    assert any("5" in value for value in texts)


@pytest.mark.parametrize(
    ("name", "head", "line"), [("people.csv", "x,k\n", "a,{}\n"), ("people.json", "", '{{"x": "a", "k": {}}}\n')]
)
def test_folders_with_whole_numbers_in_their_names_are_a_column(name: str, head: str, line: str, tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / name).write_text(head + line.format(day + 5))
    ldpsql.perturb_copy(duckdb.connect(), tmp_path / "*" / name, tmp_path / "out.parquet", {"x": KRR}, keep=["day", "k"])
    rows = pq.read_table(tmp_path / "out.parquet").drop("x").to_pylist()
    assert sorted(rows, key=str) == [{"day": 1, "k": 6}, {"day": 2, "k": 7}]


def test_an_estimate_refuses_a_number_that_the_column_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "reports.csv").write_text("x,g\n" + "1,1\n" * 25_000 + "1.5,1\n")
    with pytest.raises(SourceRefused, match="the type of its first lines does not hold"):
        ldpsql.estimate(tmp_path / "reports.csv", "krr(1, [1, 2])", column="x", by=["g"])


CHANGED = {
    "numbers.csv": "x,g\n" + "1,1\n" * 25_000 + "1.5,1.5\n",
    "numbers.json": '{"x": 1, "g": 1}\n' * 25_000 + '{"x": 1.5, "g": 1.5}\n',
    "booleans.json": '{"x": true, "g": true}\n' * 25_000 + '{"x": 2, "g": 2}\n',
}
READING = {
    "estimate": "FROM ldp.estimate('{}', x, {})",
    "mean": "FROM ldp.mean('{}', x, {})",
    "perturb_rows": "FROM ldp.perturb_rows('{}', {{x: {}}})",
}


@pytest.mark.parametrize("file", [*CHANGED, "numbers/*.parquet"])
def test_sql_refuses_files_whose_values_duckdb_would_change(file: str, tmp_path: Path) -> None:
    place, values = tmp_path / file, "true, false" if "booleans" in file else "1, 2"
    if file in CHANGED:
        place.write_text(CHANGED[file])
    else:
        place.parent.mkdir()
        for number in (1, 1.5):
            pq.write_table(pa.table({"x": [number], "g": [number], "fine": [1]}), place.parent / f"{int(10 * number)}.parquet")
    con = ldpsql.connect()
    for name, query in READING.items():
        if name != "mean" or "booleans" not in file:
            with pytest.raises(duckdb.Error, match=r"\[LDP520\]"):
                con.sql(query.format(place, f"ldp.krr(8, [{values}])")).fetchall()
    with pytest.raises(SourceRefused):
        ldpsql.estimate_groups(con, str(place), "t", report="x", keys=["g"], mechanism=f"krr(8, [{values}])")
    cells = ldpsql.privic.start(1, range(9), columns=3)
    with pytest.raises(SourceRefused):
        ldpsql.privic.collect(str(place), tmp_path / "state.duckdb", cells, column="x::INTEGER", cycles=1)
    con = ldpsql.connect(ledger=Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget=9, privacy_unit="g")))
    for permanent in (False, True):
        with (
            pytest.raises(SourceRefused),
            ldpsql.release(con, str(place), {"x": f"ldp.krr(8, [{values}])"}, "reports", permanent=permanent),
        ):
            pass
    charge = ldpsql.Charge(Ledger.open(tmp_path / "people.ledger", Policy(epsilon_budget=9)), "people", user="g")
    with pytest.raises(SourceRefused):
        ldpsql.perturb_copy(con, place, tmp_path / "out.parquet", {"x": f"krr(8, [{values}])"}, charge=charge)
    if file not in CHANGED:
        assert con.sql(f"FROM ldp.estimate('{place}', fine, ldp.krr(1, [1, 2]))").fetchall()[0][-1] == 2


LATE = [
    ("people.csv", "2026-01-01 05:00:00", "2026-01-02 05:00:00+02:00"),
    ("people.csv", "2026-01-01 05:00:00", "2026-01-02T05:00:00Z"),
    ("people.csv", "2026-01-01 05:00:00", "2026-01-02 05:00:00.123456789"),
    ("people.csv", "2026-01-01 05:00:00+02:00", "2026-01-02 05:00:00"),
    ("people.csv", "05:00:00", "05:00:00+02:00"),
    ("people.csv", "05:00:00", "05:00:00.123456789"),
    ("people.csv", "true", "1"),
    ("people.csv", "1.5", "1152921504606846977"),
    ("people.csv", "10001", "00501"),
    ("people.json", '"2026-01-01T05:00:00Z"', '"2026-01-02T05:00:00"'),
    ("people.json", '"05:00:00"', '"05:00:00+02:00"'),
    ("people.json", "true", '"yes"'),
    ("people.json", "1.5", "1152921504606846977"),
]
LINES = {"people.csv": ("x,k\n", "a,{}\n"), "people.json": ("", '{{"x": "a", "k": {}}}\n')}


def copied(tmp_path: Path, name: str, values: list[str]) -> list[Any]:
    """The kept values of a file, which has these as text."""
    head, line = LINES[name]
    (tmp_path / name).write_text(head + "".join(map(line.format, values)))
    ldpsql.perturb_copy(duckdb.connect(), tmp_path / name, tmp_path / "out.parquet", {"x": KRR}, keep=["k"], replace=True)
    return pq.read_table(tmp_path / "out.parquet")["k"].to_pylist()


@pytest.mark.parametrize(("name", "first", "last"), LATE)
def test_a_value_that_the_type_of_the_first_lines_would_change_is_refused(
    name: str, first: str, last: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceRefused):
        copied(tmp_path, name, [first] * 25_000 + [last])
    with pytest.raises(duckdb.Error, match="the type of its first lines does not hold"):
        ldpsql.connect().sql(f"FROM ldp.perturb_rows('{tmp_path / name}', {{x: ldp.{KRR}}}, keep := ['k'])").fetchall()


@pytest.mark.parametrize(
    ("name", "first", "last", "value"),
    [
        ("people.csv", "2026-01-01 05:00:00", "2026-01-02T05:00:00.123456", datetime(2026, 1, 2, 5, 0, 0, 123456)),
        ("people.csv", "2026-01-01 05:00:00", "2026-01-02 05:00:00.123456000", datetime(2026, 1, 2, 5, 0, 0, 123456)),
        ("people.csv", "2026-01-01 05:00:00 UTC", "2026-01-02 05:00 UTC", datetime(2026, 1, 2, 5)),
        ("people.csv", "2026-01-01 05:00:00", "2026-01-02", datetime(2026, 1, 2)),
        ("people.csv", "2026-01-01T05:00:00Z", "2026-01-02T05:00:00+02:00", datetime(2026, 1, 2, 3, tzinfo=UTC)),
        ("people.csv", "31/01/2026 05:00:00", "02/01/2026 05:00:00", datetime(2026, 1, 2, 5)),
        ("people.csv", "05:00:00", "06:00:00.5", time(6, 0, 0, 500_000)),
        ("people.csv", "true", "F", False),
        ("people.csv", "t", "no", False),
        ("people.csv", "1.5", "1152921504606846976", 2.0**60),
        ("people.csv", "1", "0x10", 16),
        ("people.json", '"2026-01-01T05:00:00"', '"2026-01-02T05:00:00"', datetime(2026, 1, 2, 5)),
        ("people.json", '"2026-01-01T05:00:00.1Z"', '"2026-01-02T05:00:00Z"', datetime(2026, 1, 2, 5, tzinfo=UTC)),
        ("people.json", "1.5", "-1152921504606846976", -(2.0**60)),
    ],
)
def test_a_value_that_a_type_holds_is_kept_however_it_is_written(
    name: str, first: str, last: str, value: object, tmp_path: Path
) -> None:
    for lines in (1, 25_000):
        assert value in copied(tmp_path, name, [first] * lines + [last])


@pytest.mark.parametrize("name", ["numbers.CSV", '"numbers.CSV"', "~/numbers.CSV", "NUMBERS.CSV", "[n]umbers.CSV"])
def test_no_spelling_of_the_name_of_a_file_lets_duckdb_change_its_values(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    place = tmp_path / "there" / "NUMBERS.CSV" if name == "NUMBERS.CSV" else tmp_path / "numbers.CSV"
    place.write_text(CHANGED["numbers.csv"])
    con = ldpsql.connect()
    con.execute(f"SET home_directory = '{tmp_path}'")
    con.execute(f"SET file_search_path = '{tmp_path / 'there' if name == 'NUMBERS.CSV' else ''}'")
    for query in READING.values():
        with pytest.raises(duckdb.Error, match=r"\[LDP520\]"):
            con.sql(query.format(name, "ldp.krr(8, [1, 2])")).fetchall()
    with pytest.raises(SourceRefused):
        ldpsql.perturb_copy(con, name, tmp_path / "out.parquet", {"x": "krr(8, [1, 2])"}, keep=["g"])


def test_sql_says_in_our_words_that_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "people.csv.gz").write_text("x\na\n")
    with pytest.raises(duckdb.Error, match=r"\[LDP520\] '.*people\.csv\.gz' cannot be read\. Hint: is it complete"):
        ldpsql.connect().sql(f"FROM ldp.estimate('{tmp_path}/people.csv.gz', x, ldp.{KRR})").fetchall()


def test_a_table_goes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("x\na\n")
    con = ldpsql.connect()
    count = "SELECT count(*) FROM ldp.perturb_rows('people.csv', {x: ldp.krr(1, ['a', 'b'])})"
    assert con.sql(count).fetchall() == [(1,)]
    con.execute("CREATE SCHEMA people")
    con.execute("CREATE TABLE people.csv AS SELECT 'b' AS x FROM range(3)")
    assert con.sql(count).fetchall() == [(3,)]


def test_a_domain_is_not_changed_by_the_type_of_its_first_lines(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("code\n" + "".join(f"{code}\n" for code in range(25_000)) + "70000.6\n")
    domain = {"file": str(tmp_path / "codes.csv"), "column": "code"}
    con = ldpsql.connect(mechanisms={"code": {"mechanism": "krr", "epsilon": 1, "domain": domain}})
    with pytest.raises(duckdb.Error, match="the type of its first lines does not hold"):
        con.sql("SELECT ldp.perturb(70001, ldp.m.code())").fetchall()


@pytest.mark.parametrize(("first", "last"), [('{"a": 1}', '{"a": 1.5}'), ("[1]", "[1.5]")])
def test_numbers_within_kept_json_are_not_rounded(first: str, last: str, tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text(f'{{"x": "a", "k": {first}}}\n' * 25_000 + f'{{"x": "a", "k": {last}}}\n')
    ldpsql.perturb_copy(duckdb.connect(), tmp_path / "people.json", tmp_path / "out.parquet", {"x": KRR}, keep=["k"])
    assert "1.5" in str(pq.read_table(tmp_path / "out.parquet")["k"].to_pylist())


def test_keys_of_json_that_differ_in_case_are_two_columns(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('{"x": "a", "ID": 1, "id": 2}\n')
    ldpsql.perturb_copy(duckdb.connect(), tmp_path / "people.json", tmp_path / "out.parquet", {"x": KRR}, keep=["ID", "id_1"])
    assert pq.read_table(tmp_path / "out.parquet").drop("x").to_pylist() == [{"ID": 1, "id_1": 2}]


@pytest.mark.parametrize("number", ["7.0", "1e3", "-5", "+5", ""])
def test_whole_numbers_however_they_are_written_are_kept(number: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("x,k\n" + "a,1\n" * 25_000 + f"a,{number}\n")
    ldpsql.perturb_copy(duckdb.connect(), tmp_path / "people.csv", tmp_path / "out.parquet", {"x": KRR}, keep=["k"])
    assert set(pq.read_table(tmp_path / "out.parquet")["k"].to_pylist()) == {1, int(float(number)) if number else None}


def test_a_pattern_finds_files_only_and_a_stream_is_not_a_file(tmp_path: Path) -> None:
    con, people = duckdb.connect(), pa.table({"x": ["a", "b"]})
    (tmp_path / "in" / "day.parquet").mkdir(parents=True)
    pq.write_table(people, tmp_path / "in" / "day.parquet" / "0.parquet")
    assert ldpsql.perturb_copy(con, tmp_path / "in" / "**", tmp_path / "out.parquet", {"x": KRR}).rows == 2
    with pa.ipc.new_stream(tmp_path / "people.arrow", people.schema) as stream:
        stream.write(people)
    with pytest.raises(SourceRefused, match=r"'people\.arrow' is not a complete Arrow file\..*new_file instead of new_stream"):
        ldpsql.perturb_copy(con, tmp_path / "people.arrow", tmp_path / "out.parquet", {"x": KRR}, replace=True)
