"""All errors of ldpsql, in one tree, one file for each family of codes.

An error is one sentence, a code and a hint. Its attributes carry the public values that the message mentions, and never a raw
value: people's data must not reach a log through a message.
"""

from __future__ import annotations

from ldpsql.errors.base import ChangedReports, LdpError, PrivacyLeakWarning, UnchargedReports, UnmarkedReports
from ldpsql.errors.data import (
    BadCounts,
    DataError,
    IllConditioned,
    ImpossibleReport,
    MechanismUnrecorded,
    NoReports,
    NotApplicable,
    OtherMechanism,
    OutOfTime,
)
from ldpsql.errors.internal import InternalError, Interrupted
from ldpsql.errors.ledger import (
    BudgetExceeded,
    KeyUnusable,
    LedgerBusy,
    LedgerDamaged,
    LedgerError,
    LedgerMissing,
    LedgerUnwritable,
    LedgerVersion,
    NotReleased,
    PolicyMismatch,
    UnknownRelease,
)
from ldpsql.errors.plugins import NameClash, PluginError, raised_by
from ldpsql.errors.privacy import (
    NOT_PERTURBED,
    DuplicateKey,
    MissingValue,
    NotPrivate,
    NotReports,
    OutsideDomain,
    OutsidePolicy,
    PrivacyError,
    Redrawn,
    RowBudgetExceeded,
    WrongType,
    of_column,
)
from ldpsql.errors.runs import (
    ConnectionRefused,
    DestinationExists,
    DestinationRefused,
    SourceRefused,
    SparkRefused,
    UnfinishedRun,
)
from ldpsql.errors.usage import (
    BadSettings,
    InvalidDomain,
    InvalidEpsilon,
    InvalidParameter,
    InvalidSpec,
    UnknownName,
    UsageError,
)

__all__ = [
    "NOT_PERTURBED",
    "BadCounts",
    "BadSettings",
    "BudgetExceeded",
    "ChangedReports",
    "ConnectionRefused",
    "DataError",
    "DestinationExists",
    "DestinationRefused",
    "DuplicateKey",
    "IllConditioned",
    "ImpossibleReport",
    "InternalError",
    "Interrupted",
    "InvalidDomain",
    "InvalidEpsilon",
    "InvalidParameter",
    "InvalidSpec",
    "KeyUnusable",
    "LdpError",
    "LedgerBusy",
    "LedgerDamaged",
    "LedgerError",
    "LedgerMissing",
    "LedgerUnwritable",
    "LedgerVersion",
    "MechanismUnrecorded",
    "MissingValue",
    "NameClash",
    "NoReports",
    "NotApplicable",
    "NotPrivate",
    "NotReleased",
    "NotReports",
    "OtherMechanism",
    "OutOfTime",
    "OutsideDomain",
    "OutsidePolicy",
    "PluginError",
    "PolicyMismatch",
    "PrivacyError",
    "PrivacyLeakWarning",
    "Redrawn",
    "RowBudgetExceeded",
    "SourceRefused",
    "SparkRefused",
    "UnchargedReports",
    "UnfinishedRun",
    "UnknownName",
    "UnknownRelease",
    "UnmarkedReports",
    "UsageError",
    "WrongType",
    "of_column",
    "raised_by",
]
