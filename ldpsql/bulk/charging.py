"""What a run costs: the ledger is charged before the first draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.batches import Plan
from ldpsql.bulk.sources import Source
from ldpsql.errors import DestinationExists, NotReleased, SourceRefused
from ldpsql.ledger.guard import ledger_files

if TYPE_CHECKING:
    from ldpsql.ledger import Ledger


@dataclass(frozen=True)
class Charge:
    """How a run is charged: the ledger, and what `Ledger.charge` asks for.

    ``dataset`` names the people, ``part`` those rows of it that are in no other part (such as a day), ``user`` the column of
    user ids, where the ledger charges by user.
    """

    ledger: Ledger
    dataset: str
    part: str = ""
    user: str | None = None


def charged(
    con: DuckDBPyConnection, charge: Charge | None, source: Source, plan: Plan, destination: str, *, again: bool, resume: bool
) -> str:
    """Charge for a run before anything is drawn; return the token of the release, nothing where there is no ledger.

    Raises:
        UnknownName, SourceRefused: where the column of user ids is not there, or cannot be read before the others.
        DestinationExists: where the ledger knows that this was published before.
        NotReleased: where the connection has a ledger, and the run has none or another.

    """
    files = ledger_files(con)
    if files and (charge is None or charge.ledger.path.resolve() not in files):
        raise NotReleased(
            "this connection draws only what its own ledger was charged for",
            "pass charge=ldpsql.Charge(ledger, dataset) with that one",
        )
    if charge is None:
        return ""
    users = None
    if charge.user is not None:
        source.check([charge.user])
        if source.once:
            raise SourceRefused("a stream cannot be read twice, for its user ids and to perturb", "pass a frame or a file")
        readers = [part.read([charge.user], (), ()) for part in source.parts]
        users = pa.chunked_array([batch.column(charge.user) for reader in readers for batch in reader])
    columns = {name: known.mechanism for name, known in plan.mechanisms.items()}
    release = charge.ledger.charge(
        charge.dataset, columns, destination, users=users, part=charge.part, again=again, resume=resume
    )
    if release.stored:
        raise DestinationExists(
            "these reports were published there before", "use them; to draw and charge anew: --replace, in Python replace=True"
        )
    return release.token
