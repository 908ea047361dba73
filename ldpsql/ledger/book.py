"""The ledger of privacy budgets: what was spent on whom, written down before anything is drawn.

    charge (on the disk) -> draw -> publish

A crash between the first and the last leaves a release that is charged and not published: people lose budget, never privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ldpsql.engine.functions import guarded
from ldpsql.errors import InvalidParameter, PolicyMismatch, UnfinishedRun
from ldpsql.errors.boundary import withheld, withheld_block
from ldpsql.ledger import statements
from ldpsql.ledger.datasets import Dataset
from ldpsql.ledger.entries import (
    Release,
    body,
    charged,
    check_earlier,
    clock,
    found,
    identity_of,
    known,
    lines_of,
    now_of,
    policy_of,
    refuse_new_rows,
    was_drawn,
    write_charge,
    write_release,
)
from ldpsql.ledger.file import create, reading, snapshot, writing
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import Policy
from ldpsql.ledger.seals import check_entries, enter
from ldpsql.ledger.spending import Asked, accounts_of, spend
from ldpsql.ledger.statements import Balance
from ldpsql.mechanisms.base import Mechanism


class Ledger:
    """A ledger file and its policy; make one with `open`. Any number of processes and threads may use the same file."""

    def __init__(self, path: Path, policy: Policy) -> None:
        self.path = path
        self.policy = policy

    @classmethod
    def open(cls, path: str | Path, policy: Policy | Mapping[str, Any] | None = None) -> Ledger:
        """Open a ledger; with a policy also begin one where there is none.

        Raises:
            LedgerMissing: where there is none, and no policy.
            PolicyMismatch: where the ledger keeps another policy; `adopt` changes it, and writes that down.
            LedgerError: where the file cannot be used.

        """
        wanted = Policy(**policy) if isinstance(policy, Mapping) else policy
        path = Path(path).absolute()  # a process may change its folder
        if wanted is not None and not path.exists():
            create(path, body(wanted), clock())
        with reading(path) as db, snapshot(db):
            kept, _ = policy_of(db)
        if wanted is not None and wanted != kept:
            raise PolicyMismatch(
                "the ledger keeps another policy than the one that is configured",
                "compare with: ldpsql budget show; to change it: ldpsql budget adopt",
            )
        return cls(path, kept)

    def adopt(self, policy: Policy) -> None:
        """Replace the policy. What was spent stays spent; history keeps both.

        Raises:
            PolicyMismatch: where the unit of privacy or the group of a column that was charged would change.
            LedgerDamaged: where releases or charges are not as they were written.

        """
        with reading(self.path) as db, writing(db):
            check_entries(db)
            _, salt = policy_of(db)
            if any(unit != policy.privacy_unit or policy.group(column) != group for unit, column, group in charged(db)):
                raise PolicyMismatch(
                    "another unit of privacy or other groups of columns would forget what was spent",
                    "budgets may change; unit and groups only of columns that were never charged",
                )
            db.execute("INSERT INTO policy (at, body, salt) VALUES (?, ?, ?)", [now_of(db), body(policy), salt])
        self.policy = policy

    @withheld
    def charge(
        self,
        dataset: str | Dataset,
        columns: Mapping[str, Mechanism],
        destination: str,
        *,
        users: Any = None,
        rows: int | None = None,
        part: str = "",
        again: bool = False,
        resume: bool = False,
    ) -> Release:
        """Write down what a release costs everybody in it, all or nothing; it is on the disk when this returns.

        The same release again (same dataset, people, columns, mechanisms and destination) is the stored one, free of charge.

        Args:
            dataset: a name for the people of the data; the same name means the same people, in upper or lowercase. A `Dataset`
                also says which tables and files it reads; each of them is charged.
            columns: the mechanism of each column.
            destination: where the reports go.
            users: the user id of each row, where the policy's ``privacy_unit`` is a column of user ids.
            rows: the number of rows, where each row is a person and the number is known.
            part: a part of the dataset whose rows are in no other part, such as a day: parts do not add up.
            again: charge and draw anew although it was published before.
            resume: take up a release that was charged and never published nor `drawn`; only where nothing of it has left.

        Raises:
            BudgetExceeded: where it would cost somebody more than the policy allows; then nothing is charged.
            NotReleased: where it was published for fewer rows.
            LedgerError: where the ledger cannot be used; then nothing may be released.

        """
        data = Dataset.named(dataset) if isinstance(dataset, str) else dataset
        named = (data.name, part, destination)
        with reading(self.path) as db:
            with snapshot(db):
                policy, salt = policy_of(db)
            people = self._people(policy, users, salt)
            lines = lines_of(policy, columns)
            counted = None if users is None else people
            identity = identity_of(policy, counted, named, columns)
            asked = Asked.of(people)
            with writing(db):
                if policy_of(db)[0] != policy:  # somebody adopted another one just now
                    raise PolicyMismatch("the policy of the ledger was changed meanwhile", "try again")
                earlier = known(db, identity)
                taken_up = resume and earlier and not earlier.stored and not was_drawn(db, earlier.token)
                if earlier and (taken_up or (earlier.stored and not again)):
                    check_earlier(db, earlier, identity)
                    refuse_new_rows(db, earlier, rows)
                    return earlier
                now = now_of(db)
                token = write_release(db, now, identity, named, counted or rows)
                charged_names, its_part = (data.charged, part) if users is None else (("",), "")
                for line in lines:
                    where = (policy.privacy_unit, its_part, line.group, line.cost.currency)
                    for account in accounts_of(db, charged_names, where):
                        spend(db, account, asked, line.cost, policy, now=now)
                        write_charge(db, token, line, account)
        return Release(token, *named, "charged")

    def unfinished(
        self,
        dataset: str | Dataset,
        columns: Mapping[str, Mechanism],
        destination: str,
        *,
        users: Any = None,
        part: str = "",
    ) -> Release | None:
        """Return the release that was charged and never published; takes what `charge` takes, and charges nothing."""
        data = Dataset.named(dataset) if isinstance(dataset, str) else dataset
        with reading(self.path) as db, snapshot(db):
            policy, salt = policy_of(db)
            people = None if users is None else self._people(policy, users, salt)
            identity = identity_of(policy, people, (data.name, part, destination), columns)
            release = known(db, identity)
            if release is None or release.stored:
                return None
            check_earlier(db, release, identity)
        return release

    @staticmethod
    def _people(policy: Policy, users: Any, salt: bytes) -> People:
        if (users is None) != (policy.privacy_unit == "row"):
            raise InvalidParameter(
                f"the ledger charges by {policy.privacy_unit}",
                "pass no user ids (--user)" if policy.privacy_unit == "row" else "pass the user id of each row (--user COLUMN)",
            )
        return People.each_row() if users is None else _people_of(users, salt)

    def drawn(self, token: str, *, once: bool = False) -> None:
        """Write down that the reports of a release are about to be where others see them; no `charge` takes it up any more.

        Raises:
            UnfinishedRun: if this is to happen ``once`` and another run did it, for two runs may take up the same release.

        """
        with reading(self.path) as db, writing(db):
            if not was_drawn(db, found(db, token).token):
                enter(db, token, "drawn")
            elif once:
                raise UnfinishedRun("another run has drawn the reports of this charge", "use its reports")

    def publish(self, release: Release) -> Release:
        """Write down that the reports of a release are where they belong.

        Raises:
            UnknownRelease: where the ledger does not know it.

        """
        with reading(self.path) as db, writing(db):
            kept = found(db, release.token)
            if not kept.stored:
                db.execute("UPDATE release NOT INDEXED SET published_at = ? WHERE token = ?", [now_of(db), release.token])
                enter(db, release.token, "published")
        return replace(kept, state="published")

    @withheld_block
    def release(self, *args: Any, **options: Any) -> Iterator[Release]:
        """Charge, let the block draw unless the release is ``stored``, and publish; takes what `charge` takes.

        An exception leaves the release charged and not published.
        """
        release = self.charge(*args, **options)
        yield release
        if not release.stored:
            self.publish(release)

    def release_of(self, token: str) -> Release:
        """Return the release whose token was found with some data.

        Raises:
            UnknownRelease: where the ledger is older than the data, or another one.

        """
        with reading(self.path) as db, snapshot(db):
            check_entries(db)
            return found(db, token)

    def balances(self) -> list[Balance]:
        """Return what is spent and what is left, for each group of columns."""
        with reading(self.path) as db, snapshot(db):
            return statements.balances(db)

    def history(self) -> list[dict[str, Any]]:
        """Return every column of every release, oldest first: when, what, where, how much for one report, state."""
        with reading(self.path) as db, snapshot(db):
            return statements.history(db)

    def policies(self) -> list[dict[str, Any]]:
        """Return the policies, oldest first; the last is in force."""
        with reading(self.path) as db, snapshot(db):
            return statements.policies(db)

    def check(self) -> None:
        """Check the file, that every row is as it was written, and that accounts have spent what releases were charged.

        Raises:
            LedgerDamaged: where something is wrong.

        """
        with reading(self.path) as db, snapshot(db):
            statements.check(db)


@guarded
def _people_of(users: Any, salt: bytes) -> People:
    return People.of(users, salt)
