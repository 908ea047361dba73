"""``ldpsql regression``: a raw column, explained by a perturbed one."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import ColumnsOption, DatabaseOption, NamedArgument, RecordedOption, SourceArgument, columns_named
from ldpsql.cli.output import Format, FormatOption, write_rows


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
    from ldpsql.cli.source import reading

    columns = columns_named(named, column)
    model = Model(y, tuple(x or ()), weight, family, numbers, interactions)
    with reading([source], columns, model.raw, mechanism, "", database) as read:
        write_rows(model.fit(read[0].con, read[0].table, columns, read[0].mechanism).rows(), form)
