"""Parquet files of listed text: Arrow writes them, with the types and the metadata that DuckDB would write."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ldpsql import perturb_copy

BATCH_ROWS = 122_880  # of a row group of DuckDB
COLUMNS = {
    **{
        kind: pa.array([1, 2, 3]).cast(kind)
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "double")
    },
    "decimals": pa.array([Decimal("-0.25"), Decimal("99999.75"), Decimal(0)], pa.decimal128(7, 2)),
    "text": pa.array(["", "é" * 9, "Lima"]),
    "booleans": pa.array([True, False, None]),
    "days": pa.array(range(3), pa.int32()).cast(pa.date32()),
    "moments": pa.array(range(3), pa.timestamp("us")),
    "moments of a zone": pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 6)]),
}


@pytest.mark.filterwarnings("ignore:.*protects very little")
@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_a_file_that_arrow_writes_is_like_one_that_duckdb_writes(values: pa.Array, tmp_path: Path) -> None:
    """At epsilon 32, one report in 10^13 is not the value."""
    people, ours, copy = pa.table({"city": pa.repeat("Oslo", len(values)), "kept": values}), tmp_path / "a", tmp_path / "b"
    with duckdb.connect() as con:
        perturb_copy(con, people, f"{ours}.parquet", {"city": "krr(32, ['Lima', 'Oslo'])"}, keep=["kept"], order="keep")
        con.register("people", people)
        con.execute(f"COPY people TO '{copy}.parquet'")
        types = [con.execute(f"DESCRIBE FROM '{file}.parquet'").fetchall() for file in (ours, copy)]
    assert types[0] == types[1]
    metadata = pq.read_metadata(f"{ours}.parquet")
    assert metadata.created_by.startswith("parquet-cpp-arrow")
    assert list(metadata.metadata) == [b"ldpsql.mechanism.city"]
    written = pq.read_table(f"{ours}.parquet")
    assert written.equals(pq.read_table(f"{copy}.parquet"))
    assert written.cast(people.schema).equals(people)


@pytest.mark.parametrize("rows", [0, 9, BATCH_ROWS, 3 * BATCH_ROWS])
@pytest.mark.parametrize("order", ["random", "keep"])
def test_row_groups_have_the_size_of_duckdbs_whatever_the_batches(rows: int, order: str, tmp_path: Path) -> None:
    people = pa.table({"x": pa.array(range(rows)).cast("int32"), "answer": pa.repeat("yes", rows)})
    source = pa.Table.from_batches(people.to_batches(max_chunksize=10_007), people.schema)
    with duckdb.connect() as con:
        perturb_copy(con, source, tmp_path / "out.parquet", {"answer": "krr(1, ['no', 'yes'])"}, keep=["x"], order=order)  # type: ignore[arg-type]
    metadata = pq.read_metadata(tmp_path / "out.parquet")
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert all(BATCH_ROWS <= size <= 2 * BATCH_ROWS for size in groups[:-1])
    written = pq.read_table(tmp_path / "out.parquet")
    assert sorted(written["x"].to_pylist()) == list(range(rows))
    assert set(written["answer"].to_pylist()) <= {"no", "yes"}
