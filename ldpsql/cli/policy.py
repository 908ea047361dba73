"""``ldpsql policy``: what the settings permit, and what got weaker between two versions of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.output import Format, FormatOption, write_rows

app = typer.Typer(help="Show what the settings permit, and compare two versions.", no_args_is_help=True)


@app.command(epilog="Example: ldpsql policy show --format json")
def show(
    file: Annotated[Path | None, typer.Argument(help="The settings; by default the ldpsql.toml of this project.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show every term of the settings: the epsilon of each column, what a row or a person may spend, and what is kept."""
    from ldpsql.ledger.review import terms

    rows = [{"place": term.place, "term": term.term, "value": term.value} for term in terms(project(file))]
    write_rows(rows, form)


@app.command(epilog="Example: ldpsql policy diff main.toml ldpsql.toml")
def diff(
    old: Annotated[Path, typer.Argument(help="The settings before.")],
    new: Annotated[Path, typer.Argument(help="The settings after.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare two versions of the settings; exit with 3 if anything got weaker.

    A higher epsilon, a column that is collected or kept in addition, a shorter window and a limit that is gone are weaker. So
    is a change whose values have no order, such as another ledger or another privacy unit: somebody has to look at it.
    """
    from dataclasses import asdict

    from ldpsql.errors import PrivacyError
    from ldpsql.ledger.review import WEAKER, changes, terms

    differing = changes(terms(old), terms(new))
    write_rows([asdict(change) for change in differing], form)
    if any(change.verdict == WEAKER for change in differing):
        raise typer.Exit(PrivacyError.exit_code)


def project(file: Path | None) -> Path:
    """Return the settings file that is named, or that of the project.

    Raises:
        SourceRefused: if there is none.

    """
    from ldpsql import settings
    from ldpsql.errors import SourceRefused

    path = file or settings.project_file()
    if path is None:
        raise SourceRefused("there is no ldpsql.toml in this folder or above", "name the file")
    return path
