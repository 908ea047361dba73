"""The ledger and the key that the settings name, and the warning about reports that are drawn outside of that ledger."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from pathlib import Path

from ldpsql import settings
from ldpsql.errors import LedgerMissing, UnchargedReports
from ldpsql.ledger.book import Ledger
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.policy import Policy


def configured_policy() -> Policy | None:
    """Return the policy in ``[ledger]`` of ``ldpsql.toml``, None if it has none.

    Raises:
        UsageError: if it cannot be read.

    """
    options = {name: value for name, value in settings.load().ledger.items() if name not in ("path", "key")}
    return Policy(**options) if options else None


def configured_path(chosen: Path | None = None) -> Path | None:
    """Return the path of the ledger: the chosen one, or that of LDPSQL_LEDGER, or that of ``ldpsql.toml``; None without any."""
    path = chosen or os.environ.get("LDPSQL_LEDGER") or settings.load().ledger.get("path")
    return Path(path) if path else None


def path_and_policy(chosen: Path | None = None) -> tuple[Path | None, Policy | None]:
    """Return the path of the ledger, and its policy in the settings.

    Raises:
        LedgerMissing: if the settings hold a policy and no ledger is named: nothing would be charged.

    """
    path, policy = configured_path(chosen), configured_policy()
    if path is None and policy is not None:
        raise LedgerMissing("the settings hold a policy, and no ledger is named", "write path in [ledger] of ldpsql.toml")
    return path, policy


def configured_ledger(chosen: Path | None = None) -> Ledger | None:
    """Open the ledger, or begin it if the settings hold a policy for it; return None if no ledger is named.

    Raises:
        LedgerError: if it cannot be used, has another policy than the settings, or they hold a policy without a ledger.

    """
    path, policy = path_and_policy(chosen)
    return None if path is None else Ledger.open(path, policy)


def needed_ledger(chosen: Path | None = None) -> Ledger:
    """Open an existing ledger to read it, whatever its policy; a mistyped name must not look like an empty ledger."""
    path = configured_path(chosen)
    if path is None:
        raise LedgerMissing("no ledger is named", "pass --ledger, set LDPSQL_LEDGER, or write path in [ledger] of ldpsql.toml")
    if not path.exists():
        raise LedgerMissing("there is no ledger of this name", "the first release begins it; is the name right?")
    return Ledger.open(path)


def configured_key() -> Key | None:
    """Read the key of permanent reports that LDPSQL_KEY or ``ldpsql.toml`` names; return None if neither does.

    Raises:
        KeyUnusable: if it cannot be used.

    """
    path = os.environ.get("LDPSQL_KEY") or settings.load().ledger.get("key")
    return Key.read(path) if path else None


_HINT = "pass charge='people', the name of the people; on a connection: ldpsql.attach(con, ledger=...), then ldpsql.release"


def uncharged() -> bool:
    """Return whether the settings name a ledger, which the caller does not charge; warn, once in a process, if so."""
    named = configured_path() is not None
    if named:
        warn_once()
    return named


@lru_cache(maxsize=1)
def first_draw() -> None:
    """Warn as `uncharged` does, at the first draw of SQL without a ledger: the settings are read once in a process."""
    uncharged()


@lru_cache(maxsize=1)
def warn_once() -> None:
    """Warn that a ledger is not charged, once in a process."""
    warnings.warn(
        f"the settings name a ledger, and these reports are drawn without charging it: {_HINT}", UnchargedReports, stacklevel=3
    )
