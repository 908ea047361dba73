"""Reports that are drawn outside of the ledger that the settings name: they are noticed, and warned of once."""

from __future__ import annotations

import warnings
from functools import lru_cache

from ldpsql.errors import UnchargedReports
from ldpsql.ledger.configured import configured_path

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
