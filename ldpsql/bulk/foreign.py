"""Reports that other libraries drew, and collections of google/rappor, in Python."""

from __future__ import annotations

import json
import os
from typing import Any

import duckdb
import polars as pl
from duckdb import DuckDBPyConnection

from ldpsql.bulk.reading.sources import sql_of
from ldpsql.bulk.reading.streams import stream
from ldpsql.domains.arrays import column_of, is_pandas_frame, is_pandas_series, like_series, pandas_names
from ldpsql.domains.columns import plain, with_nulls
from ldpsql.engine.threads import one_thread
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.rappor_files import Rows, collection_shares
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.foreign import Format, read_foreign
from ldpsql.quoting import text_literal
from ldpsql.registry.registry import registry

_FRAME = "__ldpsql_frame"


@withheld
def read(reports: Any, mechanism: Mechanism | str, format: Format = "bits") -> Any:  # noqa: A002  # as in SQL
    """Return reports that another library drew as reports of a mechanism here; NULL stays NULL.

    Args:
        reports: a list, an Arrow or NumPy array, a Polars or pandas series.
        mechanism: the mechanism with the probabilities with which they were drawn, such as ``encoding(1, [...], 'oue')``.
        format: how they are written: 'bits' ('0100'), 'array' ([0, 1, 0, 0]), 'position' and 'positions' (of values, from 0),
            or 'xxhash' (a symbol and a seed).

    Returns:
        A Polars series for a Polars series, a pandas series with the same index for a pandas series, else an Arrow array.

    Raises:
        ImpossibleReport: if some reports do not have the format, or cannot occur under the mechanism.
        InvalidParameter: if reports of the mechanism are not written in this format.

    """
    column = column_of(reports)
    certified, drawn = read_foreign(registry().mechanism(mechanism), column.drop_null(), format)
    out = with_nulls(plain(certified.shown(drawn)), column.is_valid().to_numpy(zero_copy_only=False))
    if isinstance(reports, pl.Series):
        return pl.Series(reports.name, out)
    return like_series(out, reports) if is_pandas_series(reports) else out


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
