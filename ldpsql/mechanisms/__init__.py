"""The building blocks of mechanisms: base classes, channels, claims, domains and forms of reports.

A plugin that offers mechanisms imports only from here; the names are stable within one `API_VERSION`. The modules of this
room: `base` (the base class, and how the core certifies a mechanism), `certified` (what the core draws with), `spec` (validated
parameters), `families` (whole numbers, intervals, grids, metric spaces), `interior` (the cheapest channels with
metric privacy), `key_value`, `region`, `audit`.
"""

from __future__ import annotations

from ldpsql.channels import (
    MARGIN,
    TOTAL,
    BinBits,
    Channel,
    Convolution,
    DenseChannel,
    Hadamard,
    IndependentBits,
    KeepOrSpread,
    KeepOrWindow,
    KeyLaw,
    Levels,
    OrthogonalHash,
    Prefixes,
    PrivateHash,
    RepeatedHash,
    SignedBits,
    Subsets,
    UndrawnChannel,
    coarse_above,
    floor_mixing,
    from_doubles,
    over_one_denominator,
    reduced,
    signs_in_blocks,
)
from ldpsql.channels.costs import Cost
from ldpsql.channels.dense import Window
from ldpsql.channels.exact import exp_below, highest_log_ratios, log_ratio
from ldpsql.channels.hashed import hash_symbols, prime_power
from ldpsql.channels.noise import clamped_plane, planar_channel
from ldpsql.channels.prefixes import MOST_VECTORS, dimension, is_prime
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain, DomainField
from ldpsql.domains.sql_types import after
from ldpsql.domains.unlisted import MAX_VALUES, UTF8, Strings, Whole, cells, sql_cells
from ldpsql.errors import InvalidParameter, NotPrivate
from ldpsql.hooks import API_VERSION, hookimpl
from ldpsql.mechanisms import audit
from ldpsql.mechanisms.audit import (
    Information,
    RepeatedError,
    information_of,
    mutual_information,
    repeated_error,
)
from ldpsql.mechanisms.base import CategoricalMechanism, CertifiedMechanism, Mechanism, certify, certify_values
from ldpsql.mechanisms.families import (
    CellMechanism,
    GridMechanism,
    IntervalMechanism,
    JointMechanism,
    KeyValueMechanism,
    MetricMechanism,
    OrderedMechanism,
    PlanarMechanism,
    PointsField,
    PriorField,
    PriorMechanism,
    RangeMechanism,
    RowMechanism,
    SignMechanism,
    piece_readings,
    pieces,
    rounding_readings,
    roundings,
    shares_of,
    window,
)
from ldpsql.mechanisms.interior import check_values, least_information, least_loss
from ldpsql.mechanisms.region import Region
from ldpsql.mechanisms.spec import EpsilonField, NumberField, Parts, ShareField, WholeField
from ldpsql.mechanisms.trees import best_tree, node_reports, tree_channel
from ldpsql.privacy.certificate import Certificate
from ldpsql.privacy.claims import ApproximateLdp, Distances, Epsilon, Grid, Line, MetricLdp, NoClaim, PureLdp
from ldpsql.reports import (
    BinReports,
    HashReports,
    ListedHashReports,
    NodeReports,
    PairReports,
    PrefixReports,
    SetReports,
    SignReports,
    SymbolReports,
)

__all__ = [
    "API_VERSION", "MARGIN", "MAX_VALUES", "MOST_VECTORS", "TOTAL", "UTF8", "ApproximateLdp", "BinBits", "BinReports",
    "CategoricalMechanism", "CellMechanism", "Certificate", "CertifiedMechanism", "Channel", "Convolution", "Cost",
    "DenseChannel", "Distances", "Domain", "DomainField", "Epsilon", "EpsilonField", "Grid", "GridMechanism", "Hadamard",
    "HashReports", "IndependentBits", "Information", "IntervalMechanism", "InvalidParameter", "JointMechanism",
    "KeepOrSpread", "KeepOrWindow", "KeyLaw", "KeyValueMechanism", "Levels", "Line", "ListedHashReports", "Mechanism",
    "MetricLdp", "MetricMechanism", "NoClaim", "NodeReports", "NotPrivate", "NumberField", "OrderedMechanism",
    "OrthogonalHash", "PairReports", "Parts", "PlanarMechanism", "PointsField", "PrefixReports", "Prefixes", "PriorField",
    "PriorMechanism", "PrivateHash", "Product", "PureLdp", "RangeMechanism", "Region", "RepeatedError", "RepeatedHash",
    "RowMechanism", "SetReports", "ShareField", "SignMechanism", "SignReports", "SignedBits", "Strings", "Subsets",
    "SymbolReports", "UndrawnChannel", "Whole", "WholeField", "Window", "after", "audit", "best_tree", "cells", "certify",
    "certify_values", "check_values", "clamped_plane", "coarse_above", "dimension", "exp_below", "floor_mixing",
    "from_doubles", "hash_symbols", "highest_log_ratios", "hookimpl", "information_of", "is_prime", "least_information",
    "least_loss", "log_ratio", "mutual_information", "node_reports", "over_one_denominator", "piece_readings", "pieces",
    "planar_channel", "prime_power", "reduced", "repeated_error", "rounding_readings", "roundings", "shares_of",
    "signs_in_blocks", "sql_cells", "tree_channel", "window",
]  # fmt: skip
