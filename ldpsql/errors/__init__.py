"""Every way ldpsql can refuse, in one tree.

An error is one sentence, a code and a hint. It carries the public values it speaks of as attributes, and never a raw
value: people's data must not reach a log through a message.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class PrivacyLeakWarning(UserWarning):
    """What was asked for is done, but it protects nobody as it stands."""


class UnmarkedReports(UserWarning):
    """Reports were estimated, and nothing says which mechanism drew them."""


class LdpError(Exception):
    """Base of all errors of ldpsql: ``code``, ``message``, ``hint`` and the exit code of the command line."""

    code: ClassVar[str] = "LDP000"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __str__(self) -> str:
        stop = "" if self.hint.endswith("?") else "."
        hint = f" Hint: {self.hint}{stop}" if self.hint else ""
        return f"[{self.code}] {self.message}.{hint}"


class UsageError(LdpError):
    """A parameter, a mechanism or an option is not what it must be."""

    code = "LDP100"
    exit_code = 2


class InvalidEpsilon(UsageError):
    """Epsilon is not a plain decimal number above 0 and at most 32."""

    code = "LDP101"


class InvalidDomain(UsageError):
    """A domain is not a list of at least two distinct, non-NULL values."""

    code = "LDP102"


class InvalidParameter(UsageError):
    """A parameter has the wrong type or lies outside its range."""

    code = "LDP103"


class InvalidSpec(UsageError):
    """A mechanism or an estimator could not be read from its text, JSON or SQL value."""

    code = "LDP104"


class BadSettings(UsageError):
    """A settings file cannot be read, or contains an unknown setting."""

    code = "LDP105"


class UnknownName(UsageError):
    """No plugin, parameter, option or column has this name. ``otherwise`` is the hint if there is no list of names."""

    code = "LDP201"
    kind: str
    name: str

    def __init__(self, kind: str, name: str, known: Iterable[str], otherwise: str = "there is none") -> None:
        known = sorted(known)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}" if known else otherwise
        super().__init__(f"there is no {kind} named '{name}'", hint, kind=kind, name=name, known=known)

    def unnamed(self) -> UnknownName:
        """Return the error without the name, for where the name may be a raw value."""
        self.message, self.name = f"there is no such {self.kind}", ""
        self.args = (self.message,)  # which repr shows
        return self


class PluginError(LdpError):
    """A plugin could not be loaded, or what it gave is not valid."""

    code = "LDP202"
    exit_code = 4


def raised_by(kind: str, name: str, thing: object, error: Exception) -> PluginError:
    """Return the refusal of a mechanism or an estimator that raised something, with the last line of its own file.

    What the exception says is left out: it may hold a value.
    """
    own, frames = getattr(sys.modules.get(type(thing).__module__), "__file__", None), traceback.extract_tb(error.__traceback__)
    at = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1] if frames else None)
    where = f" at {Path(at.filename).name}, line {at.lineno}," if at else ""
    return PluginError(f"the {kind} {name} raised {type(error).__name__}{where} instead of giving its result", "mend it there")


class NameClash(PluginError):
    """Two plugins offer the same name."""

    code = "LDP203"


class PrivacyError(LdpError):
    """Refused, because continuing could harm the privacy of a person."""

    code = "LDP300"
    exit_code = 3

    def of_column(self, name: str) -> Self:
        """Return the error with the name of the column that it is about."""
        self.message = f"column '{name}': {self.message}"
        self.args = (self.message,)
        return self


class NotPrivate(PrivacyError):
    """A channel does not keep the privacy that its mechanism claims."""

    code = "LDP301"


class OutsideDomain(PrivacyError):
    """A value to perturb is not in the declared domain, and the mechanism has no rule for such values."""

    code = "LDP302"


class MissingValue(PrivacyError):
    """A value to perturb is NULL, and the mechanism has no rule for NULL."""

    code = "LDP303"


class WrongType(PrivacyError):
    """A column does not have the type of the domain."""

    code = "LDP304"


NOT_PERTURBED = (OutsideDomain, MissingValue, WrongType)


class NotReports(PrivacyError):
    """The values that were passed to an estimator cannot be reports of the mechanism. Most likely they are the raw column."""

    code = "LDP305"


class DuplicateKey(PrivacyError):
    """A set of key-value pairs to perturb contains a key twice."""

    code = "LDP306"


class Redrawn(PrivacyError):
    """Something that perturbs is not stored, so each read of it would draw new reports."""

    code = "LDP309"


class LedgerError(PrivacyError):
    """The ledger of privacy budgets cannot be used, and nothing is released without it."""

    code = "LDP310"


class BudgetExceeded(LedgerError):
    """A release would cost some person more than the budget allows."""

    code = "LDP311"


class LedgerMissing(LedgerError):
    """The ledger does not exist, and there is no policy to create one."""

    code = "LDP312"


class LedgerDamaged(LedgerError):
    """The file is not a ledger, or its content is damaged."""

    code = "LDP313"


class LedgerVersion(LedgerError):
    """The ledger was written by a version of ldpsql with another layout."""

    code = "LDP314"


class LedgerUnwritable(LedgerError):
    """The ledger cannot be written: full disk, missing permission, read-only place."""

    code = "LDP315"


class LedgerBusy(LedgerError):
    """Another process kept the ledger for too long."""

    code = "LDP316"


class PolicyMismatch(LedgerError):
    """The ledger has another policy than the one that was passed."""

    code = "LDP317"


class UnknownRelease(LedgerError):
    """A release is not in the ledger: the ledger is older than the data, or it is another ledger."""

    code = "LDP318"


class NotReleased(LedgerError):
    """Something is drawn on a connection with a ledger, but outside a release that was charged."""

    code = "LDP320"


class KeyUnusable(LedgerError):
    """The key of permanent reports is missing, damaged, a different key, or readable by other users."""

    code = "LDP321"


class DataError(LdpError):
    """The reports do not allow the requested estimate."""

    code = "LDP400"
    exit_code = 5


class ImpossibleReport(DataError):
    """Some reports cannot occur under the mechanism."""

    code = "LDP401"


class IllConditioned(DataError):
    """The channel cannot be inverted with a useful precision."""

    code = "LDP402"


class BadCounts(DataError):
    """Counts are not a map from reports to whole numbers."""

    code = "LDP403"


class NoReports(DataError):
    """There are no reports to estimate from."""

    code = "LDP404"

    def __init__(
        self, message: str = "there is not a single report to estimate from", hint: str = "perturb some values first"
    ) -> None:
        super().__init__(message, hint)


class NotApplicable(DataError):
    """The estimator does not apply to reports of this mechanism."""

    code = "LDP406"


class OutOfTime(DataError):
    """The deadline of an estimator passed before the estimate could begin."""

    code = "LDP407"

    def __init__(self) -> None:
        super().__init__("the deadline passed while the channel was prepared", "raise deadline, or use fewer values")


class OtherMechanism(DataError):
    """The reports were drawn by another mechanism than the one they are estimated with."""

    code = "LDP408"


class ConnectionRefused(LdpError):
    """The functions could not be attached to this connection."""

    code = "LDP501"


class SourceRefused(LdpError):
    """A table or a file does not exist, or cannot be read as requested."""

    code = "LDP520"
    exit_code = 5


class DestinationExists(LdpError):
    """The destination of the reports already exists."""

    code = "LDP521"


class UnfinishedRun(LdpError):
    """An earlier run to this destination has not finished, or is still running."""

    code = "LDP522"


class DestinationRefused(LdpError):
    """The reports cannot be written as requested."""

    code = "LDP523"


class SparkRefused(LdpError):
    """Spark cannot, or must not, do this."""

    code = "LDP530"


class Interrupted(LdpError):
    """Somebody stopped this."""

    code = "LDP904"
    exit_code = 130  # as shells count what a signal ended

    def __init__(self) -> None:
        super().__init__("interrupted")


class InternalError(LdpError):
    """A defect of ldpsql or of a plugin; the details are withheld because they may hold raw values."""

    code = "LDP900"
