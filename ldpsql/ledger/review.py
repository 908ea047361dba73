"""Settings as a list of terms that somebody can review; what got weaker; what a policy collects from a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

from ldpsql.channels import RepeatedHash
from ldpsql.domains.domain import Domain
from ldpsql.domains.written import exported
from ldpsql.errors import InvalidParameter, LdpError, SourceRefused, UnknownName
from ldpsql.ledger.book import Ledger
from ldpsql.ledger.permanent import permanent_claim
from ldpsql.ledger.policy import (
    EPSILON,
    MICRO,
    PER_DISTANCE,
    PERMANENT,
    ROW,
    YEAR,
    Cost,
    Policy,
    delta_text,
    frequency_of,
    rounds_in_a_year,
)
from ldpsql.ledger.statements import Balance
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedValues, Mechanism, certify
from ldpsql.mechanisms.spec import decimal_text
from ldpsql.privacy.claims import Grid, Line, Metric, MetricLdp
from ldpsql.registry.references import EPSILON_PER_DISTANCE, check_total, planned, total_of
from ldpsql.registry.registry import registry
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
        named = read.get("mechanisms", {})
        return [
            *_of_plugins(read.get("plugins", {})),
            *(term for name, table in read.get("tables", {}).items() for term in _of_table(name, table, named)),
            *(term for name, spec in named.items() for term in _of_mechanism("[mechanisms]", name, mechanism(name, spec), 0)),
            *_of_ledger(read.get("ledger"), path.parent),
            *_of_lineage(read.get("lineage", {}), path.parent),
        ]


def _of_plugins(section: Mapping[str, Any]) -> Iterator[Term]:
    """Yield the packages whose code may run; without a list, the user's own file decides. Each difference is weaker."""
    if section.get("allow") is not None:
        yield Term("[plugins]", "allow", ", ".join(sorted(section["allow"])) or "none", None, None)


def mechanism(name: str, spec: Any, section: str = "[mechanisms]") -> Mechanism:
    """Return a mechanism of a settings file; its domain may be a column of a file."""
    with _named(f"{name} in {section}"):
        return registry().mechanism(spec, files=True)


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
        totals = {key: total_of(table, key) for key in ("epsilon", EPSILON_PER_DISTANCE, "delta")}
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


WEAKER, STRONGER, CHANGED = "weaker", "stronger", "changed"


@dataclass(frozen=True)
class Change:
    """A term that differs between two policies; an empty value stands for a term that is not there."""

    verdict: str
    place: str
    term: str
    old: str
    new: str


def changes(old: list[Term], new: list[Term]) -> list[Change]:
    """Return the terms that differ, the weaker ones first."""
    before, after = ({(term.place, term.term): term for term in each} for each in (old, new))
    differing = (
        Change(
            _verdict(before.get(key), after.get(key)),
            *key,
            *(each[key].value if key in each else "" for each in (before, after)),
        )
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    )
    return sorted(differing, key=lambda change: (WEAKER, CHANGED, STRONGER).index(change.verdict))


def _verdict(old: Term | None, new: Term | None) -> str:
    some = new or old
    if some is None or (old and new and (old.level is None or new.level is None)):
        return WEAKER  # values without an order
    # A term without an order permits more than nothing, and less than no limit.
    before, after = (some.without if term is None else term.level or 0 for term in (old, new))
    if before is None or after is None:
        return WEAKER
    if before == after:
        return CHANGED
    return WEAKER if after > before else STRONGER


WORDS = (*SAID, "frequency")


