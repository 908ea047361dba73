"""The ledger that the settings name."""

from __future__ import annotations

import os
from pathlib import Path

from ldpsql import settings
from ldpsql.errors import LedgerMissing
from ldpsql.ledger.book import Ledger
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.policy import Policy


def configured_policy() -> Policy | None:
    """Return the policy in ``[ledger]`` of ``ldpsql.toml``, if it says one.

    Raises:
        UsageError: if it cannot be read.

    """
    told = {name: value for name, value in settings.load().ledger.items() if name not in ("path", "key")}
    return Policy(**told) if told else None


def configured_path(given: Path | None = None) -> Path | None:
    """Return where the ledger is: as given, as LDPSQL_LEDGER says, else as ``ldpsql.toml`` says; None where nobody does."""
    told = given or os.environ.get("LDPSQL_LEDGER") or settings.load().ledger.get("path")
    return Path(told) if told else None


def path_and_policy(given: Path | None = None) -> tuple[Path | None, Policy | None]:
    """Return where the ledger is, and its policy in the settings.

    Raises:
        LedgerMissing: if they hold a policy for no ledger: nothing would be charged.

    """
    path, policy = configured_path(given), configured_policy()
    if path is None and policy is not None:
        raise LedgerMissing("the settings hold a policy, and no ledger is named", "write path below [ledger] in ldpsql.toml")
    return path, policy


def configured_ledger(given: Path | None = None) -> Ledger | None:
    """Open the ledger, and begin it where the settings hold a policy for it; None where no ledger is named.

    Raises:
        LedgerError: if it cannot be used, keeps another policy than the settings, or they hold a policy for no ledger.

    """
    path, policy = path_and_policy(given)
    return None if path is None else Ledger.open(path, policy)


def needed_ledger(given: Path | None = None) -> Ledger:
    """Open the ledger that is named, to read it, whatever its policy; it must be there: a mistyped name is no empty ledger.

    Raises:
        LedgerMissing: if no ledger is named, or none is there.

    """
    path = configured_path(given)
    if path is None:
        raise LedgerMissing(
            "no ledger is named", "pass --ledger, set LDPSQL_LEDGER, or write path below [ledger] in ldpsql.toml"
        )
    if not path.exists():
        raise LedgerMissing("there is no ledger of this name", "the first release begins it; is the name right?")
    return Ledger.open(path)


def configured_key() -> Key | None:
    """Read the key of permanent reports that LDPSQL_KEY or ``ldpsql.toml`` names; None where neither does.

    Raises:
        KeyUnusable: if it cannot be used.

    """
    told = os.environ.get("LDPSQL_KEY") or settings.load().ledger.get("key")
    return Key.read(told) if told else None
