"""A release that is asked for: its name, its people, and the fingerprint by which the ledger recognises it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ldpsql.engine.functions import guarded
from ldpsql.engine.identity import Identity, without_secrets
from ldpsql.errors import InvalidParameter
from ldpsql.ledger.entries import Release, ReleaseName, policy_of, release_digest, release_of
from ldpsql.ledger.file import snapshot
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import ROW, Policy
from ldpsql.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Request:
    """A release that is asked for under a policy.

    Args:
        policy: the policy.
        dataset: whose rows they are.
        name: what the release is called.
        users: the people; None if each row is a person.
        identity: the fingerprint by which the ledger recognises the release.
        state: the name of the rows as they are now, whatever part they are called; '' if they are not known.

    """

    policy: Policy
    dataset: Identity
    name: ReleaseName
    users: People | None
    identity: str
    state: str

    @property
    def accounts(self) -> list[tuple[str, tuple[str, ...]]]:
        """The parts with the names of the accounts that are charged; the same rows are the same people in every part."""
        if self.users is not None:
            return [("", ("",))]
        rows = [("", (self.state,))] if self.state else []
        return [(self.name.part, self.dataset.names), *rows]

    @property
    def people(self) -> People:
        """The people who are charged.

        Raises:
            InvalidParameter: if the policy charges by user, and the request has no user ids.

        """
        if self.users is None and self.policy.privacy_unit != ROW:
            raise _other_unit(self.policy, "pass the user id of each row (--user COLUMN)")
        return self.users or People.each_row()

    def identity_at(self, destination: str, columns: Mapping[str, Mechanism]) -> str:
        """Return the fingerprint that the request would have for another destination."""
        name = self.name._replace(destination=destination)
        return release_digest(self.policy, self.users, name, columns, self.dataset.base)


def renamed(
    db: sqlite3.Connection, request: Request, columns: Mapping[str, Mechanism], tokens: Collection[str]
) -> Release | None:
    """Return a published release of these tokens that is the request for another destination; None if there is none."""
    for token in tokens:
        row = db.execute("SELECT identity, destination FROM release NOT INDEXED WHERE token = ?", [token]).fetchone()
        if row and row[0] == request.identity_at(row[1], columns):
            release = release_of(db, token)
            if release.stored:
                return release
    return None


def request_of(
    db: sqlite3.Connection,
    dataset: str | Identity,
    columns: Mapping[str, Mechanism],
    destination: str,
    *,
    users: Any,
    part: str,
) -> Request:
    """Return the request for a release, under the policy in force.

    Raises:
        InvalidParameter: if it has user ids, and the policy charges by row.

    """
    data = Identity.named(dataset) if isinstance(dataset, str) else dataset
    with snapshot(db):
        policy, salt = policy_of(db)
    if users is not None and policy.privacy_unit == ROW:
        raise _other_unit(policy, "pass no user ids (--user)")
    people = None if users is None else _people_of(users, salt)
    name = ReleaseName(data.name, part, without_secrets(destination))
    identity = release_digest(policy, people, name, columns, data.base)
    return Request(policy, data, name, people, identity, data.state(salt))


def _other_unit(policy: Policy, hint: str) -> InvalidParameter:
    return InvalidParameter(f"the ledger charges by {policy.privacy_unit}", hint)


@guarded
def _people_of(users: Any, salt: bytes) -> People:
    return People.of(users, salt)
