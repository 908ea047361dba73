"""What a run perturbs and keeps: as its arguments say, or as the policy of a table in the settings says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from duckdb import DuckDBPyConnection

from ldpsql import settings
from ldpsql.bulk.charging import Charge, Charged, charge_of
from ldpsql.bulk.columns.mechanisms import Columns, by_column, names_of
from ldpsql.bulk.columns.projection import Projection
from ldpsql.bulk.permanent import is_permanent, permanent_of
from ldpsql.bulk.reading.parts import Source
from ldpsql.engine.identity import Identity
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import InvalidParameter, NotReleased
from ldpsql.ledger.permanent import Key
from ldpsql.registry.tables import TablePolicy, check_policies, table_policy
from ldpsql.sql.named import mechanism_of


class Chosen(NamedTuple):
    """The mechanism of each column that is perturbed, and the columns that are kept."""

    mechanisms: Columns
    keep: tuple[str, ...]
    policy: TablePolicy | None = None

    def charge(self, argument: Charged, con: DuckDBPyConnection | None = None) -> Charge | None:
        """Return the charge of a run, as `charge_of` reads it, with the column of user ids of the policy.

        Raises:
            NotReleased: if the policy counts by user and the run charges no ledger, or one that counts otherwise.

        """
        charge = charge_of(argument, con)
        if self.policy is None:
            return charge
        unit = charge.ledger.policy.privacy_unit if charge else "row"
        if unit != self.policy.unit:
            raise NotReleased(
                f"the privacy unit of [tables.{self.policy.name}] is {self.policy.unit}, and that of the run is {unit}",
                "charge a ledger with the same privacy_unit (charge='people', --dataset people), or change the policy",
            )
        return replace(charge, user=charge.user or self.policy.unit) if charge and not self.policy.by_row else charge

    def check(
        self, projection: Projection, charge: Charge | None, source: Source | None = None, con: DuckDBPyConnection | None = None
    ) -> None:
        """Check that the policies of the source allow what happens to its columns.

        A source that is not identified goes by the name of its charge.

        Raises:
            OutsidePolicy: if they do not.

        """
        if not settings.load().tables:
            return
        named = Identity.named(charge.dataset) if charge else Identity("", ())
        whose = named
        if con is not None and source is not None:
            with cursor_of(con) as cursor:
                whose = source.whose(cursor, False)
        check_policies(
            whose if whose.base else named,
            projection.uncertified,
            keep=projection.keep,
            permanent=projection.permanent is not None,
            policy=None if self.policy is None else self.policy.name,
            con=con,
        )

    def projection(
        self,
        charge: Charge | None,
        con: DuckDBPyConnection | None,
        *,
        permanent: bool,
        key: Key | str | Path | None,
        user: str | None,
    ) -> Projection:
        """Return what happens to the columns of a run; its permanent reports are by the user ids of the policy.

        Raises:
            InvalidParameter: if no column is to be perturbed, one also to be kept, or the arguments do not fit together.
            KeyUnusable: if permanent reports have no key.

        """
        unit = None if self.policy is None or self.policy.by_row else self.policy.unit
        asked = is_permanent(permanent=permanent, key=key, user=user)
        return Projection.of(self.mechanisms, self.keep, permanent_of(key, user or unit, charge, con) if asked else None)


def chosen_columns(
    columns: Columns | None,
    keep: Iterable[str],
    policy: str | None,
    con: DuckDBPyConnection | None = None,
) -> Chosen:
    """Return the columns of a run from its arguments.

    Args:
        columns: the mechanism of each column, or of a row; None if a policy has them.
        keep: the columns to keep, which a policy has too.
        policy: the name of a policy in the settings.
        con: the connection that may name mechanisms and has the tables of domains.

    Raises:
        InvalidParameter: unless either columns or a policy is passed.
        RowBudgetExceeded, BadSettings, UnknownName: if the policy cannot be used.

    """
    kept = names_of(keep, "keep")
    if policy is None and columns is not None:
        named = columns if con is None else by_column(columns, lambda mechanism: mechanism_of(mechanism, con))
        return Chosen(named, kept)
    if policy is None or columns is not None or kept:
        raise InvalidParameter(
            "a run needs either columns with mechanisms or the policy of a table", "policy='people' stands for columns and keep"
        )
    chosen = table_policy(policy, con)
    return Chosen(chosen.mechanisms, chosen.keep, chosen)
