"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from ldpsql.cli.options import ByOption, ColumnOption, DatabaseOption, EstimatorOption, MechanismOption, SourceArgument
from ldpsql.cli.output import Format, FormatOption, rows_of, write_rows
from ldpsql.names import IBU


def estimate(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = IBU,
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the share of every value from reports.

    Example: ldpsql estimate reports.parquet --column city --mechanism city --by region
    """
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.source import compared, estimating, opened
    from ldpsql.errors import NoReports
    from ldpsql.registry.registry import registry

    keys, made, method = by or [], registry().mechanism(mechanism), registry().estimator(estimator)
    with opened(database) as con:
        table = sql_of(con, source, [column, *keys])
        with compared(con, source, column, made):
            query = estimating(con, table, column, keys, made, method)
            rows = list(rows_of(con.sql(query)))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)
