"""The Arrow schema of a frame of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the types in which workers get the columns of a frame; times have the time zone of the session."""
    return frame.limit(0).toArrow().schema
