"""Local differential privacy where the data already is: perturb and estimate in SQL.

`attach` puts the functions on a DuckDB connection. Mechanisms and estimators are plugins, registered by the hooks of
`ldpsql.hookspecs`; the names below are what a plugin and a Python caller need.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldpsql.certificate import Certificate
    from ldpsql.channels import Channel, DenseChannel, KeepOrSpread
    from ldpsql.domain import Domain, DomainField
    from ldpsql.duck import attach, connect
    from ldpsql.errors import InvalidParameter, LdpError, NotPrivate
    from ldpsql.estimation import Estimate
    from ldpsql.estimator import Estimator, Fit, Status
    from ldpsql.families import GridMechanism, IntervalMechanism, MetricMechanism, RangeMechanism
    from ldpsql.frames import estimate, key_value, perturb
    from ldpsql.hookspecs import hookimpl
    from ldpsql.likelihood import Likelihood
    from ldpsql.mechanism import CategoricalMechanism, Mechanism, certify
    from ldpsql.pair_families import KeyValueMechanism, SignMechanism
    from ldpsql.privacy import Epsilon
    from ldpsql.reports import HashReports, PairReports, SetReports

__version__ = "0.1.0"

# Names are loaded at first use: `ldpsql --version` needs none of them.
_HOMES = {
    "certificate": ["Certificate"],
    "channels": ["Channel", "DenseChannel", "KeepOrSpread"],
    "domain": ["Domain", "DomainField"],
    "duck": ["attach", "connect"],
    "errors": ["InvalidParameter", "LdpError", "NotPrivate"],
    "estimation": ["Estimate"],
    "estimator": ["Estimator", "Fit", "Status"],
    "families": ["GridMechanism", "IntervalMechanism", "MetricMechanism", "RangeMechanism"],
    "frames": ["estimate", "key_value", "perturb"],
    "hookspecs": ["hookimpl"],
    "pair_families": ["KeyValueMechanism", "SignMechanism"],
    "likelihood": ["Likelihood"],
    "mechanism": ["CategoricalMechanism", "Mechanism", "certify"],
    "privacy": ["Epsilon"],
    "reports": ["HashReports", "PairReports", "SetReports"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CategoricalMechanism",
    "Certificate",
    "Channel",
    "DenseChannel",
    "Domain",
    "DomainField",
    "Epsilon",
    "Estimate",
    "Estimator",
    "Fit",
    "GridMechanism",
    "HashReports",
    "IntervalMechanism",
    "InvalidParameter",
    "KeepOrSpread",
    "KeyValueMechanism",
    "LdpError",
    "Likelihood",
    "Mechanism",
    "MetricMechanism",
    "NotPrivate",
    "PairReports",
    "RangeMechanism",
    "SetReports",
    "SignMechanism",
    "Status",
    "attach",
    "certify",
    "connect",
    "estimate",
    "hookimpl",
    "key_value",
    "perturb",
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
