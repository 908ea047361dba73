"""Local differential privacy where the data already is: perturb and estimate in SQL.

`attach` puts the functions on a DuckDB connection. Mechanisms and estimators are plugins, registered by the hooks of
`ldpsql.hookspecs`; the names below are what a plugin and a Python caller need.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldpsql.bulk.batches import perturb_batches
    from ldpsql.bulk.charging import Charge
    from ldpsql.bulk.counts import Counts, Supports, merge, partial_counts, partial_supports
    from ldpsql.bulk.many_groups import estimate_groups
    from ldpsql.bulk.releases import release
    from ldpsql.bulk.run import perturb_copy, perturb_table
    from ldpsql.certificate import Certificate
    from ldpsql.channels import Channel, DenseChannel, KeepOrSpread
    from ldpsql.domain import Domain, DomainField
    from ldpsql.duck import attach, connect
    from ldpsql.errors import Interrupted, InvalidParameter, LdpError, NotPrivate
    from ldpsql.estimation import Estimate
    from ldpsql.estimator import Estimator, Fit, Status
    from ldpsql.families import GridMechanism, IntervalMechanism, MetricMechanism, RangeMechanism
    from ldpsql.frames import estimate, key_value, perturb
    from ldpsql.hookspecs import hookimpl
    from ldpsql.interrupting import interrupt, interruptible
    from ldpsql.ledger import Ledger, Policy
    from ldpsql.ledger.permanent import Key
    from ldpsql.likelihood import Likelihood
    from ldpsql.mechanism import CategoricalMechanism, Mechanism, certify
    from ldpsql.pairs.families import KeyValueMechanism, SignMechanism
    from ldpsql.privacy import Epsilon
    from ldpsql.reports import HashReports, PairReports, SetReports

__version__ = "0.1.0"

# Names are loaded at first use: `ldpsql --version` needs none of them.
_HOMES = {
    "bulk.batches": ["perturb_batches"],
    "bulk.charging": ["Charge"],
    "bulk.counts": ["Counts", "Supports", "merge", "partial_counts", "partial_supports"],
    "bulk.many_groups": ["estimate_groups"],
    "bulk.releases": ["release"],
    "bulk.run": ["perturb_copy", "perturb_table"],
    "certificate": ["Certificate"],
    "channels": ["Channel", "DenseChannel", "KeepOrSpread"],
    "domain": ["Domain", "DomainField"],
    "duck": ["attach", "connect"],
    "errors": ["Interrupted", "InvalidParameter", "LdpError", "NotPrivate"],
    "estimation": ["Estimate"],
    "estimator": ["Estimator", "Fit", "Status"],
    "families": ["GridMechanism", "IntervalMechanism", "MetricMechanism", "RangeMechanism"],
    "frames": ["estimate", "key_value", "perturb"],
    "hookspecs": ["hookimpl"],
    "interrupting": ["interrupt", "interruptible"],
    "ledger": ["Ledger", "Policy"],
    "ledger.permanent": ["Key"],
    "likelihood": ["Likelihood"],
    "mechanism": ["CategoricalMechanism", "Mechanism", "certify"],
    "pairs.families": ["KeyValueMechanism", "SignMechanism"],
    "privacy": ["Epsilon"],
    "reports": ["HashReports", "PairReports", "SetReports"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CategoricalMechanism",
    "Certificate",
    "Channel",
    "Charge",
    "Counts",
    "DenseChannel",
    "Domain",
    "DomainField",
    "Epsilon",
    "Estimate",
    "Estimator",
    "Fit",
    "GridMechanism",
    "HashReports",
    "Interrupted",
    "IntervalMechanism",
    "InvalidParameter",
    "KeepOrSpread",
    "Key",
    "KeyValueMechanism",
    "LdpError",
    "Ledger",
    "Likelihood",
    "Mechanism",
    "MetricMechanism",
    "NotPrivate",
    "PairReports",
    "Policy",
    "RangeMechanism",
    "SetReports",
    "SignMechanism",
    "Status",
    "Supports",
    "attach",
    "certify",
    "connect",
    "estimate",
    "estimate_groups",
    "hookimpl",
    "interrupt",
    "interruptible",
    "key_value",
    "merge",
    "partial_counts",
    "partial_supports",
    "perturb",
    "perturb_batches",
    "perturb_copy",
    "perturb_table",
    "release",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'ldpsql' has no attribute '{name}'")
    return getattr(import_module(f"ldpsql.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# An install keeps plugins/ and udfs/ inside this folder; a checkout keeps them beside it.
if not (_here := Path(__file__).parent).joinpath("plugins").is_dir():
    __path__.append(str(_here.parent))
