"""Frames and readers as streams of record batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from ldpsql.bulk.columns.mechanisms import check_columns
from ldpsql.bulk.reading.parquet import BATCH_ROWS
from ldpsql.domains.arrays import is_frame, is_pandas_frame, pandas_names, pandas_table, shown_class
from ldpsql.errors import LdpError, SourceRefused, WrongType


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream.

    Raises:
        SourceRefused: if the stream fails. Its own message may quote values, so it is dropped.

    """
    try:
        yield from reader
    except LdpError:
        raise
    except Exception:  # noqa: BLE001  # whatever the stream's producer raises
        hint = "does every batch have the types that the stream declares?"
        raise SourceRefused("the stream could not be read to its end", hint) from None


def stream(frame: Any, wanted: Collection[str]) -> pa.RecordBatchReader:
    """Return a frame as a stream of record batches with at least the wanted columns.

    Raises:
        WrongType: if the frame neither speaks Arrow's stream interface nor is a pandas frame.
        UnknownName, SourceRefused: if a pandas frame lacks a column, or has it twice.

    """
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    if is_pandas_frame(frame):
        check_columns(wanted, pandas_names(frame))
        return pandas_table(frame, wanted).to_reader(BATCH_ROWS)
    if not is_frame(frame) or not hasattr(frame, "__arrow_c_stream__"):
        hint = "pass an Arrow table or reader, or a Polars or pandas frame"
        raise WrongType(f"a {shown_class(frame)} is not a stream of record batches", hint)
    return pa.RecordBatchReader.from_stream(frame)
