"""The budget that the ledger of a connection has spent, and what is left."""

from __future__ import annotations

from dataclasses import asdict

from ldpsql.functions import GIVE_LEDGER, Macros, NotReleased, Scalar, Wholes, by_row, guard_at, hookimpl

_BALANCE = (
    "STRUCT(unit VARCHAR, dataset VARCHAR, part VARCHAR, column_group VARCHAR, currency VARCHAR, people BIGINT, "
    "spent VARCHAR, remaining VARCHAR, spent_delta VARCHAR)[]"
)


@by_row(Wholes)
def budget(number: int | None) -> list[dict[str, object]]:
    """Return the balances of the ledger of a guard."""
    guard = guard_at(number)
    if guard is None or guard.ledger is None:
        raise NotReleased("this connection has no ledger", GIVE_LEDGER)
    return [asdict(balance) for balance in guard.ledger.balances()]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.budget()``."""
    return [Scalar("__ldp_budget", budget, _BALANCE, volatile=True, draws=False), Macros.beside(__file__)]
