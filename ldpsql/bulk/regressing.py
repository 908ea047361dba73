"""Regressions on perturbed columns of frames, files and tables: the sums of a linear one come from one query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import of_frame, of_source
from ldpsql.bulk.frames import Frame, drawn_by_columns
from ldpsql.bulk.reading.sources import sql_of
from ldpsql.bulk.reading.streams import stream
from ldpsql.engine.functions import struct_text
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.conditions import column_place, values_of
from ldpsql.mechanisms.base import Mechanism
from ldpsql.outcomes.moments import Moments, RawRows, sums_sql
from ldpsql.outcomes.regression import Design, Regression, check_family, linear, logistic
from ldpsql.quoting import quoted, text_literal

_ROWS = "ldp rows"  # no table of a user has this name


@dataclass(frozen=True)
class Model:
    """A regression of the raw column ``y`` on perturbed columns and the raw columns ``x``; see `regression`."""

    y: str
    x: tuple[str, ...] = ()
    weight: str | None = None
    family: str = "linear"
    numbers: bool = False
    interactions: bool = False
    confidence: float = 0.95

    @property
    def raw(self) -> list[str]:
        """The raw columns that are read."""
        return [self.y, *self.x, *([self.weight] if self.weight else [])]

    def fit(self, con: DuckDBPyConnection, table: str, columns: Sequence[str], mechanism: Mechanism) -> Regression:
        """Return the regression.

        Args:
            con: the connection that has the rows.
            table: the rows, as ``query_table`` takes them.
            columns: the perturbed columns.
            mechanism: what drew their reports.

        """
        family = check_family(self.family)
        several = len(columns) > 1
        report = struct_text({name: quoted(name) for name in columns}) if several else quoted(columns[0])
        places = tuple(column_place(values_of(mechanism), name) for name in columns) if several else ()
        design = Design.of(mechanism, columns, places, self.x, numbers=self.numbers, interactions=self.interactions)
        y, x, weight = quoted(self.y), struct_text({name: quoted(name) for name in self.x}), quoted(self.weight or "")
        weight, one = weight if self.weight else "1", np.zeros(1, dtype=np.int64)
        if family == "linear":
            cells = sums_sql(report, [y, *map(quoted, self.x)], weight)
            query = f"SELECT {cells} AS sums FROM query_table({table}) GROUP BY {report}"  # noqa: S608
            sums = con.sql(query).to_arrow_table()["sums"].combine_chunks()
            moments = Moments.of_lists(_listed(sums.field("report")), _listed(sums), one)
            return linear(mechanism, moments, design, self.confidence)
        row = f"{{'y': {y}, 'w': {weight}, 'x': {x if self.x else 'NULL'}}}"
        found = con.sql(f"SELECT {report} AS report, {row} AS row FROM query_table({table})").to_arrow_table()  # noqa: S608
        drawn, rows = (_listed(found[name].combine_chunks()) for name in ("report", "row"))
        return logistic(mechanism, RawRows.of_lists(drawn, rows, one), design, self.confidence)


@withheld
def regression(
    reports: Frame | str | os.PathLike[str],
    column: str | Sequence[str],
    y: str,
    x: Sequence[str] = (),
    *,
    mechanism: Mechanism | str | None = None,
    **options: Any,
) -> Regression:
    """Regress a raw column on perturbed columns and raw ones.

    Args:
        reports: a frame of Polars, pandas or Arrow, a stream, a relation of DuckDB, or the path of a file.
        column: the perturbed column, or a list of them.
        y: the raw column that is explained: a number or, for a logistic regression, a boolean or a number from 0 to 1.
        x: raw columns that explain it, too.
        mechanism: what drew the reports, for several columns a mechanism of rows; it may be left out if the reports record it.
        **options: ``weight``, a column of weights; ``family``, linear or logistic; ``numbers``, whether values enter as
            numbers and not as indicators of all but the first; ``interactions``, whether the products of perturbed and raw
            columns enter; ``confidence``.

    Returns:
        The coefficients with sandwich errors; ``print`` shows a table, and ``to_arrow`` and ``to_polars`` return one.

    Raises:
        BadCounts: if a weight is negative, NULL or not finite.
        NotApplicable: if the reports do not determine the coefficients.

    """
    columns, model = [column] if isinstance(column, str) else list(column), Model(y, tuple(x), **options)
    wanted = list(dict.fromkeys([*columns, *model.raw]))
    with duckdb.connect() as con:
        if isinstance(reports, str | os.PathLike):
            path = os.fspath(reports)
            drawn_by, _ = drawn_by_columns(columns, mechanism, lambda name: of_source(con, path, name))
            return model.fit(con, sql_of(con, path, wanted), columns, drawn_by)
        drawn_by, _ = drawn_by_columns(columns, mechanism, lambda name: of_frame(reports, name))
        con.register(_ROWS, stream(reports.collect() if isinstance(reports, pl.LazyFrame) else reports, wanted))
        return model.fit(con, text_literal(quoted(_ROWS)), columns, drawn_by)


def _listed(column: pa.Array) -> pa.ListArray:
    """Return a column as one list."""
    return pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
