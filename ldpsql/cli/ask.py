"""``ldpsql ask``: one question about the table behind reports of several columns."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from ldpsql.cli.options import (
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    columns_named,
)
from ldpsql.cli.output import Format, FormatOption, of_table, write_rows

_OF_COLUMN = "The {} of this column."
ColumnOption: TypeAlias = str | None


def ask(
    source: SourceArgument,
    named: NamedArgument = None,
    table: Annotated[str | None, typer.Option(help="The table of these columns: education,income.")] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(help="The share of these values: income=high, age=18..65, city=Lima,Oslo; repeat it for more columns."),
    ] = None,
    mean: Annotated[ColumnOption, typer.Option(help=_OF_COLUMN.format("mean"))] = None,
    variance: Annotated[ColumnOption, typer.Option(help=_OF_COLUMN.format("variance"))] = None,
    median: Annotated[ColumnOption, typer.Option(help=_OF_COLUMN.format("median"))] = None,
    independence: Annotated[
        str | None, typer.Option(help="Whether two columns are independent of each other: education,income.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="Only where this holds, as in --share. With --table the names of columns: shares among their rows; repeat it."
        ),
    ] = None,
    versus: Annotated[
        list[str] | None, typer.Option(help="With --share or --mean: the difference between --given and this condition.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="With --share or --mean: the difference between REPORTS and these of other people."),
    ] = None,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask one question about the table behind reports of several columns; the answer has an error and an interval.

    It is estimated from the reports of the columns that the question names.

    Example: ldpsql ask reports.parquet report --share income=high --given education=doctor
    """
    from ldpsql.cli.asking import ConditionalQuestion
    from ldpsql.cli.source import reading
    from ldpsql.errors import NoReports

    question = ConditionalQuestion.asked(
        {"table": table, "share": share, "mean": mean, "variance": variance, "median": median, "independence": independence},
        given or [],
        versus,
        against is not None,
    )
    keys, columns = by or [], columns_named(named, column)
    sources = [source] if against is None else [source, against]
    with reading(sources, columns, keys, mechanism, estimator, database) as read:
        rows = list(of_table(read[0].con.sql(question.query(read, columns[0], keys)).to_arrow_table()))
    if not any(value is not None for row in rows for name, value in row.items() if name not in keys):
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)
