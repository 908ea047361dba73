"""Kept columns carry the values of their rows, and nothing else that Arrow holds."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ldpsql
from ldpsql.bulk.columns import kept, kept_type

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
