"""``ldpsql lint``: SQL files in, findings out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.output import Format, FormatOption, write_rows


def lint(
    files: Annotated[list[Path], typer.Argument(help="SQL files, or folders of them.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Find statements in SQL files that perturb in a way that reveals values; nothing is run.

    It finds views, macros, generated columns and checks that draw new reports whenever they are used, and reports that are
    stored in the order of the rows: CREATE TABLE AS, INSERT, COPY and UPDATE without ORDER BY random(). It also finds reports
    inside IN, NULLIF or CASE x WHEN, which DuckDB may draw several times for a row. Exits with 3 if it finds any.

    Example: ldpsql lint queries/ reports.sql --format json
    """
    from ldpsql.errors import PrivacyError
    from ldpsql.sql.scripts import lint_files

    places = lint_files(files)
    rows = [
        {"file": p.file, "line": p.line, "kind": p.finding.kind, "problem": p.finding.problem, "remedy": p.finding.remedy}
        for p in places
    ]
    write_rows(rows, form)
    if rows:
        raise typer.Exit(PrivacyError.exit_code)
