"""``ldpsql statement``: a page for the person who approves a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import in_a_folder


def statement(
    table: Annotated[
        str | None, typer.Argument(help="The policy [tables.TABLE]; may be left out if there is one.", metavar="TABLE")
    ] = None,
    file: Annotated[Path | None, typer.Option("--settings", help="By default this project's ldpsql.toml.")] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The ledger; by default path in [ledger] of the settings.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A page (.html), .md, or .yaml; by default Markdown.", callback=in_a_folder),
    ] = None,
) -> None:
    """Write one page that says what a policy collects, from whom, how often, at which epsilon in a year, and what is at risk.

    It needs no knowledge of this software. The policy of a table states collector, purpose, people, recipient, retention and
    frequency; what it does not state is listed. YAML is an entry of the public registry of deployments, at its highest tier.

    Example: ldpsql statement people -o statement.html
    """
    from ldpsql.cli.output import write_text
    from ldpsql.cli.policy import project
    from ldpsql.errors import InvalidParameter
    from ldpsql.ledger.review import collection
    from ldpsql.pages import deployment
    from ldpsql.pages import statement as pages

    forms = {".md": pages.markdown, ".html": pages.page, ".yaml": deployment.entry}
    suffix = ".md" if output is None else output.suffix.lower()
    if suffix not in forms:
        raise InvalidParameter("a statement is written as .html, .md or .yaml", "ldpsql statement -o statement.html")
    write_text(forms[suffix](collection(project(file), table, ledger)), output, f"Wrote {output}")
