"""Charges for permanent reports: a person pays once for each value of a column, whenever it is first reported.

The ledger keeps a keyed fingerprint of each person, column, channel and value that was charged, as an account of its own, so
that they are sealed and written together with what people spent. Without the key of the reports, a fingerprint says nothing.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import RepeatedHash
from ldpsql.engine.identity import Identity
from ldpsql.errors import ChangedReports, InvalidParameter, NotPrivate, PolicyMismatch
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.accounts import load, store
from ldpsql.ledger.book import Ledger
from ldpsql.ledger.digests import DIGEST, distinct, placed
from ldpsql.ledger.entries import (
    ColumnCost,
    Release,
    ReleaseName,
    column_costs,
    now_of,
    policy_of,
    release_digest,
    write_charge,
    write_release,
)
from ldpsql.ledger.file import reading, snapshot, writing
from ldpsql.ledger.keyed import channel_of
from ldpsql.ledger.people import People, pseudonyms_of, warn_of_alike
from ldpsql.ledger.policy import PERMANENT, ROW, Cost, Policy
from ldpsql.ledger.spending import AccountKey, accounts_of, spend
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.privacy.claims import PureLdp
from ldpsql.privacy.owned import own_epsilon


@dataclass(frozen=True)
class Reported:
    """The different permanent reports of a column: fingerprints in ascending order, and the person of each, as bytes."""

    certified: CertifiedMechanism
    fingerprints: NDArray[np.bytes_]
    people: pa.Array

    @classmethod
    def of(cls, certified: CertifiedMechanism, fingerprints: NDArray[np.bytes_], people: pa.Array) -> Reported:
        """Return the different reports among those of all rows."""
        different, rows, _ = distinct(fingerprints)
        return cls(certified, different, people.take(pa.array(rows)))

    def unpaid(self, charged: NDArray[np.bytes_], salt: bytes) -> _Unpaid:
        """Return those that were not charged; the fingerprints of those that were are in ascending order."""
        _, new = placed(charged, self.fingerprints)
        people = self.people if new.all() else self.people.filter(pa.array(new))
        return _Unpaid(_digest(self.certified), self.fingerprints[new], pseudonyms_of(people, salt))


@dataclass(frozen=True)
class _Unpaid:
    """Reports of a channel that were not charged: fingerprints in ascending order, and the pseudonym of each person."""

    channel: str
    fingerprints: NDArray[np.bytes_]
    pseudonyms: NDArray[np.bytes_]

    def among(self, chosen: NDArray[np.bool_]) -> _Unpaid:
        """Return some of them."""
        return _Unpaid(self.channel, self.fingerprints[chosen], self.pseudonyms[chosen])

    def by_person(self) -> People:
        """Return who has how many of them."""
        pseudonyms, _, reports = distinct(self.pseudonyms)
        return People(pseudonyms, reports)


@withheld
def charge_columns_once(
    ledger: Ledger, dataset: str | Identity, columns: Mapping[str, Reported], destination: str
) -> list[Release]:
    """Record what the permanent reports of columns cost each person; those that were charged before cost nothing.

    The charge is on the disk when this returns, together with the fingerprints of what was charged: of all columns, or of none.

    Args:
        ledger: the ledger, which charges by user.
        dataset: the name of the data, for the history.
        columns: the reports of each column.
        destination: where the reports go, for the history.

    Returns:
        the release of each column.

    Raises:
        BudgetExceeded: if somebody's budget would be exceeded; then nothing is charged.
        InvalidParameter: if the ledger charges by row, or a mechanism has no permanent reports.
        LedgerError: if the ledger cannot be used; then nothing may be drawn.

    """
    data = Identity.named(dataset) if isinstance(dataset, str) else dataset
    name = ReleaseName(data.name, "", destination)
    for one in columns.values():
        warn_of_alike(one.people.unique())
    with reading(ledger.path) as db:
        with snapshot(db):
            policy, salt = policy_of(db)
            if policy.privacy_unit == ROW:
                raise InvalidParameter("the ledger charges by row, and permanent reports need persons", "privacy_unit = 'id'")
            costs = [_cost(policy, column, one.certified) for column, one in columns.items()]
            charged = [_charged(db, policy, one.fingerprints) for one in columns.values()]
        # People are hashed here, as others wait while this process writes.
        unpaid = [one.unpaid(before, salt) for one, before in zip(columns.values(), charged, strict=True)]
        with writing(db):
            if policy_of(db) != (policy, salt):
                raise PolicyMismatch("the policy of the ledger was changed meanwhile", "try again")
            tokens = [
                _charge(db, policy, cost, reports, name, source=data.source)
                for cost, reports in zip(costs, unpaid, strict=True)
            ]
    return [Release(token, *name, "charged") for token in tokens]


def _digest(certified: CertifiedMechanism) -> str:
    """Return a digest of the channel of permanent reports."""
    return blake2b(json.dumps(channel_of(certified)).encode(), digest_size=8).hexdigest()


def _warn_if_changed(db: sqlite3.Connection, token: str, column: str, dataset: str, drawn: str) -> None:
    """Warn if the reports of a column were last charged for another channel; releases before version 0.2 do not say which."""
    latest = """SELECT r.identity FROM release r JOIN charge c ON c.release = r.id
        WHERE r.token <> ? AND c.column_name = ? AND r.dataset = ? AND r.identity GLOB ? ORDER BY r.id DESC LIMIT 1"""
    before = db.execute(latest, [token, column, dataset, f"{PERMANENT} ???????????????? *"]).fetchone()
    if before is not None and before[0].removeprefix(f"{PERMANENT} ").partition(" ")[0] != drawn:
        warnings.warn(
            f"the permanent reports of the column '{column}' were charged for another mechanism before: people get new ones",
            ChangedReports,
            stacklevel=7,
        )


def _kept(policy: Policy) -> AccountKey:
    """Return the key of the account that holds the fingerprints."""
    return AccountKey(policy.privacy_unit, "", "", PERMANENT)


def _charged(db: sqlite3.Connection, policy: Policy, fingerprints: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """Return charged fingerprints, including all of these that were charged; an empty array before the first charge."""
    kept = accounts_of(db, [""], _kept(policy), made=False)
    return load(db, kept[0], fingerprints, DIGEST) if kept else np.empty(0, dtype=DIGEST)


def _charge(
    db: sqlite3.Connection, policy: Policy, cost: ColumnCost, unpaid: _Unpaid, name: ReleaseName, *, source: str
) -> str:
    """Charge for reports unless others charged them meanwhile, within a transaction, and return the token of the release."""
    (kept,) = accounts_of(db, [""], _kept(policy))
    before = load(db, kept, unpaid.fingerprints, DIGEST)
    at, unknown = placed(before, unpaid.fingerprints)
    new, now = unpaid.among(unknown), now_of(db)
    people = new.by_person()
    identity = f"{PERMANENT} {new.channel} {release_digest(policy, people, name, {})}"
    token = write_release(db, now, identity, name, people, source=source)
    account_key = AccountKey(policy.privacy_unit, "", cost.group, cost.cost.currency)
    for account in accounts_of(db, [""], account_key):
        if len(people.reports):
            spend(db, account, people, cost.cost, policy, now=now)
        write_charge(db, token, cost, account)
    if len(people.reports):
        store(db, kept, np.insert(before, at[unknown], new.fingerprints))
        _warn_if_changed(db, token, cost.column, name.dataset, new.channel)
    return token


def _cost(policy: Policy, column: str, certified: CertifiedMechanism) -> ColumnCost:
    """Return the cost of all reports of one value; of LOLOHA, that of the response that is kept."""
    (cost,) = column_costs(policy, {column: certified.mechanism})
    if not isinstance(certified.channel, RepeatedHash):
        return cost
    claim = permanent_claim(certified)
    return replace(cost, claim=f"{claim} for all reports of a symbol", cost=Cost.of(claim))


def permanent_claim(certified: CertifiedMechanism) -> PureLdp:
    """Return the claim of all reports of LOLOHA that share the response that is kept.

    Raises:
        NotPrivate: if that response does not keep it.

    """
    claim = PureLdp(own_epsilon(getattr(certified.mechanism, "permanent", None)))
    if not isinstance(certified.channel, RepeatedHash) or certified.channel.response.widest().ratio > claim.limit:
        raise NotPrivate("the permanent response does not keep its epsilon", "use a mechanism that check_mechanism accepts")
    return claim
