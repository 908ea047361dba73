"""Reports that other libraries drew, in Python."""

from __future__ import annotations

from typing import Any

import polars as pl

from ldpsql.domains.arrays import column_of, is_pandas_series, like_series
from ldpsql.domains.columns import plain, with_nulls
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.foreign import Format, read_foreign
from ldpsql.registry.registry import registry


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
