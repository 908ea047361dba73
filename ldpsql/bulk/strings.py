"""`ldpsql.heavy_hitters`: frequent strings that nobody listed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import polars as pl
import pyarrow as pa

from ldpsql.bulk.counts import Counts
from ldpsql.bulk.frames import mechanism_of
from ldpsql.bulk.sources import Column
from ldpsql.domains.columns import column_of
from ldpsql.engine.functions import arrow_fields
from ldpsql.engine.groups import one_thread
from ldpsql.errors import NoReports
from ldpsql.errors.boundary import withheld
from ldpsql.inference.counts import GroupedCounts
from ldpsql.mechanisms.base import Mechanism
from ldpsql.strings import HeavyHitter, HeavyHitters, strings_of
from ldpsql.strings import heavy_hitters as search_groups


@withheld
@one_thread
def heavy_hitters(reports: Column | Counts, mechanism: Mechanism | str, top: int = 20, **options: Any) -> pl.DataFrame:
    """Find the most frequent strings behind a column of reports, without a list of strings; NULL reports are left out.

    Args:
        reports: reports of a mechanism over strings that are not listed, such as ``pem``, or `Counts` of them.
        mechanism: the mechanism that drew them.
        top: most strings to return.
        **options: ``confidence``, ``certain``, ``kept`` and ``deadline``, as of ``ldp.heavy_hitters`` in SQL.

    Returns:
        A row for each string, the most frequent first: ``value``, ``estimate``, ``std_error``, the interval from ``low`` to
        ``high``, ``level`` and ``reports``. All intervals hold together with probability ``confidence``.

    Raises:
        ImpossibleReport, NoReports: if the column cannot hold reports of the mechanism, or holds none.
        OutOfTime: if ``deadline`` seconds pass.

    """
    drawn_by = mechanism_of(reports, mechanism)
    if isinstance(reports, Counts):
        counted = reports.one_group()
    else:
        column = column_of(reports).drop_null()
        counted = GroupedCounts.of(column, pa.repeat(pa.scalar(1, pa.uint64()), len(column)))
    strings_of(drawn_by)
    if not len(counted.reports):
        raise NoReports()
    _, hitters = next(search_groups(drawn_by, counted, HeavyHitters(top=top, **options)))
    return pl.DataFrame([asdict(hitter) for hitter in hitters], schema=pl.Schema(pa.schema(arrow_fields(HeavyHitter))))
