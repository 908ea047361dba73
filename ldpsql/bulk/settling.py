"""What became of releases that were charged and not published: their reports are published, or their charges given back."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from duckdb import DuckDBPyConnection

from ldpsql.bulk.writing.staging import staging_folder
from ldpsql.bulk.writing.tables import database_of, written_tokens
from ldpsql.engine.identity import parts
from ldpsql.errors import UnknownRelease
from ldpsql.ledger import Ledger
from ldpsql.ledger.unpublished import Unpublished

PUBLISHED = "published: its reports are in a table"
RETURNED = "given back: nobody has seen its reports"
UNFINISHED = "left as it is: its run can go on, with ldpsql perturb --resume"
PERMANENT = "left as it is: permanent reports cost nothing again, so repeat the run"
ELSEWHERE = "left as it is: its reports may be at its destination; name that database, or the release with --release"
IN_DOUBT = "left as it is: its reports were not found; if nobody can have seen them, add --unseen"


def settle(
    ledger: Ledger, con: DuckDBPyConnection, named: Collection[str] = (), *, unseen: bool = False
) -> Iterator[tuple[Unpublished, str]]:
    """Settle unpublished releases, and yield each with its outcome.

    Args:
        ledger: the ledger.
        con: the database that they wrote tables into.
        named: the tokens of the releases to settle; all if none are named.
        unseen: nobody can have seen the reports of releases into this database that are not in a table of it, or of those that
            are named.

    Raises:
        UnknownRelease: if a token is not that of an unpublished release.

    """
    releases = ledger.unpublished()
    if set(named) - {release.release for release in releases}:
        raise UnknownRelease("there is no such unpublished release", "ldpsql budget unpublished lists them")
    tokens, database = written_tokens(con), database_of(con)
    for release in releases:
        if not named or release.release in named:
            yield release, _settled(ledger, release, tokens, database, unseen=unseen, named=bool(named))


def _settled(ledger: Ledger, release: Unpublished, tokens: set[str], database: str, *, unseen: bool, named: bool) -> str:
    if release.release in tokens:
        ledger.publish(ledger.release_of(release.release))
        return PUBLISHED
    if not release.returnable:
        return PERMANENT
    if (staging_folder(Path(release.destination)) / "state.json").exists():
        return UNFINISHED
    if release.drawn and not (named or _is_in(release.destination, database)):
        return ELSEWHERE
    if release.drawn and not unseen:
        return IN_DOUBT
    ledger.give_back(release.release, unseen=unseen)
    return RETURNED


def _is_in(destination: str, database: str) -> bool:
    """Whether a destination is a table of a database: of its file, or qualified by its name as dbt does."""
    named = destination.startswith(f"{database} ") or parts(destination)[0] == Path(database).stem.casefold()
    return bool(database) and named
