"""``ldpsql outcome``: a raw column by the values of a perturbed one."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    ColumnsOption,
    DatabaseOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    columns_named,
)
from ldpsql.cli.output import Format, FormatOption, of_table, write_rows
from ldpsql.names import BEST


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
    from ldpsql.cli.queries import in_order
    from ldpsql.cli.source import reading
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
