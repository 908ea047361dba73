"""Policies of tables, ``[tables.people]`` in the settings: the mechanisms of the columns, and what a row may spend in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql import settings
from ldpsql.errors import BadSettings, InvalidParameter, InvalidSpec, LdpError, UnknownName
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.mechanisms.calls import read_call
from ldpsql.registry.registry import registry
from ldpsql.registry.shares import check_total, planned

ROW = "row"
_EXAMPLE = '[tables.people] with epsilon = 2 and columns = {city = "city"}'


@dataclass(frozen=True)
class TablePolicy:
    """The policy of a table.

    Args:
        name: its name in the settings.
        mechanisms: the mechanism of each column that is perturbed.
        keep: the columns whose values pass through.
        unit: ``row`` if each row is one person, else the column of user ids.
        reports: the table or file that holds the reports, if the settings name it.
        permanent: whether a person gives the same report for the same value, whenever it is collected.

    """

    name: str
    mechanisms: Mapping[str, Mechanism]
    keep: tuple[str, ...]
    unit: str
    reports: str
    permanent: bool = False

    def check_reports(self, *, permanent: bool) -> None:
        """Check that a run does not draw new reports if the policy declares them permanent.

        Raises:
            InvalidParameter: if it does.

        """
        if self.permanent and not permanent:
            raise new_reports(self.name)

    @property
    def by_row(self) -> bool:
        """Whether each row is one person."""
        return self.unit == ROW


def check_new_reports(specs: Iterable[Mechanism | str | Mapping[str, Any]]) -> None:
    """Check that no new reports are drawn by the name of a column whose policy declares permanent ones, such as people_city.

    Raises:
        InvalidParameter: if they are.

    """
    for spec in specs:
        if table := permanent_table(spec):
            raise new_reports(table)


def permanent_table(spec: object, named: frozenset[str] = frozenset()) -> str:
    """Return the table whose policy declares permanent reports for the column that a spec names, also within a row, or ''.

    Args:
        spec: the mechanism.
        named: names in the settings whose mechanism it is within.

    """
    if not any(policy.written.get("permanent") for policy in registry().policies.values()):
        return ""
    if isinstance(spec, Mapping):
        return next(filter(None, (permanent_table(part, named) for part in spec.values())), "")
    name = spec.strip() if isinstance(spec, str) else ""
    if name in registry().policies:
        table, written, _ = registry().policies[name]
        return table if written.get("permanent") else ""
    if name in registry().named:
        return "" if name in named else permanent_table(registry().named[name], named | {name})
    with suppress(InvalidSpec):  # raised when it is read
        _, arguments, keywords = read_call(name)
        return permanent_table(dict(enumerate([*arguments, *keywords.values()])), named)
    return ""


def new_reports(table: str) -> InvalidParameter:
    """Return the error for new reports of a table whose policy declares permanent ones."""
    return InvalidParameter(
        f"[tables.{table}] declares permanent reports, and this run would draw new ones",
        "draw permanent ones: on the command line with --permanent, in SQL ldp.perturb_once, in Python permanent=True or "
        "perturb_once, in dbt 'permanent': true",
    )


def table_policy(name: str, con: DuckDBPyConnection | None = None) -> TablePolicy:
    """Return a policy of the settings, after a check that its columns together spend at most the total of a row.

    Args:
        name: the name in the settings.
        con: the connection that has the tables which domains refer to.

    Raises:
        UnknownName, BadSettings: if there is no such policy, or it cannot be read.
        RowBudgetExceeded: if the columns spend more than the total.

    """
    chosen = settings.load()
    tables = chosen.tables
    if name not in tables:
        raise UnknownName("policy of a table", name, tables, f"write {_EXAMPLE} into ldpsql.toml")
    table = tables[name]
    if set(table["columns"]) & set(table.get("keep", [])):
        raise BadSettings(f"[tables.{name}] both perturbs and keeps a column", "name it once")
    if not table["columns"]:
        raise BadSettings(f"[tables.{name}] has no columns to perturb", f"for example {_EXAMPLE}")
    specs = planned(table, chosen.mechanisms, registry().mechanisms)
    mechanisms = {column: _mechanism(name, column, spec, con) for column, spec in specs.items()}
    check_total(name, table, [certify(mechanism).certificate.claim for mechanism in mechanisms.values()])
    keep, unit, reports = tuple(table.get("keep", [])), table.get("unit", ROW), table.get("reports", "")
    return TablePolicy(name, mechanisms, keep, unit, reports, table.get("permanent", False))


def _mechanism(name: str, column: str, spec: Any, con: DuckDBPyConnection | None) -> Mechanism:
    try:
        return registry().mechanism(spec, con)
    except LdpError as error:
        raise BadSettings(f"the column '{column}' of [tables.{name}]: {error.message}", error.hint) from None
