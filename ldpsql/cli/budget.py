"""``ldpsql budget``, ``policy`` and ``statement``: what was spent and is left, what the settings permit, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ldpsql.cli.options import Format, FormatOption, existing, output_option, write_rows, write_text

app = typer.Typer(help="Show and check the ledger of privacy budgets.", no_args_is_help=True)

LedgerOption: TypeAlias = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger; by default LDPSQL_LEDGER, or path in [ledger] of ldpsql.toml.")
]


@app.command(epilog="Example: ldpsql budget show --ledger budget.ledger")
def show(ledger: LedgerOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show for each group of columns the most that any person has spent, and what is left to that person."""
    from dataclasses import asdict

    from ldpsql.ledger.guard import needed_ledger

    opened = needed_ledger(ledger)
    if form is Format.TABLE:
        typer.echo(f"policy: {opened.policy}")
    write_rows([asdict(balance) for balance in opened.balances()], form)


@app.command(epilog="Example: ldpsql budget history --format csv")
def history(ledger: LedgerOption = None, form: FormatOption = Format.TABLE) -> None:
    """List every column of every release, oldest first, and whether it was published."""
    from ldpsql.ledger.guard import needed_ledger

    write_rows(needed_ledger(ledger).history(), form, "no releases")


@app.command(epilog="Example: ldpsql budget check")
def check(ledger: LedgerOption = None) -> None:
    """Check that the file is complete and that all accounts add up; fail if not."""
    from ldpsql.ledger.guard import needed_ledger

    opened = needed_ledger(ledger)
    opened.check()
    releases = {row["release"]: row["state"] for row in opened.history()}
    open_ones = sum(state == "charged" for state in releases.values())
    typer.echo(f"ok: {len(releases)} releases, {open_ones} of them charged and not published")


@app.command(epilog="Example: ldpsql budget unpublished")
def unpublished(ledger: LedgerOption = None, form: FormatOption = Format.TABLE) -> None:
    """List the releases that were charged and not published; one that was drawn may have reports at its destination."""
    from dataclasses import asdict

    from ldpsql.ledger.guard import needed_ledger

    write_rows([asdict(release) for release in needed_ledger(ledger).unpublished()], form, "no unpublished releases")


@app.command(epilog="Example: ldpsql budget settle --database warehouse.duckdb")
def settle(
    ledger: LedgerOption = None,
    database: Annotated[
        str, typer.Option("--database", "-d", help="The DuckDB file that the releases wrote their tables into.")
    ] = ":memory:",
    release: Annotated[list[str] | None, typer.Option("--release", help="Only this release; by default all.")] = None,
    unseen: Annotated[
        bool,
        typer.Option("--unseen", help="Nobody can have seen the reports that are not found: give their charges back."),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Publish unpublished releases whose reports are in a table, and give back the charges of those that nobody has seen.

    Run it while nothing else draws. A release that was about to publish its reports, which are not found, stays charged unless
    --unseen is set: its table may have been dropped, or this may be a copy of the database.
    """
    import duckdb

    from ldpsql.bulk.charging import settle as settled
    from ldpsql.ledger.guard import needed_ledger

    opened = needed_ledger(ledger)
    with duckdb.connect(existing(database), read_only=database != ":memory:") as con:
        outcomes = [
            {"release": one.release, "destination": one.destination, "people": one.people, "outcome": text}
            for one, text in settled(opened, con, release or (), unseen=unseen)
        ]
    write_rows(outcomes, form, "no unpublished releases")


@app.command(epilog="Example: ldpsql budget export > ledger.json")
def export(ledger: LedgerOption = None) -> None:
    """Write policies, balances and history as JSON, without data about persons."""
    import json
    from dataclasses import asdict

    from ldpsql.ledger.guard import needed_ledger

    opened = needed_ledger(ledger)
    balances = [asdict(balance) for balance in opened.balances()]
    contents = {"policies": opened.policies(), "balances": balances, "history": opened.history()}
    typer.echo(json.dumps(contents, indent=2))


@app.command(epilog="Example: ldpsql budget adopt")
def adopt(ledger: LedgerOption = None) -> None:
    """Replace the ledger's policy by that of ldpsql.toml; begin the ledger if it does not exist."""
    from ldpsql.errors import LedgerMissing
    from ldpsql.ledger import Ledger
    from ldpsql.ledger.guard import configured_path, configured_policy

    path, policy = configured_path(ledger), configured_policy()
    if path is None or policy is None:
        raise LedgerMissing(
            "there is no policy to adopt, or no ledger is named", "write path and epsilon_budget in [ledger] of ldpsql.toml"
        )
    opened = Ledger.open(path) if path.exists() else Ledger.open(path, policy)
    if opened.policy != policy:
        opened.adopt(policy)
    typer.echo(f"policy: {opened.policy}")


@app.command(epilog="Example: ldpsql budget new-key permanent.key")
def new_key(path: Annotated[Path, typer.Argument(help="Where to write the key; the file must not exist.")]) -> None:
    """Make a key for permanent reports, and print its fingerprint; keep the file as safe as the raw data."""
    from ldpsql.ledger.permanent import Key

    typer.echo(f"fingerprint: {Key.create(path).fingerprint}")


policy = typer.Typer(help="Show what the settings permit, and compare two versions.", no_args_is_help=True)


@policy.command(name="show", epilog="Example: ldpsql policy show --format json")
def show_terms(
    file: Annotated[Path | None, typer.Argument(help="The settings; by default the ldpsql.toml of this project.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show every term of the settings: the epsilon of each column, what a row or a person may spend, and what is kept."""
    from ldpsql.ledger.review import terms

    rows = [{"place": term.place, "term": term.term, "value": term.value} for term in terms(project(file))]
    write_rows(rows, form)


@policy.command(epilog="Example: ldpsql policy diff main.toml ldpsql.toml")
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
    write_rows([asdict(change) for change in differing], form, "no differences")
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
