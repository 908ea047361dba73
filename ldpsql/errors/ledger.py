"""LDP31x and LDP32x: the ledger of privacy budgets refuses, or cannot be used."""

from __future__ import annotations

from ldpsql.errors.privacy import PrivacyError


class LedgerError(PrivacyError):
    """The ledger of privacy budgets cannot be used, and nothing is released without it.

    Cause: The ledger refused the release. The codes below say why.
    Remedy: Follow the hint of the message. Nothing was released.
    """

    code = "LDP310"


class BudgetExceeded(LedgerError):
    """A release would cost some person more than the budget allows.

    Cause: Earlier releases used the budget of at least one person, or epsilon is larger than the budget. The message says if
    one of them was not published, or was published elsewhere, for example before a table was renamed.
    Remedy: Use a smaller epsilon, leave out the people whose budget is used up, or wait for the next window.
    ``ldpsql budget settle`` ends releases that were not published; a renamed model needs its table renamed.
    """

    code = "LDP311"


class LedgerMissing(LedgerError):
    """The ledger does not exist, and there is no policy to create one.

    Cause: The path is wrong, the file was moved, or no policy was passed to create it.
    Remedy: Correct the path. To create a ledger, set ``epsilon_budget`` below ``[ledger]`` in ``ldpsql.toml``, or pass a
    ``Policy``.
    """

    code = "LDP312"


class LedgerDamaged(LedgerError):
    """The file is not a ledger, or its content is damaged.

    Cause: Another program wrote to the file, or the disk failed.
    Remedy: Restore the ledger from a backup. ``ldpsql budget check`` shows what is damaged.
    """

    code = "LDP313"


class LedgerVersion(LedgerError):
    """The ledger was written by a version of ldpsql with another layout.

    Cause: Another version of ldpsql wrote the ledger.
    Remedy: Use the version of ldpsql that wrote the ledger, everywhere.
    """

    code = "LDP314"


class LedgerUnwritable(LedgerError):
    """The ledger cannot be written: full disk, missing permission, read-only place.

    Cause: The disk is full, the folder is read-only, or the user may not write there.
    Remedy: Make room, or give the user the right to write the file and its folder.
    """

    code = "LDP315"


class LedgerBusy(LedgerError):
    """Another process kept the ledger for too long.

    Cause: A long release of another process holds the lock of the ledger.
    Remedy: Try again when the other release has ended.
    """

    code = "LDP316"


class PolicyMismatch(LedgerError):
    """The ledger has another policy than the one that was passed.

    Cause: The settings and the ledger name different budgets, units or groups of columns.
    Remedy: Compare them with ``ldpsql budget show``. ``ldpsql budget adopt`` changes the policy of the ledger.
    """

    code = "LDP317"


class UnknownRelease(LedgerError):
    """A release is not in the ledger: the ledger is older than the data, or it is another ledger.

    Cause: The ledger was restored from an old backup, or another ledger was opened.
    Remedy: Open the ledger that charged this release.
    """

    code = "LDP318"


class NotReleased(LedgerError):
    """Something is drawn on a connection with a ledger, but outside a release that was charged.

    Cause: ``ldp.perturb`` ran without ``ldpsql.release``, or the data changed after they were charged.
    Remedy: Draw inside ``ldpsql.release``, or use ``perturb_table`` or ``perturb_copy`` with ``charge=``.
    """

    code = "LDP320"


class KeyUnusable(LedgerError):
    """The key of permanent reports is missing, damaged, a different key, or readable by other users.

    Cause: The key file is missing, damaged, replaced, or its permissions are too wide.
    Remedy: Restore the file from its backup, and let only its owner read it. ``ldpsql budget new-key`` makes the first one.
    """

    code = "LDP321"
