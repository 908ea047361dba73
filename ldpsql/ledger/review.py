"""Settings as a list of terms that somebody can review."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import duckdb

from ldpsql.channels import RepeatedHash
from ldpsql.domains.domain import Domain
from ldpsql.domains.exported import exported
from ldpsql.errors import LdpError, SourceRefused
from ldpsql.ledger.frequency import frequency_of
from ldpsql.ledger.permanent_charges import permanent_claim
from ldpsql.ledger.policy import PERMANENT, Cost, Policy, delta_text
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.mechanisms.spec import decimal_text
from ldpsql.privacy.claims import MetricLdp
from ldpsql.privacy.metric import Grid, Line, Metric
from ldpsql.registry.registry import registry
from ldpsql.registry.shares import PER_DISTANCE, check_total, planned, total_of
from ldpsql.settings import sections

SAID = ("collector", "purpose", "people", "recipient", "retention")  # what only people can say, in the policy of a table
_PASSES = "its values pass through"
Level = Fraction | float


@dataclass(frozen=True)
class Term:
    """One term of a policy.

    Args:
        place: the section of the settings that it belongs to.
        term: what it is about.
        value: what it says, as text.
        level: how much it permits; a higher level is weaker. None if two values have no order: a change is then weaker.
        without: the level if the term is not there. None if to have the term or not has no order either.

    """

    place: str
    term: str
    value: str
    level: Level | None = field(compare=False)
    without: Level | None = field(default=-inf, compare=False)


def read_settings(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sections of a settings file.

    Raises:
        SourceRefused: if there is no such file.
        BadSettings: if it cannot be read.

    """
    if not path.is_file():
        raise SourceRefused("there is no settings file of this name", "for example ldpsql.toml")
    return sections.read(path)


def terms(path: Path) -> list[Term]:
    """Return the terms of a settings file: plugins, tables, other mechanisms, and the ledger.

    Raises:
        SourceRefused, BadSettings, InvalidSpec, UnknownName, InvalidParameter: if it cannot be read.

    """
    read = read_settings(path)
    with _named(str(path)):
        return _terms(read, path.parent)


def _terms(read: Mapping[str, Any], folder: Path) -> list[Term]:
    named = read.get("mechanisms", {})
    return [
        *_of_plugins(read.get("plugins", {})),
        *(term for name, table in read.get("tables", {}).items() for term in _of_table(name, table, named)),
        *(term for name, spec in named.items() for term in _of_mechanism("[mechanisms]", name, mechanism(name, spec), 0)),
        *_of_ledger(read.get("ledger"), folder),
        *_of_lineage(read.get("lineage", {}), folder),
    ]


def _of_plugins(section: Mapping[str, Any]) -> Iterator[Term]:
    """Yield the packages whose code may run; without a list, the user's own file decides. Each difference is weaker."""
    if section.get("allow") is not None:
        yield Term("[plugins]", "allow", ", ".join(sorted(section["allow"])) or "none", None, None)


def mechanism(name: str, spec: Any, section: str = "[mechanisms]") -> Mechanism:
    """Return a mechanism of a settings file; its domain may be a column of a file."""
    with _named(f"{name} in {section}"), duckdb.connect() as con:
        return registry().mechanism(spec, con)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Put the place in front of the message of an error that does not have it yet."""
    try:
        yield
    except LdpError as error:
        if place not in error.message:
            error.message = f"{place}: {error.message}"
            error.args = (error.message,)
        raise


def column_mechanisms(name: str, table: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Mechanism]:
    """Return the mechanism of each column of a table's policy."""
    place = f"[tables.{name}]"
    with _named(place):
        specs = planned(table, named, registry().mechanisms)
    return {column: mechanism(column, spec, place) for column, spec in specs.items()}


def _of_table(name: str, table: Mapping[str, Any], named: Mapping[str, Any]) -> Iterator[Term]:
    place = f"[tables.{name}]"
    with _named(place):
        totals = {key: total_of(table, key) for key in ("epsilon", PER_DISTANCE, "delta")}
    for key, total in totals.items():
        if total:
            yield Term(place, f"{key.replace('_', ' ')} of a row", decimal_text(total), total)
    yield Term(place, "unit", table.get("unit", "row"), None)
    for key in SAID:
        if table.get(key):
            yield Term(place, key, table[key], None, inf)  # to say it is stronger, and to say something else is to be looked at
    if table.get("permanent"):
        yield Term(place, PERMANENT, "the same answer always has the same report", 0, inf)
    every = frequency_of(name, table)
    if every is not None:
        yield Term(place, "frequency", table["frequency"], Fraction(1, every) if every else 0, inf)
    for column in table.get("keep", []):
        yield Term(place, f"column {column}, kept", _PASSES, inf)
    mechanisms = column_mechanisms(name, table, named)
    check_total(name, table, [certify(made).certificate.claim for made in mechanisms.values()])
    for column, made in mechanisms.items():
        yield from _of_mechanism(place, column, made, -inf)


