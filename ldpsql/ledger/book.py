"""The ledger of privacy budgets: what each person has spent, recorded before anything is drawn.

    charge (on the disk) -> draw -> publish

A crash between the first step and the last leaves a release charged and not published: people lose budget, never privacy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from ldpsql.engine.identity import Identity
from ldpsql.errors import BudgetExceeded, PolicyMismatch, UnfinishedRun
from ldpsql.errors.boundary import withheld, withheld_block
from ldpsql.ledger import statements
from ldpsql.ledger.entries import (
    ColumnCost,
    Release,
    Request,
    charged_columns,
    check_earlier,
    clock,
    column_costs,
    latest_release,
    now_of,
    policy_of,
    policy_text,
    refuse_new_rows,
    release_of,
    renamed,
    request_of,
    was_drawn,
    write_charge,
    write_release,
)
from ldpsql.ledger.file import check_entries, create, enter, reading, snapshot, writing
from ldpsql.ledger.openlineage import announce
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import Cost, Policy
from ldpsql.ledger.spending import (
    AccountKey,
    Unpublished,
    accounts_of,
    explained,
    forget,
    give_back,
    remember,
    spend,
    unpublished,
)
from ldpsql.ledger.statements import Balance
from ldpsql.mechanisms.base import Mechanism


class Ledger:
    """A ledger file and its policy, made with `open`. Any number of processes and threads may use the same file."""

    def __init__(self, path: Path, policy: Policy) -> None:
        self.path = path
        self.policy = policy

    @classmethod
    def open(cls, path: str | Path, policy: Policy | Mapping[str, Any] | None = None) -> Ledger:
        """Open a ledger; with a policy, also begin one if the file does not exist.

        Raises:
            LedgerMissing: if the file does not exist, and no policy is passed.
            PolicyMismatch: if the ledger has another policy; `adopt` changes it, and records the change.
            LedgerError: if the file cannot be used.

        """
        wanted = Policy(**policy) if isinstance(policy, Mapping) else policy
        path = Path(path).absolute()  # a process may change its folder
        if wanted is not None and not path.exists():
            create(path, policy_text(wanted), clock())
        with reading(path) as db, snapshot(db):
            kept, _ = policy_of(db)
        if wanted is not None and wanted != kept:
            raise PolicyMismatch(
                "the policy of the ledger differs from the configured one",
                "compare with: ldpsql budget show; to change it: ldpsql budget adopt",
            )
        return cls(path, kept)

    def adopt(self, policy: Policy) -> None:
        """Replace the policy. What was spent stays spent; the history keeps both policies.

        Raises:
            PolicyMismatch: if the unit of privacy or the group of a column that was charged would change.
            LedgerDamaged: if releases or charges are not as they were written.

        """
        with reading(self.path) as db, writing(db):
            check_entries(db)
            _, salt = policy_of(db)
            if any(unit != policy.privacy_unit or policy.group(column) != group for unit, column, group in charged_columns(db)):
                raise PolicyMismatch(
                    "another unit of privacy or other groups of columns would forget what was spent",
                    "budgets may change; unit and groups only of columns that were never charged",
                )
            db.execute("INSERT INTO policy (at, body, salt) VALUES (?, ?, ?)", [now_of(db), policy_text(policy), salt])
        self.policy = policy

    @withheld
    def charge(
        self,
        dataset: str | Identity,
        columns: Mapping[str, Mechanism],
        destination: str,
        *,
        users: Any = None,
        rows: int | None = None,
        part: str = "",
        again: bool = False,
        resume: bool = False,
        shuffled: str = "",
        drawn: bool = False,
        there: Collection[str] = (),
    ) -> Release:
        """Record what a release costs everybody in it, all or nothing; the charge is on the disk when this returns.

        A release with the same dataset, people, columns, mechanisms and destination as an earlier one returns that one, and
        costs nothing.

        Args:
            dataset: a name for the people of the data; the same name means the same people, in upper or lowercase. An
                `Identity` also says which tables and files are read; each of them is charged, whatever the name is.
            columns: the mechanism of each column.
            destination: where the reports go.
            users: the user id of each row, if the policy's ``privacy_unit`` is a column of user ids.
            rows: the number of rows, if each row is a person and the number is known.
            part: a part of the dataset whose rows are in no other part, such as a day: costs of parts do not add up. If
                each row is a person, the same rows in another part are recognised, and their costs do.
            again: charge and draw again, even if it was published before.
            resume: take up a release that was charged and neither `drawn` nor published; only if nobody saw its reports.
            shuffled: the central epsilon and delta of the shuffled reports, for the history; it changes no charge.
            drawn: record at once that others may see the reports from now on, as `drawn` does.
            there: the tokens in the table at the destination; if it was renamed, its releases are recognised by them.

        Raises:
            BudgetExceeded: if somebody's budget would be exceeded; then nothing is charged.
            NotReleased: if it was published for fewer rows.
            LedgerError: if the ledger cannot be used; then nothing may be released.

        """
        with reading(self.path) as db:
            request = request_of(db, dataset, columns, destination, users=users, part=part)
            people = request.people
            costs = [cost.shuffled(shuffled) for cost in column_costs(request.policy, columns)]
            with writing(db):
                if policy_of(db)[0] != request.policy:  # another process adopted a new one meanwhile
                    raise PolicyMismatch("the policy of the ledger was changed meanwhile", "try again")
                earlier = latest_release(db, request.identity) or renamed(db, request, columns, there)
                taken_up = resume and earlier and not earlier.stored and not was_drawn(db, earlier.token)
                if earlier and (taken_up or (earlier.stored and not again)):
                    check_earlier(db, earlier, request.identity_at(earlier.destination, columns))
                    refuse_new_rows(db, earlier, rows)
                    return earlier
                token = _charge(db, request, costs, people, rows)
                if drawn:
                    enter(db, token, "drawn")
        return Release(token, *request.name, "charged")

    @withheld
    def check_charge(self, *args: Any, **options: Any) -> None:
        """Refuse what `charge` would refuse now, and record nothing; takes its arguments.

        Raises:
            BudgetExceeded, LedgerError: if it would be refused.

        """
        with suppress(Undone), reading(self.path) as db:
            request = request_of(db, *args, **{"part": "", **options})
            with writing(db):
                _charge(db, request, column_costs(request.policy, args[1]), request.people, None)
                raise Undone

    def unfinished(
        self,
        dataset: str | Identity,
        columns: Mapping[str, Mechanism],
        destination: str,
        *,
        users: Any = None,
        part: str = "",
    ) -> Release | None:
        """Return the release that was charged and never published, None if there is none; takes the arguments of `charge`."""
        with reading(self.path) as db:
            identity = request_of(db, dataset, columns, destination, users=users, part=part).identity
            with snapshot(db):
                release = latest_release(db, identity)
                if release is None or release.stored:
                    return None
                check_earlier(db, release, identity)
        return release

    def drawn(self, token: str, *, once: bool = False) -> None:
        """Record that others may soon see the reports of a release; no later `charge` takes it up.

        Raises:
            UnfinishedRun: with ``once``, if it is recorded already, for two runs may take up the same release; and if the
                charge was given back.

        """
        with reading(self.path) as db, writing(db):
            _refuse_returned(release := release_of(db, token))
            if not was_drawn(db, release.token):
                enter(db, token, "drawn")
            elif once:
                raise UnfinishedRun("another run has drawn the reports of this charge", "use its reports")

    def publish(self, release: Release) -> Release:
        """Record that the reports of a release are at their destination; see `openlineage` for the event that may follow.

        Raises:
            UnknownRelease: if the ledger does not know it.
            UnfinishedRun: if the charge was given back.

        """
        with reading(self.path) as db, writing(db):
            _refuse_returned(kept := release_of(db, release.token))
            if not kept.stored:
                forget(db, release.token)
                db.execute("UPDATE release NOT INDEXED SET published_at = ? WHERE token = ?", [now_of(db), release.token])
                enter(db, release.token, "published")
        if not kept.stored:
            announce(self.path, release.token)
        return replace(kept, state="published")

    @withheld_block
    def release(self, *args: Any, **options: Any) -> Iterator[Release]:
        """Charge, run the block, which draws unless the release is ``stored``, and publish; takes the arguments of `charge`.

        An exception in the block leaves the release charged and not published.
        """
        release = self.charge(*args, **options)
        yield release
        if not release.stored:
            self.publish(release)

    def release_of(self, token: str) -> Release:
        """Return the release whose token is stored with some data.

        Raises:
            UnknownRelease: if the ledger is older than the data, or another ledger was charged.

        """
        with reading(self.path) as db, snapshot(db):
            check_entries(db)
            return release_of(db, token)

    def unpublished(self) -> list[Unpublished]:
        """Return the releases that were charged and not published, oldest first."""
        with reading(self.path) as db, snapshot(db):
            check_entries(db)
            return unpublished(db)

    def give_back(self, token: str, *, unseen: bool = False) -> None:
        """Give back what people paid for a release whose reports nobody has seen; it can no longer be published.

        Args:
            token: the release.
            unseen: that nobody has seen its reports is certain, though the run was about to publish them.

        Raises:
            UnknownRelease: if the ledger does not know it.
            UnfinishedRun: if it was published or given back, if its run was about to publish it and ``unseen`` is not set, or
                if its reports are permanent, which cost nothing again.

        """
        with reading(self.path) as db, writing(db):
            check_entries(db)
            give_back(db, token, unseen=unseen)

    def balances(self) -> list[Balance]:
        """Return what is spent and what is left, for each group of columns."""
        with reading(self.path) as db, snapshot(db):
            return statements.balances(db)

    def history(self) -> list[dict[str, Any]]:
        """Return every column of every release, oldest first: its time, names, mechanism, cost of one report and state."""
        with reading(self.path) as db, snapshot(db):
            return statements.history(db)

    def policies(self) -> list[dict[str, Any]]:
        """Return the policies, oldest first; the last one is in force."""
        with reading(self.path) as db, snapshot(db):
            return statements.policies(db)

    def check(self) -> None:
        """Check that the file is whole, that every row is as it was written, and that accounts have spent what was charged.

        Raises:
            LedgerDamaged: if something is wrong.

        """
        with reading(self.path) as db, snapshot(db):
            statements.check(db)


class Undone(Exception):  # no error: it rolls a transaction back
    """What was charged on trial is not written."""


def _refuse_returned(release: Release) -> None:
    if release.state == "returned":
        raise UnfinishedRun("the charge of these reports was given back", "do not publish them: run again, which charges again")


def _charge(db: sqlite3.Connection, request: Request, costs: list[ColumnCost], people: People, rows: int | None) -> str:
    """Write a release with its charges, within a transaction, and return its token."""
    now, policy = now_of(db), request.policy
    token = write_release(db, now, request.identity, request.name, request.users or rows, source=request.dataset.source)
    totals: dict[int, Cost] = {}  # by account: what a refusal says the release costs
    for column, (part, names) in product(costs, request.accounts):
        key = AccountKey(policy.privacy_unit, part, column.group, column.cost.currency)
        for account in accounts_of(db, names, key):
            write_charge(db, token, column, account)
            totals[account] = column.cost + totals[account] if account in totals else column.cost
    try:
        for account, cost in totals.items():
            spend(db, account, people, cost, policy, now=now)
    except BudgetExceeded as refusal:
        raise explained(db, request, token, refusal) from None
    remember(db, token, people)
    return token