@dataclass(frozen=True)
class Limit:
    """What the record of releases permits one person to spend, and what was spent.

    Args:
        policy: the policy in force.
        groups: how many budgets the columns of the collection have.
        balances: what was spent in every account, none if nothing was released yet.
        published: the times of all releases, oldest first.

    """

    policy: Policy
    groups: int
    balances: tuple[Balance, ...] = ()
    published: tuple[str, ...] = ()

    def epsilon(self, currency: str) -> Fraction:
        """Return the most that a person spends in one window, in all groups of the columns."""
        return Fraction(self.policy.allowance(currency).epsilon, MICRO) * self.groups

    def in_a_year(self, currency: str) -> Fraction:
        """Return the most that a person spends in the 365 days after the first report: a window begins when one has ended."""
        window = self.policy.window
        return self.epsilon(currency) * (1 if window is None else -(-YEAR // window))


@dataclass(frozen=True)
class Collection:
    """The policy of a table with what follows from it.

    Args:
        name: its name in the settings.
        items: the certified mechanism of each column that is perturbed.
        keep: the columns whose values pass through.
        unit: ``row`` if each row is one person, else the column of user ids.
        words: what the policy says in words, by key: see `WORDS`.
        rounds: how often it is collected in a year; None if the policy does not say.
        limit: what a ledger permits; None if there is no ledger.
        digest: the SHA-256 of the settings, so that an approval is for these.
        permanent: whether a person gives the same report for the same value, in every collection.

    """

    name: str
    items: Mapping[str, CertifiedMechanism]
    keep: tuple[str, ...]
    unit: str
    words: Mapping[str, str]
    rounds: int | None
    limit: Limit | None
    digest: str
    permanent: bool = False

    def planned(self, currency: str = EPSILON, values: int | None = None) -> Fraction | None:
        """Return the epsilon of a year as planned; None if the policy has no frequency.

        Args:
            currency: that of the epsilon.
            values: the most different values that a person has in a column, for permanent reports; by default any number.

        """
        if self.rounds is None or not self.permanent:
            return None if self.rounds is None else self.rounds * self.epsilon(currency)
        most = self.rounds if values is None else min(values, self.rounds)
        costs = (_permanent_cost(certified, currency, most) for certified in self.items.values())
        return sum(costs, Fraction(0))

    def epsilon(self, currency: str = EPSILON) -> Fraction:
        """Return the epsilon of all columns of a row together, or their epsilon per unit of distance."""
        claims = [certified.certificate.claim for certified in self.items.values()]
        far = currency == PER_DISTANCE
        return sum((claim.epsilon.value for claim in claims if isinstance(claim, MetricLdp) is far), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The delta of all columns of a row together."""
        return sum((certified.certificate.claim.delta for certified in self.items.values()), Fraction(0))


def _permanent_cost(certified: CertifiedMechanism, currency: str, values: int) -> Fraction:
    """Return what permanent reports of so many different values cost: of LOLOHA, those of different symbols."""
    claim = certified.certificate.claim
    if isinstance(claim, MetricLdp) is not (currency == PER_DISTANCE):
        return Fraction(0)
    if not isinstance(certified, CertifiedValues):
        return values * claim.epsilon.value
    different = min(values, certified.channel.inputs)
    if isinstance(certified.channel, RepeatedHash):
        return min(different, certified.channel.response.size) * permanent_claim(certified).epsilon.value
    return different * claim.epsilon.value


def collection(path: Path, name: str | None = None, ledger: Path | None = None) -> Collection:
    """Return what a settings file collects under the policy of a table.

    Args:
        path: the settings.
        name: the table; None if there is only one.
        ledger: the file of the ledger; by default the one that the settings name.

    Raises:
        SourceRefused, BadSettings, InvalidSpec, UnknownName, InvalidParameter: if the settings cannot be read.
        RowBudgetExceeded: if the columns spend more than the total.
        LedgerError: if the ledger cannot be used, or has another policy.

    """
    read = read_settings(path)
    name, table = _table(read.get("tables", {}), name)
    rounds = rounds_in_a_year(frequency_of(name, table))
    items = {column: certify(made) for column, made in column_mechanisms(name, table, read.get("mechanisms", {})).items()}
    check_total(name, table, [certified.certificate.claim for certified in items.values()])
    words = {key: table[key] for key in WORDS if table.get(key)}
    limit = _limit(read.get("ledger", {}), ledger, items)
    keep, unit, digest = tuple(table.get("keep", [])), table.get("unit", ROW), sha256(path.read_bytes()).hexdigest()
    return Collection(name, items, keep, unit, words, rounds, limit, digest, table.get("permanent", False))


def _table(tables: Mapping[str, Any], name: str | None) -> tuple[str, Mapping[str, Any]]:
    """Return the policy of a table and its name."""
    if not tables:
        raise InvalidParameter("the settings have no policy of a table", "[tables.people] with epsilon = 2 and columns = {...}")
    if name is None and len(tables) > 1:
        raise InvalidParameter("the settings have policies of several tables", f"name one: {', '.join(tables)}")
    chosen = next(iter(tables)) if name is None else name
    if chosen not in tables:
        raise UnknownName("policy of a table", chosen, tables, "")
    return chosen, tables[chosen]


def _limit(section: Mapping[str, Any], ledger: Path | None, columns: Iterable[str]) -> Limit | None:
    """Return what the ledger permits: that of the file if it exists, else that of the settings."""
    settings = {key: value for key, value in section.items() if key not in ("path", "key")}
    policy = Policy(**settings) if settings else None
    path = ledger or (Path(section["path"]) if "path" in section else None)
    if path is None:
        return None
    if not path.exists() and policy is not None and ledger is None:
        return Limit(policy, _groups(policy, columns))
    opened = Ledger.open(path, policy if path.exists() else None)  # a statement begins no ledger
    times = tuple(dict.fromkeys((row["release"], row["at"]) for row in opened.history() if row["state"] != "returned"))
    return Limit(opened.policy, _groups(opened.policy, columns), tuple(opened.balances()), tuple(at for _, at in times))


def _groups(policy: Policy, columns: Iterable[str]) -> int:
    return len({policy.group(column) for column in columns})