def _of_mechanism(place: str, name: str, made: Mechanism, without: Level) -> Iterator[Term]:
    """Yield what a report costs, of which values, and the mechanism: another one of all this is a change that is not weaker.

    Another domain, and a rule for NULL or for other values that is gone or means another value, are weaker: the same report
    then says something else about a person. A mechanism that is only named costs nothing until somebody uses it, but a new
    one permits more.
    """
    certified = certify(made)
    claim = certified.certificate.claim
    cost = Cost.of(claim)
    yield Term(place, f"{name}, {cost.currency}", str(claim.epsilon), claim.epsilon.value, without)
    if cost.delta:
        yield Term(place, f"{name}, delta", delta_text(cost.delta), Fraction(cost.delta), 0)
    yield Term(place, f"{name}, domain", domain_text(certified), None, without)
    for rule in ("nulls", "outside"):
        if (meaning := getattr(made, rule)) is not None:
            yield Term(place, f"{name}, {rule}", meaning, None, inf)
    if isinstance(claim, MetricLdp):
        yield Term(place, f"{name}, distances", distances(certified, claim.metric), None, without)
    if isinstance(certified.channel, RepeatedHash):
        kept = permanent_claim(certified).epsilon
        yield Term(place, f"{name}, epsilon of {PERMANENT}", str(kept), kept.value, without)
    yield Term(place, f"{name}, mechanism", str(made), 0, 0)


def domain_text(certified: CertifiedMechanism) -> str:
    """Return the values of a mechanism as a text that differs for different ones; their order is part of the mechanism."""
    values = certified.values
    written = sorted(values.written.to_pylist()) if type(values) is Domain else exported(values)
    digest = sha256(json.dumps(written).encode()).hexdigest()[:16]
    return f"{len(written):,} values, SHA-256 {digest}" if type(values) is Domain else f"SHA-256 {digest}"


def distances(certified: CertifiedMechanism, metric: Metric) -> str:
    """Return what a unit of distance is, as a text that differs for different distances; a table's belong to its values."""
    if isinstance(metric, Line):
        return "neighbours are 1 apart"
    if isinstance(metric, Grid):
        return f"cells have sides of {metric.side}"
    table = json.dumps([exported(certified.values), repr(metric)])
    return f"a table, SHA-256 {sha256(table.encode()).hexdigest()[:16]}"


def _of_ledger(section: Mapping[str, Any] | None, folder: Path) -> Iterator[Term]:
    if not section:
        return
    place, limits = "[ledger]", dict(section)
    for key in ("path", "key"):
        if key in limits:
            yield Term(place, key, _file(limits.pop(key), folder), None, inf)
    if limits:
        yield from _of_policy(place, Policy(**limits))
    else:  # the policy that the ledger holds: nobody can say here whether another one permits more
        yield Term(place, "epsilon_budget", "that of the ledger", None, inf)


def _of_lineage(section: Mapping[str, str], folder: Path) -> Iterator[Term]:
    """Yield where names of data and columns go."""
    for key in ("url", "file"):
        if section.get(key):
            yield Term("[lineage]", key, section[key] if key == "url" else _file(section[key], folder), None)


def _file(path: str, folder: Path) -> str:
    """Return a path, relative to the folder of the settings if it is in it."""
    file = Path(path)
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _of_policy(place: str, policy: Policy) -> Iterator[Term]:
    yield Term(place, "epsilon_budget", decimal_text(policy.epsilon_budget), policy.epsilon_budget, inf)
    yield Term(place, "privacy_unit", policy.privacy_unit, None, inf)
    if policy.window is not None:
        yield Term(place, "budget_window", str(policy.budget_window), Fraction(1, policy.window), 0)
    if policy.max_epsilon_per_report is not None:
        most = policy.max_epsilon_per_report.value
        yield Term(place, "max_epsilon_per_report", decimal_text(most), most, inf)
    for key, budget in (("delta_budget", policy.delta_budget), ("distance_budget", policy.distance_budget)):
        if budget:
            yield Term(place, key, decimal_text(budget), budget, 0)
    for group, columns in policy.column_groups.items():
        yield Term(place, f"column_groups, {group}", ", ".join(columns), None, -inf)
