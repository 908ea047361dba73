"""The order of rows says nothing about values: all orders are equally likely, in files, folders and tables."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from datetime import date
from math import factorial, prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from scipy.stats import chi2

from ldpsql import perturb_copy, perturb_table
from ldpsql.bulk.orders import Scattered, cells_of, permutation, random_arrangement, rows_of, scatter
from ldpsql.bulk.sinks import Form
from ldpsql.channels import Weights
from ldpsql.errors import InvalidParameter, SourceRefused
from tests import seeds

CITY = "krr(epsilon=1, domain=['Lima', 'Oslo'])"
ROWS, FILES = 40_000, 8
FALSE_ALARM = 1e-6


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBPyConnection]:
    """Give a source that is sorted by the secret, and in files each of which has one value."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("people.duckdb") as con:
        con.execute(
            f"CREATE TABLE people AS SELECT i AS id, ['Lima', 'Oslo'][1 + i * 2 // {ROWS}] AS city FROM range({ROWS}) t(i)"
        )
        Path("in").mkdir()
        for file in range(FILES):
            con.execute(f"COPY (FROM people WHERE id * {FILES} // {ROWS} = {file}) TO 'in/{file}.parquet'")
        con.execute("COPY people TO 'in.csv'")
        yield con


def equally_likely(counts: Counter[Any], kinds: int) -> bool:
    """Whether counts of so many kinds fit equal probabilities; fails those that do with probability 1e-6."""
    expected = counts.total() / kinds
    statistic = sum((counts[kind] - expected) ** 2 / expected for kind in counts) + (kinds - len(counts)) * expected
    return bool(statistic < chi2.isf(FALSE_ALARM, kinds - 1))


def says_nothing(reports: list[str]) -> bool:
    """Whether the share of a report is the same in 20 stretches of rows; fails shuffled rows with probability about 1e-6."""
    lima = np.array([report == "Lima" for report in reports], dtype=np.float64)
    shares, p = np.array([part.mean() for part in np.array_split(lima, 20)]), lima.mean()
    statistic = (len(lima) / 20 * (shares - p) ** 2 / (p * (1 - p))).sum()
    return bool(statistic < chi2.isf(FALSE_ALARM, 19))


# --- every order is equally likely ---


def tied(count: int) -> Weights:
    """Return words of which those for the digits are all the same, so that only ties are left to be told apart."""
    return np.zeros(count, dtype=np.uint64) if count == 1 else seeds.words(count)


@pytest.mark.parametrize("words", [seeds.words, tied])
def test_all_orders_of_four_are_equally_likely(words: Any) -> None:
    orders = Counter(tuple(permutation(4, words).to_pylist()) for _ in range(2_000))
    assert equally_likely(orders, 24)


@pytest.mark.parametrize("counts", [(1, 1, 1), (0, 2, 1, 1), (40, 1)])
def test_all_arrangements_of_numbers_are_equally_likely(counts: tuple[int, ...]) -> None:
    """Few numbers fill blank positions only; of 41 positions most are drawn from a table."""
    drawn = [random_arrangement(np.array(counts)).tolist() for _ in range(2_000)]
    assert all(np.bincount(one, minlength=len(counts)).tolist() == list(counts) for one in drawn)
    orders = Counter(tuple(one) for one in drawn)
    assert equally_likely(orders, factorial(sum(counts)) // prod(map(factorial, counts)))


COLUMNS = {"cells": pa.array([1, 2, 3]), "others": pa.array(["1", "2", "3"])}


def shuffled(values: pa.Array, buckets: int) -> tuple[object, ...]:
    with TemporaryFile() as file:
        batch = pa.record_batch([values], ["x"])
        scatter([batch.slice(0, 2), batch.slice(2)], batch.schema, file, buckets)
        batches = list(Scattered([file]).shuffled(range(buckets)))
    return tuple(itertools.chain.from_iterable(batch["x"].to_pylist() for batch in batches))


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("settings", [{}, {"BUCKET_ROWS": 1}, {"BUCKET_BYTES": 8}, {"BLOCK_ROWS": 1}])
def test_scattered_rows_come_in_all_orders_equally_likely(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, int], values: pa.Array
) -> None:
    for name, value in settings.items():
        monkeypatch.setattr(f"ldpsql.bulk.orders.{name}", value)
    assert equally_likely(Counter(shuffled(values, 4) for _ in range(300)), 6)


