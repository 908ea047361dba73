"""A release that is asked for: its name, its people, and the fingerprint by which the ledger recognises it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ldpsql.engine.functions import guarded
from ldpsql.errors import InvalidParameter
from ldpsql.ledger.addresses import without_secrets
from ldpsql.ledger.datasets import Dataset
from ldpsql.ledger.entries import ReleaseName, identity_of, policy_of
from ldpsql.ledger.file import snapshot
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import ROW, Policy
from ldpsql.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Request:
    """A release that is asked for under a policy; ``users`` is None if each row is a person."""

    policy: Policy
    dataset: Dataset
    name: ReleaseName
    users: People | None
    identity: str

    @property
    def people(self) -> People:
        """The people who are charged.

        Raises:
            InvalidParameter: if the policy charges by user, and the request has no user ids.

        """
        if self.users is None and self.policy.privacy_unit != ROW:
            raise _other_unit(self.policy, "pass the user id of each row (--user COLUMN)")
        return self.users or People.each_row()


def request_of(
    db: sqlite3.Connection,
    dataset: str | Dataset,
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
    data = Dataset.named(dataset) if isinstance(dataset, str) else dataset
    with snapshot(db):
        policy, salt = policy_of(db)
    if users is not None and policy.privacy_unit == ROW:
        raise _other_unit(policy, "pass no user ids (--user)")
    people = None if users is None else _people_of(users, salt)
    name = ReleaseName(data.name, part, without_secrets(destination))
    return Request(policy, data, name, people, identity_of(policy, people, name, columns))


def _other_unit(policy: Policy, hint: str) -> InvalidParameter:
    return InvalidParameter(f"the ledger charges by {policy.privacy_unit}", hint)


@guarded
def _people_of(users: Any, salt: bytes) -> People:
    return People.of(users, salt)
