"""What a policy collects from a person: once, in a year, and up to which limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

from ldpsql.channels import RepeatedHash
from ldpsql.errors import InvalidParameter, UnknownName
from ldpsql.ledger.book import Ledger
from ldpsql.ledger.frequency import YEAR, frequency_of, rounds_in_a_year
from ldpsql.ledger.permanent_charges import permanent_claim
from ldpsql.ledger.policy import EPSILON, MICRO, PER_DISTANCE, ROW, Policy
from ldpsql.ledger.review import SAID, column_mechanisms, read_settings
from ldpsql.ledger.statements import Balance
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedValues, certify
from ldpsql.privacy.claims import ApproximateLdp, MetricLdp
from ldpsql.registry.shares import check_total

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
        claims = [certified.certificate.claim for certified in self.items.values()]
        return sum((claim.delta for claim in claims if isinstance(claim, ApproximateLdp)), Fraction(0))


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
