"""``ldpsql export-sql``: estimators for clients without Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import MechanismOption, in_a_folder


def export_sql(
    mechanism: MechanismOption,
    name: Annotated[str, typer.Option(help="What the macros are called by: NAME_ibu, NAME_inv.")] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .sql file, or a DuckDB database; by default stdout.", callback=in_a_folder),
    ] = None,
) -> None:
    """Write estimators as macros in pure SQL.

    They run in any DuckDB client (shell, Node, Java) without ldpsql. Perturbing is never exported.

    Example: ldpsql export-sql --mechanism city --name city --output city.sql
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.registry.registry import registry
    from ldpsql.sql import export

    made = mechanism_from(mechanism)
    called = name or (mechanism if mechanism in registry().named else made.name)
    if output is None:
        sys.stdout.write(export.macros(made, called))
        return
    export.write(made, called, output)
    typer.echo(f"Wrote {called}_ibu and the related macros to {output}", err=True)
