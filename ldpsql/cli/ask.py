"""Questions about several columns: ``ldpsql ask``, ``outcome`` and ``regression``."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from ldpsql.cli.options import (
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    Format,
    FormatOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    columns_named,
    of_table,
    reading,
    write_rows,
)
from ldpsql.names import BEST

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
    question: Annotated[str | None, typer.Option(help="The question of this name, also of a plugin: quantiles.")] = None,
    argument: Annotated[
        list[str] | None, typer.Option(help="With --question: an argument as JSON, qs=[0.25,0.75] or of=age; repeat it.")
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
    from ldpsql.cli.queries import ConditionalQuestion
    from ldpsql.errors import NoReports

    asked = ConditionalQuestion.asked(
        {
            "question": question,
            "table": table,
            "share": share,
            "mean": mean,
            "variance": variance,
            "median": median,
            "independence": independence,
        },
        given or [],
        versus,
        against is not None,
        argument or [],
    )
    keys, columns = by or [], columns_named(named, column)
    sources = [source] if against is None else [source, against]
    with reading(sources, columns, keys, mechanism, estimator, database) as read:
        rows = list(of_table(read[0].con.sql(asked.query(read, columns[0], keys)).to_arrow_table()))
    if not any(value is not None for row in rows for name, value in row.items() if name not in keys):
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)


def outcome(
    source: SourceArgument,
    named: NamedArgument = None,
    y: Annotated[str, typer.Option("--of", help="The raw column.")] = "",
    measure: Annotated[str, typer.Option(help="mean, sum, variance or share.")] = "mean",
    weight: Annotated[str | None, typer.Option(help="The column of weights.")] = None,
    estimator: Annotated[str, typer.Option(help="best, inv or bayes.")] = BEST,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the mean, sum or variance of a raw column for each value of a perturbed one, or its weighted share.

    Example: ldpsql outcome policies.parquet ethnicity --of premium --weight w
    """
    from ldpsql.bulk.queries import in_order
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    columns, keys = columns_named(named, column), by or []
    raw = [y, *([weight] if weight else [])]
    with reading([source], columns, [*keys, *raw], mechanism, "", database) as read:
        one = read[0]
        options = {
            "measure": text_literal(measure),
            "estimator": text_literal(estimator),
            "weight": quoted(weight) if weight else "1",
        }
        chosen = ", ".join(f"{name} := {value}" for name, value in options.items())
        call = f"ldp.outcome({one.reports}, {sql_call(one.mechanism, one.con)}, {quoted(y)}, {chosen})"
        write_rows(of_table(one.con.sql(in_order(call, one.table, keys)).to_arrow_table()), form)


def regression(
    source: SourceArgument,
    named: NamedArgument = None,
    y: Annotated[str, typer.Option("--outcome", help="The raw column that is explained.")] = "",
    x: Annotated[list[str] | None, typer.Option("--on", help="A raw column that explains it, too; repeat it.")] = None,
    weight: Annotated[str | None, typer.Option(help="The column of weights.")] = None,
    family: Annotated[str, typer.Option(help="linear or logistic.")] = "linear",
    numbers: Annotated[bool, typer.Option(help="Perturbed values enter as numbers, not as categories.")] = False,
    interactions: Annotated[bool, typer.Option(help="Products of perturbed and raw columns enter, too.")] = False,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Regress a raw column on perturbed columns and raw ones; errors include the noise of the reports.

    Example: ldpsql regression policies.parquet ethnicity --outcome premium --on age --weight w
    """
    from ldpsql.bulk.frames import Model

    columns = columns_named(named, column)
    model = Model(y, tuple(x or ()), weight, family, numbers, interactions)
    with reading([source], columns, model.raw, mechanism, "", database) as read:
        write_rows(model.fit(read[0].con, read[0].table, columns, read[0].mechanism).rows(), form)
