"""``ldpsql budget``: what was spent, on what, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ldpsql.cli.options import Format, FormatOption, existing, write_rows

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

    write_rows(needed_ledger(ledger).history(), form)


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

    write_rows([asdict(release) for release in needed_ledger(ledger).unpublished()], form)


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
    write_rows(outcomes, form)


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