NUMBERS = [[7, 8, 9], [1.5, float("nan"), -0.0], [date(2026, 1, day) for day in (1, 2, 3)]]
OTHERS = [[1, None, 3], ["a", "b", ""], [True, False, True], [pa.MonthDayNano([1, 2, 3])] * 3]


@pytest.mark.parametrize("column", [*NUMBERS, *OTHERS], ids=str)
def test_rows_are_cells_if_and_only_if_they_are_of_numbers_without_null(column: list[Any]) -> None:
    rows = pa.record_batch([pa.array(range(4), pa.uint8()), pa.array([column[0], *column])], ["position", "kept"]).slice(1)
    cells = cells_of(rows)
    if column in OTHERS:
        assert cells is None
    else:
        assert cells is not None
        assert repr(rows_of(cells, rows.schema).to_pydict()) == repr(rows.to_pydict())


# --- what goes out ---


def reports_in(db: DuckDBPyConnection, out: str) -> list[str]:
    if out.endswith(".arrow"):
        return list(pa.ipc.open_file(out).read_all()["city"].to_pylist())
    files = sorted(Path(out).rglob("*.parquet")) if Path(out).is_dir() else [out]
    read = (db.cursor().execute(f"SELECT city FROM '{file}'").fetchall() for file in files)
    return [city for (city,) in itertools.chain.from_iterable(read)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reports of the tests need several files and buckets."""
    monkeypatch.setattr("ldpsql.bulk.orders.FILE_BYTES", 100_000)
    monkeypatch.setattr("ldpsql.bulk.orders.BUCKET_ROWS", 1_000)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("out", ["out.parquet", "out.csv", "out.arrow", "out"])
@pytest.mark.parametrize("source", ["people", "in", "in.csv"])
def test_where_a_report_stands_says_nothing_about_its_value(db: DuckDBPyConnection, source: str, out: str) -> None:
    perturb_copy(db, source, out, {"city": CITY}, keep=["id"])
    assert len(reports_in(db, out)) == ROWS
    assert says_nothing(reports_in(db, out))
    if out == "out":
        assert len(list(Path(out).iterdir())) not in (1, FILES)  # files of buckets, not of files of the source


def test_a_table_says_nothing_by_its_order_either(db: DuckDBPyConnection) -> None:
    for step in range(2):
        perturb_table(db, "people", "reports", {"city": CITY}, append=step > 0)
        rows = db.execute(f"SELECT city FROM reports OFFSET {step * ROWS}").fetchall()
        assert len(rows) == ROWS
        assert says_nothing([city for (city,) in rows])


def test_a_frame_of_polars_says_nothing_by_its_order_either(db: DuckDBPyConnection) -> None:
    frame = db.table("people").pl()
    drawn = frame.ldp.perturb({"city": CITY}, keep=["id"])
    assert drawn.columns == frame.columns
    assert says_nothing(drawn["city"].to_list())
    assert says_nothing(["Lima" if i < ROWS // 2 else "Oslo" for i in drawn["id"]])
    assert sorted(drawn["id"]) == list(range(ROWS))
    exact = CITY.replace("epsilon=1", "epsilon=30")
    exactly = frame.ldp.perturb({"city": exact}, keep=["id"])
    assert exactly.sort("id").equals(frame.select("id", "city"))
    kept = frame.ldp.perturb({"city": CITY}, order="keep", keep=["id"])
    assert kept["id"].to_list() == list(range(ROWS))
    assert frame.clear().ldp.perturb({"city": CITY}).schema == {"city": pl.String}


def test_an_order_that_is_kept_gives_sorted_values_away(db: DuckDBPyConnection) -> None:
    perturb_copy(db, "in", "out", {"city": CITY}, order="keep")
    perturb_table(db, "people", "reports", {"city": CITY}, order="keep")
    for reports in (reports_in(db, "out"), [city for (city,) in db.execute("SELECT city FROM reports").fetchall()]):
        assert not says_nothing(reports)
        parts = np.array_split(np.array(reports) == "Lima", FILES)
        assert [part.mean() > 0.5 for part in parts] == [True] * 4 + [False] * 4  # all values, file by file
    assert len(list(Path("out").iterdir())) == FILES


def test_rows_stay_whole_and_each_comes_once(db: DuckDBPyConnection) -> None:
    with pytest.warns(UserWarning, match="protects very little"):
        perturb_copy(db, "in", "out", {"city": "krr(epsilon=31, domain=['Lima', 'Oslo'])"}, keep=["id"])
    # at epsilon 31 one lie in 40,000 has probability 2e-9
    same = "SELECT count(*), count(DISTINCT id) FROM 'out/*.parquet' JOIN people USING (id, city)"
    assert db.execute(same).fetchall() == [(ROWS, ROWS)]


@pytest.mark.parametrize(
    "mechanism",
    ["oue(1, ['Lima', 'Oslo'])", "olh(1, ['Lima', 'Oslo'])", "subset_selection(1, ['Lima', 'Oslo', 'Rome'])", CITY],
)
def test_reports_of_every_form_have_the_type_that_they_have_unshuffled(db: DuckDBPyConnection, mechanism: str) -> None:
    for order in ("random", "keep"):
        perturb_table(db, "people", order, {"city": mechanism}, keep=["id"], order=order)
    types = [db.execute(f"SELECT column_name, column_type FROM (DESCRIBE {order})").fetchall() for order in ("random", "keep")]
    assert types[0] == types[1]


def test_batches_with_dictionaries_of_their_own_are_joined(db: DuckDBPyConnection) -> None:
    batches = [pa.record_batch({"city": ["Lima"], "kind": pa.array([kind]).dictionary_encode()}) for kind in "abc"]
    perturb_copy(db, pa.Table.from_batches(batches), "out.arrow", {"city": CITY}, keep=["kind"])
    assert sorted(pa.ipc.open_file("out.arrow").read_all()["kind"].to_pylist()) == ["a", "b", "c"]
    kind = pl.Series(["a", "b", "c"], dtype=pl.Categorical)
    frame = pl.DataFrame({"city": ["Lima"] * 3, "kind": kind, "name": ["x", "y", "z"], "list": [["a"], [], None]})
    perturb_copy(db, frame, "out.parquet", {"city": CITY}, keep=["kind", "name", "list"])
    rows = sorted(db.execute("SELECT kind, name, list FROM 'out.parquet'").fetchall())
    assert rows == [("a", "x", ["a"]), ("b", "y", []), ("c", "z", None)]


# --- what is refused, and what is resumed ---


def test_a_column_that_names_the_folders_of_the_source_is_not_perturbed(db: DuckDBPyConnection) -> None:
    db.execute("COPY people TO 'hive' (FORMAT parquet, PARTITION_BY city)")
    with pytest.raises(SourceRefused, match="folders"):
        perturb_copy(db, "hive", "out", {"city": CITY})
    with pytest.raises(SourceRefused, match="folders"):
        perturb_table(db, "hive/*/*.parquet", "reports", {"city": CITY}, order="keep")
    assert sorted(os.listdir()) == ["hive", "in", "in.csv", "people.duckdb", "people.duckdb.wal"]
    perturb_copy(db, "hive", "out", {"id": f"krr(1, {list(range(ROWS))})"}, keep=["city"])


def test_files_whose_kept_columns_do_not_go_together_are_refused(db: DuckDBPyConnection) -> None:
    db.execute("COPY (SELECT id::SMALLINT AS id, city FROM people LIMIT 9) TO 'in/a.parquet'")
    perturb_copy(db, "in", "out", {"city": CITY}, keep=["id"])
    assert db.execute("SELECT count(*), max(id) FROM 'out/*.parquet'").fetchall() == [(ROWS + 9, ROWS - 1)]
    db.execute("COPY (SELECT id::VARCHAR AS id, city FROM people LIMIT 9) TO 'in/a.parquet'")
    with pytest.raises(SourceRefused, match="type"):
        perturb_copy(db, "in", "other", {"city": CITY}, keep=["id"])
    assert not Path("other").exists()


def test_an_order_must_be_one_that_there_is(db: DuckDBPyConnection) -> None:
    for run in (perturb_copy, perturb_table):
        with pytest.raises(InvalidParameter, match="random"):
            run(db, "people", "out", {"city": CITY}, order="sorted")  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_a_run_that_ends_while_it_is_shuffled_draws_nothing_again(
    db: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Form.write
    written: list[str] = []

    def write_two(self: Form, con: Any, reports: Any, folder: Path, name: str) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(name)
        write(self, con, reports, folder, name)

    with monkeypatch.context() as patched:
        patched.setattr(Form, "write", write_two)
        with pytest.raises(KeyboardInterrupt):
            perturb_copy(db, "in", "out", {"city": CITY}, keep=["id"])
    assert not Path("out").exists()
    run = perturb_copy(db, "in", "out", {"city": CITY}, keep=["id"], resume=True)
    assert (run.rows, run.parts, run.resumed) == (0, 0, FILES)
    assert db.execute("SELECT count(*), count(DISTINCT id) FROM 'out/*.parquet'").fetchall() == [(ROWS, ROWS)]
