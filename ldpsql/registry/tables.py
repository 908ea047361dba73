"""Policies of tables, ``[tables.people]`` in the settings: the mechanisms of the columns, and what a row may spend in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql import settings
from ldpsql.engine.identity import COMPUTED, Identity, alike, is_path, parts
from ldpsql.engine.sql_struct import columns_of
from ldpsql.errors import BadSettings, LdpError, OutsidePolicy, UnknownName
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.registry.documents import digits_of
from ldpsql.registry.references import check_total, planned
from ldpsql.registry.registry import registry

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

    @property
    def by_row(self) -> bool:
        """Whether each row is one person."""
        return self.unit == ROW


def check_policies(
    whose: Identity | None,
    columns: Mapping[str, Mechanism],
    *,
    keep: Iterable[str] = (),
    permanent: bool = False,
    policy: str | None = None,
    con: DuckDBPyConnection | None = None,
) -> None:
    """Check that what is drawn, and kept, of a source is what the policies of its tables allow, by fingerprints.

    If the source is not identified, such as a frame or a value, new reports are refused of every mechanism with which some
    policy declares permanent ones, and nothing else.

    Args:
        whose: the source; None if nobody can see what a statement reads, such as a temporary view: only what some policy has
            may then be drawn.
        columns: the mechanism of each column; the name '' stands for a column whose name is not known.
        keep: the columns whose values pass through.
        permanent: whether the reports are permanent.
        policy: the policy that the run names, which has its mechanisms.
        con: the connection that has the tables which domains refer to.

    Raises:
        OutsidePolicy: if it is something else.
        UnknownName, BadSettings, RowBudgetExceeded: if such a policy cannot be used.

    """
    tables = settings.load().tables
    bound = [*tables] if whose is None else _bound(whose, tables)
    if bound and policy is not None and policy not in bound:
        raise _outside(bound[0], f"another policy, [tables.{policy}],")
    policies = _read([policy] if policy else bound, con, all_of_them=whose is not None)
    drawn = [part for column, mechanism in columns.items() for part in _parts(column, mechanism)]
    if bound or policy:
        _check_columns(policies, drawn, keep, permanent=permanent, seen=whose is not None)
    elif whose is not None and not whose.base and not permanent:
        lasting = _read((name for name, table in tables.items() if table.get("permanent")), con, all_of_them=False)
        for one in lasting:
            if any(_has(one, "", mechanism) for _, mechanism in drawn):
                raise new_reports(one.name)


def _read(names: Iterable[str], con: DuckDBPyConnection | None, *, all_of_them: bool) -> list[TablePolicy]:
    """Return policies; unless ``all_of_them`` are needed, one whose domain cannot be read here is left out."""
    policies = []
    for name in names:
        with nullcontext() if all_of_them else suppress(LdpError):
            policies.append(table_policy(name, con))
    return policies


def _check_columns(
    policies: list[TablePolicy], drawn: list[tuple[str, Mechanism]], keep: Iterable[str], *, permanent: bool, seen: bool
) -> None:
    for column, mechanism in drawn:
        allowing = [one for one in policies if _has(one, column, mechanism)]
        if not allowing and not seen:
            raise OutsidePolicy(
                "nobody can see which table this statement reads, and no policy has this mechanism",
                "draw from a table, a view or a file, not from temporary or uncommitted ones, and not with EXECUTE",
            )
        if not allowing:
            raise _outside(policies[0].name, f"{mechanism.name} with other parameters, or of a column that it does not name,")
        if not permanent and all(one.permanent for one in allowing):
            raise new_reports(allowing[0].name)
    kept = {name.casefold() for one in policies for name in one.keep}
    if any(name.casefold() not in kept for name in keep):
        raise _outside(policies[0].name, "keeping a column that it does not keep")


def _parts(column: str, mechanism: Mechanism) -> list[tuple[str, Mechanism]]:
    """Return the mechanisms of the columns of a row, each with its column; any other mechanism with its own column."""
    return [(column and part.column, part.mechanism) for part in columns_of(mechanism)] or [(column, mechanism)]


def _has(policy: TablePolicy, column: str, mechanism: Mechanism) -> bool:
    """Return whether a policy perturbs a column, or if its name is not known any column, with a mechanism."""
    theirs = (m for name, m in policy.mechanisms.items() if column == "" or name.casefold() == column.casefold())
    digits = digits_of(mechanism)
    return any(digits_of(part) == digits for one in theirs for _, part in [("", one), *_parts("", one)])


def _bound(whose: Identity, tables: Mapping[str, Any]) -> list[str]:
    """Return the policies of a source: those of its own name, else those of all tables and files that it reads."""
    own = [name for name in tables if _names(name, whose.name)]
    return own or [name for name in tables if any(_names(name, one) for one in whose.names)]


def _names(policy: str, name: str) -> bool:
    """Whether the name of a policy is that of a table, or of a file or its folder without suffixes."""
    if name == COMPUTED:  # it may be any file
        return True
    *folders, last = (part for part in parts(name) if "=" not in part and "*" not in part) if is_path(name) else [""]
    files = {last.partition(".")[0], *folders[-1:]} if is_path(name) else set()
    return alike(policy, name) or parts(policy)[-1] in files


def _outside(table: str, deed: str) -> OutsidePolicy:
    return OutsidePolicy(
        f"[tables.{table}] does not allow {deed} for these rows",
        f"use the policy itself: policy='{table}', on the command line --table {table}, in SQL ldp.m.{table}_COLUMN(); or "
        "change the policy",
    )


def new_reports(table: str) -> OutsidePolicy:
    """Return the error for new reports of a table whose policy declares permanent ones."""
    return OutsidePolicy(
        f"[tables.{table}] declares permanent reports, and this run would draw new ones",
        "draw permanent ones: on the command line with --permanent, in SQL ldp.perturb_once, in Python permanent=True or "
        "perturb_once, in dbt 'permanent': true",
    )


def table_policy(name: str, con: DuckDBPyConnection | None = None) -> TablePolicy:
    """Return a policy of the settings, after a check that its columns together spend at most the total of a row.

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
