"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from ldpsql.cli.options import ByOption, ColumnOption, DatabaseOption, EstimatorOption, MechanismOption, SourceArgument
from ldpsql.cli.output import Format, FormatOption, rows_of, write_rows


def estimate(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = "ibu",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the share of every value from reports.

    Example: ldpsql estimate reports.parquet --column city --mechanism city --by region
    """
    from ldpsql.cli.source import Question, compared, opened
    from ldpsql.errors import NoReports

    question = Question.of(column, by, mechanism, estimator)
    with opened(database) as con:
        table = question.table(con, source)
        with compared(con, source, column, question.mechanism):
            rows = list(rows_of(con.sql(question.query(con, table))))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)
