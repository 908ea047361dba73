"""Local differential privacy where the data already is: perturb and estimate in SQL.

`attach` registers the functions on a DuckDB connection. Mechanisms and estimators are plugins, registered by the hooks of
`ldpsql.registry.hookspecs`. The names below are for callers in Python.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ldpsql.engine.namespaces import register

if TYPE_CHECKING:
    from ldpsql.bulk.charging import Charge
    from ldpsql.bulk.counts import Counts, Supports, merge, partial_counts, partial_supports
    from ldpsql.bulk.frames import compare_estimators, estimate, rappor_shares, read, recommend
    from ldpsql.bulk.many_groups import estimate_groups
    from ldpsql.bulk.pairs import key_value
    from ldpsql.bulk.phases import TwoPhases, two_phases
    from ldpsql.bulk.releases import release
    from ldpsql.bulk.run import perturb, perturb_batches, perturb_copy, perturb_once, perturb_table
    from ldpsql.bulk.strings import heavy_hitters
    from ldpsql.channels import Channel, DenseChannel, KeepOrSpread
    from ldpsql.domains.domain import Domain, DomainField
    from ldpsql.engine.connections import interrupt, interruptible
    from ldpsql.errors import Interrupted, InvalidParameter, LdpError, NotPrivate
    from ldpsql.errors.boundary import load_ipython_extension
    from ldpsql.estimates.estimate import Estimate
    from ldpsql.estimates.simulated import synthesize
    from ldpsql.estimates.spans import rectangle_shares
    from ldpsql.estimators.base import Estimator
    from ldpsql.hooks import hookimpl
    from ldpsql.inference.likelihood import Likelihood
    from ldpsql.inference.outcome import Fit, Status
    from ldpsql.ledger import Ledger, Policy
    from ldpsql.ledger.permanent import Key
    from ldpsql.mechanisms.audit import Shuffled, shuffled
    from ldpsql.mechanisms.base import CategoricalMechanism, Mechanism, certify
    from ldpsql.mechanisms.families import (
        GridMechanism,
        IntervalMechanism,
        KeyValueMechanism,
        MetricMechanism,
        RangeMechanism,
        SignMechanism,
    )
    from ldpsql.pages.demo import flights_file
    from ldpsql.privacy.certificate import Certificate
    from ldpsql.privacy.claims import Epsilon
    from ldpsql.registry.documents import document
    from ldpsql.reports import HashReports, PairReports, SetReports
    from ldpsql.sql.attach import attach, connect

__version__ = "0.2.0"

__all__ = [
    "CategoricalMechanism", "Certificate", "Channel", "Charge", "Counts", "DenseChannel", "Domain", "DomainField", "Epsilon",
    "Estimate", "Estimator", "Fit", "GridMechanism", "HashReports", "Interrupted", "IntervalMechanism", "InvalidParameter",
    "KeepOrSpread", "Key", "KeyValueMechanism", "LdpError", "Ledger", "Likelihood", "Mechanism", "MetricMechanism",
    "NotPrivate", "PairReports", "Policy", "RangeMechanism", "SetReports", "Shuffled", "SignMechanism", "Status", "Supports",
    "TwoPhases",
    "attach", "certify", "compare_estimators", "connect", "document", "estimate", "estimate_groups", "flights_file",
    "heavy_hitters", "hookimpl", "interrupt", "interruptible", "key_value", "load_ipython_extension", "merge", "partial_counts",
    "partial_supports", "perturb", "perturb_batches", "perturb_copy", "perturb_once", "perturb_table", "rappor_shares", "read",
    "recommend", "rectangle_shares", "release", "shuffled", "synthesize", "two_phases",
]  # fmt: skip


@cache
def _homes() -> dict[str, str]:
    """Return the module of each public name, as the imports above say it to type checkers."""
    imports = re.findall(r"^    from (\S+) import (\([^)]+|.+)", Path(__file__).read_text("utf-8"), re.MULTILINE)
    return {name: module for module, names in imports for name in re.findall(r"\w+", names)}


def __getattr__(name: str) -> object:  # `ldpsql --version` needs none of them
    if name not in __all__:
        raise AttributeError(f"module 'ldpsql' has no attribute '{name}'")
    return getattr(import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# In an installation plugins/ and udfs/ are inside this folder; in a checkout they are next to it.
if not (_here := Path(__file__).parent).joinpath("plugins").is_dir():
    __path__.append(str(_here.parent))

register()

# Databases that are opened from now on draw in C. Without DuckDB there is none yet, and `attach` does the same.
if "_duckdb" in sys.modules:
    from ldpsql.engine.door import open_door

    open_door()
