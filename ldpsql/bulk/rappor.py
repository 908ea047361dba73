"""Collections of google/rappor in Python: shares of candidate strings from files or frames."""

from __future__ import annotations

import json
import os
from typing import Any

import duckdb
import polars as pl
from duckdb import DuckDBPyConnection

from ldpsql.bulk.batches import stream
from ldpsql.bulk.sources import sql_of
from ldpsql.domains.arrays import is_pandas_frame, pandas_names
from ldpsql.engine.threads import one_thread
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.collections import Rows, collection_shares
from ldpsql.quoting import text_literal

_FRAME = "__ldpsql_frame"


@withheld
@one_thread
def rappor_shares(params: Any, counts: Any, map: Any, rate: float = 0.05) -> pl.DataFrame:  # noqa: A002  # as in SQL
    """Estimate the shares of candidate strings from a collection of google/rappor.

    Args:
        params: a path, or a frame of Arrow, Polars, pandas or DuckDB, with one row: k, h, m, p, q and f.
        counts: the same, with a row for each cohort: its reports, then a count for each bit.
        map: the same, with a row for each candidate: its name, then its bits, numbered from 1 through all cohorts.
        rate: the expected share of the detected candidates that nobody has.

    Returns:
        A row for each candidate: ``estimate``, ``std_error``, ``low``, ``high``, ``p_value``, whether it is ``detected``, and
        ``gap``, which certifies the maximum of the likelihood. In the last row, for all other strings, ``candidate`` is NULL.

    Raises:
        InvalidParameter: if the parameters, the rate or the candidates do not make a collection.
        BadCounts: if the counts do not fit the parameters.
        SourceRefused: if a file cannot be read.

    """
    with duckdb.connect() as con:
        table = collection_shares(_rows(con, params), _rows(con, counts), _rows(con, map), rate)
    return pl.DataFrame(table)


def _rows(con: DuckDBPyConnection, source: Any) -> Rows:
    """Return the rows of a file or a frame as SQL passes them, through JSON."""
    is_path = isinstance(source, str | os.PathLike)
    table = sql_of(con, os.fspath(source)) if is_path else text_literal(_FRAME)
    if not is_path:
        wanted = pandas_names(source) if is_pandas_frame(source) else ()
        con.register(_FRAME, stream(source, wanted).read_all())
    read = f"SELECT to_json(r)::VARCHAR FROM query_table({table}) AS r"  # noqa: S608  # text in quotes
    return [json.loads(text) for (text,) in con.execute(read).fetchall()]
