"""``ldpsql policy`` and ``statement``: what the settings permit, what got weaker, and a page for those who approve it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import Format, FormatOption, output_option, write_rows, write_text

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
    """Return the settings file that is named, or that of the project."""
    from ldpsql import settings
    from ldpsql.errors import SourceRefused

    path = file or settings.project_file()
    if path is None:
        raise SourceRefused("there is no ldpsql.toml in this folder or above", "name the file")
    return path


def statement(
    table: Annotated[
        str | None, typer.Argument(help="The policy [tables.TABLE]; may be left out if there is one.", metavar="TABLE")
    ] = None,
    file: Annotated[Path | None, typer.Option("--settings", help="By default this project's ldpsql.toml.")] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The ledger; by default path in [ledger] of the settings.")
    ] = None,
    output: Annotated[Path | None, output_option("A page (.html), .md, or .yaml; by default Markdown.")] = None,
) -> None:
    """Write one page that says what a policy collects, from whom, how often, at which epsilon in a year, and what is at risk.

    It needs no knowledge of this software. The policy of a table states collector, purpose, people, recipient, retention and
    frequency; what it does not state is listed. YAML is an entry of the public registry of deployments, at its highest tier.

    Example: ldpsql statement people -o statement.html
    """
    from ldpsql.errors import InvalidParameter
    from ldpsql.ledger.review import collection
    from ldpsql.pages import statement as pages

    forms = {".md": pages.markdown, ".html": pages.page, ".yaml": pages.deployment}
    suffix = ".md" if output is None else output.suffix.lower()
    if suffix not in forms:
        raise InvalidParameter("a statement is written as .html, .md or .yaml", "ldpsql statement -o statement.html")
    write_text(forms[suffix](collection(project(file), table, ledger)), output, f"Wrote {output}")
