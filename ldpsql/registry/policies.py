"""The mechanisms of columns that the policies of tables name: ``people_city`` is the column city of ``[tables.people]``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ldpsql.errors import BadSettings, LdpError
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.registry.shares import check_total, planned
from ldpsql.settings import Settings

__all__ = ["WrittenPolicy", "named_columns"]


class WrittenPolicy(NamedTuple):
    """The policy of a table, as the settings write it, and the mechanisms of all of its columns."""

    table: str
    written: Mapping[str, Any]
    specs: tuple[Any, ...]

    def check(self, read: Callable[[Any], Mechanism]) -> None:
        """Refuse a policy whose columns spend more than its total; a column that cannot be read yet does not count.

        Args:
            read: reads a mechanism as the settings write it.

        Raises:
            RowBudgetExceeded: if the columns spend more than the total.

        """
        claims = []
        for spec in self.specs:
            with suppress(LdpError):
                claims.append(certify(read(spec)).certificate.claim)
        check_total(self.table, self.written, claims)


def named_columns(settings: Settings, kinds: Mapping[str, type[Mechanism]]) -> tuple[dict[str, Any], dict[str, WrittenPolicy]]:
    """Return the mechanism of each column of a policy by its name, and the policy it belongs to.

    Args:
        settings: the settings. A policy that is wrong names no columns: its error is raised when it is used.
        kinds: the classes of mechanisms, by name.

    Raises:
        BadSettings: if two mechanisms have the same name.

    """
    mechanisms: dict[str, Any] = {}
    policies: dict[str, WrittenPolicy] = {}
    for table, policy in settings.tables.items():
        names = {column: f"{table}_{column}" for column in policy["columns"] if f"{table}_{column}".isidentifier()}
        _refuse_clashes(table, names.values(), {*settings.mechanisms, *mechanisms, *kinds})
        with suppress(LdpError):
            specs = planned(policy, settings.mechanisms, kinds)
            mechanisms |= {name: specs[column] for column, name in names.items()}
            policies |= dict.fromkeys(names.values(), WrittenPolicy(table, policy, tuple(specs.values())))
    return mechanisms, policies


def _refuse_clashes(table: str, names: Iterable[str], others: Iterable[str]) -> None:
    """Refuse a column whose name another mechanism has, too: nobody could see which one is drawn. SQL ignores case."""
    taken = {name.lower() for name in others}
    for name in names:
        if name.lower() in taken:
            raise BadSettings(
                f"'{name}' names a column of [tables.{table}] and another mechanism",
                "rename the mechanism, the table or the column",
            )
        taken.add(name.lower())
