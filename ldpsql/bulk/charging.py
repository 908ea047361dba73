"""What a run costs: the ledger is charged before the first draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from duckdb import DuckDBPyConnection

from ldpsql.bulk.batches import Plan
from ldpsql.bulk.sources import Source
from ldpsql.bulk.tables import written_tokens
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import DestinationExists, NotReleased
from ldpsql.ledger.datasets import Dataset, dataset_of
from ldpsql.ledger.guard import ledger_files
from ldpsql.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from ldpsql.ledger import Ledger


@dataclass(frozen=True)
class Charge:
    """How a run is charged: the ledger, and what `Ledger.charge` asks for.

    ``dataset`` names the people: a table or a view of the connection, a file, or a name of your own. ``part`` names those rows
    of it that are in no other part (such as a day), ``user`` the column of user ids, if the ledger charges by user.
    """

    ledger: Ledger
    dataset: str
    part: str = ""
    user: str | None = None


def check_ledger(con: DuckDBPyConnection, charge: Charge | None) -> None:
    """See that a run on a connection that has a ledger charges that one.

    Raises:
        NotReleased: if it charges none or another.

    """
    files = ledger_files(con)
    if files and (charge is None or charge.ledger.path.resolve() not in files):
        raise NotReleased(
            "this connection draws only what its own ledger was charged for",
            "pass charge=ldpsql.Charge(ledger, dataset) with that one",
        )


def charged(
    con: DuckDBPyConnection, charge: Charge | None, source: Source, plan: Plan, destination: str, *, again: bool, resume: bool
) -> str:
    """Charge for a run before anything is drawn; return the token of the release, nothing where there is no ledger.

    Raises:
        DestinationExists: where the ledger knows that this was published before.

    """
    if charge is None:
        return ""
    users = source.users.pop() if source.users else None
    data, columns = _dataset(con, charge), _mechanisms(plan)
    release = charge.ledger.charge(data, columns, destination, users=users, part=charge.part, again=again, resume=resume)
    if release.stored:
        raise DestinationExists(
            "these reports were published there before", "use them; to draw and charge anew: --replace, in Python replace=True"
        )
    return release.token


def written_release(con: DuckDBPyConnection, charge: Charge, source: Source, plan: Plan, destination: str) -> str:
    """Return the token of a run that was killed when its reports were in a table and not yet published, or an empty string."""
    tokens = written_tokens(con)
    if not tokens:
        return ""
    users = source.users[0] if source.users else None
    release = charge.ledger.unfinished(_dataset(con, charge), _mechanisms(plan), destination, users=users, part=charge.part)
    return release.token if release is not None and release.token in tokens else ""


def _dataset(con: DuckDBPyConnection, charge: Charge) -> Dataset:
    with cursor_of(con) as cursor:
        return dataset_of(cursor, charge.dataset)


def _mechanisms(plan: Plan) -> dict[str, Mechanism]:
    return {name: certified.mechanism for name, certified in plan.mechanisms.items()}
