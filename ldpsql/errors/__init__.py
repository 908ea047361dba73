"""All errors of ldpsql, in one tree, by families of codes.

An error is one sentence, a code, a hint and an exit code. Its attributes carry the public values that the message mentions, and
never a raw value: people's data must not reach a log through a message.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self


class PrivacyLeakWarning(UserWarning):
    """The request is carried out, but the result protects nobody."""


class UnmarkedReports(UserWarning):
    """Reports were estimated without any record of the mechanism that drew them."""


class FetchedReports(UserWarning):
    """Reports were fetched from their database one by one, since they differ too much to be counted there."""


class UnchargedReports(UserWarning):
    """Reports are drawn although the ledger that the settings name is not charged for them."""


class ChangedReports(UserWarning):
    """Permanent reports of a column are charged for another channel than before, so everybody gets new ones."""


class AlikeUsers(UserWarning):
    """Some user ids of a release differ only in space around them or in the form of Unicode: they are other people."""


class LdpError(Exception):
    """Base of all errors of ldpsql: ``code``, ``message``, ``hint`` and the exit code of the command line.

    Cause: ldpsql refused, or failed. Only a demonstration whose data are missing has this code itself.
    Remedy: Follow the hint of the message.
    """

    code: ClassVar[str] = "LDP000"
    exit_code: ClassVar[int] = 1
    before = ""  # a line break if DuckDB quotes the text after words of its own

    def __init__(self, message: str, hint: str = "", **facts: object) -> None:
        if message.startswith(f"[{self.code}] "):  # Polars raises a copy of an error, whose message is the whole text
            text = message.removeprefix(f"[{self.code}] ").partition("\n\n")[0]
            message, _, hint = text.removesuffix(".").partition(". Hint: ")
        super().__init__(message)
        self.message = message
        self.hint = hint
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __str__(self) -> str:
        stop = "" if self.hint.endswith("?") else "."
        hint = f" Hint: {self.hint}{stop}" if self.hint else ""
        return f"{self.before}[{self.code}] {self.message}.{hint}"


class UsageError(LdpError):
    """A parameter, a mechanism or an option is not valid.

    Cause: The call or the command needs another value, another mechanism or an extra that is not installed.
    Remedy: Correct what the message names. ``ldpsql COMMAND --help`` lists the options of a command.
    """

    code = "LDP100"
    exit_code = 2


class InvalidEpsilon(UsageError):
    """Epsilon is not a plain decimal number above 0 and at most 32.

    Cause: Epsilon is negative, zero, larger than 32, or not written as digits with a point.
    Remedy: Write it as a plain number or a string, such as 1 or '0.5'.
    """

    code = "LDP101"


class InvalidDomain(UsageError):
    """A domain is not a list of at least two distinct, non-NULL values.

    Cause: The list of values is too short, or it contains NULL, one value twice, or values of a type that a domain cannot
    have.
    Remedy: Declare each possible value once. Take the list from public knowledge, never from the data.
    """

    code = "LDP102"


class InvalidParameter(UsageError):
    """A parameter has the wrong type or lies outside its range.

    Cause: A number is out of range, a type is wrong, or an option does not fit the mechanism or the estimator.
    Remedy: Use a value that the message allows. ``ldpsql plugins show NAME`` lists the parameters of a mechanism or an
    estimator.
    """

    code = "LDP103"


class InvalidSpec(UsageError):
    """A mechanism or an estimator could not be read from its text, JSON or SQL value.

    Cause: The text is not a call such as krr(1, ['a', 'b']), or the JSON or STRUCT lacks a field.
    Remedy: Write it as the examples of the reference show, or make it with its constructor, such as ldp.krr(1, ['a', 'b']).
    """

    code = "LDP104"


class BadSettings(UsageError):
    """A settings file cannot be read, or contains an unknown setting.

    Cause: ``ldpsql.toml`` is not valid TOML, has a setting that ldpsql does not know, or a mechanism that cannot be made.
    Remedy: Correct the entry that the message names.
    """

    code = "LDP105"


class UnknownName(UsageError):
    """No plugin, parameter, option or column has this name.

    Cause: The name is misspelt, its plugin is not installed or not allowed, or it is declared in another project's settings.
    Remedy: Use the name that the hint proposes. ``ldpsql plugins list`` shows mechanisms and estimators with the plugins that
    offer them.
    """

    code = "LDP201"
    kind: str
    name: str

    def __init__(self, kind: str, name: str, known: Iterable[str], otherwise: str = "there is none") -> None:
        """``otherwise`` is the hint if there is no list of names."""
        known = sorted(known)
        close = [other for other in known if other.casefold() == name.casefold()] or difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}" if known else otherwise
        super().__init__(f"there is no {kind} named '{name}'", hint, kind=kind, name=name, known=known)

    def unnamed(self) -> UnknownName:
        """Return the error without the name, which may be a raw value."""
        self.message, self.name = f"there is no such {self.kind}", ""
        self.args = (self.message,)  # repr shows it
        return self


class PluginError(LdpError):
    """A plugin could not be loaded, or what it gave is not valid.

    Cause: The plugin raised an error, offers something that its hook does not allow, or is not allowed by the settings.
    Remedy: Correct the plugin where the message says so, or update or remove it. ``ldpsql plugins list`` shows the state of
    each.
    """

    code = "LDP202"
    exit_code = 4


def raised_by(kind: str, name: str, thing: object, error: Exception) -> PluginError:
    """Return the error for a mechanism or an estimator that raised an exception, with the last line of its own file.

    The message of the exception is left out, since it may contain a raw value.
    """
    own, frames = getattr(sys.modules.get(type(thing).__module__), "__file__", None), traceback.extract_tb(error.__traceback__)
    at = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1] if frames else None)
    where = f" at {Path(at.filename).name}, line {at.lineno}," if at else ""
    return PluginError(f"the {kind} {name} raised {type(error).__name__}{where} instead of giving its result", "mend it there")


class NameClash(PluginError):
    """Two plugins offer the same name.

    Cause: Two installed packages offer a mechanism, an estimator, a function or a command of the same name.
    Remedy: Remove one of them, or allow only one of them in the settings.
    """

    code = "LDP203"


class PrivacyError(LdpError):
    """Refused, because continuing could harm the privacy of a person.

    Cause: A value, a mechanism or a destination is not safe to use. Nothing was drawn or written.
    Remedy: Follow the hint of the message. Do not work around it with the raw data.
    """

    code = "LDP300"
    exit_code = 3

    def of_column(self, name: str) -> Self:
        """Return the error with the name of the column that it is about, unless it names one."""
        if self.message.startswith("column '"):
            return self
        self.message = f"column '{name}': {self.message}"
        self.args = (self.message,)
        return self


class NotPrivate(PrivacyError):
    """A channel does not keep the privacy that its mechanism claims.

    Cause: The certificate of the mechanism does not hold, or the mechanism changes within a statement.
    Remedy: Use a mechanism that ``check_mechanism`` accepts, and declare one mechanism for the whole statement.
    """

    code = "LDP301"


class OutsideDomain(PrivacyError):
    """A value to perturb is not in the declared domain, and the mechanism has no rule for such values.

    Cause: The data contain a value that nobody declared.
    Remedy: Declare a larger domain, or say with the parameter ``outside`` which value stands for all others.
    """

    code = "LDP302"


class MissingValue(PrivacyError):
    """A value to perturb is NULL, and the mechanism has no rule for NULL.

    Cause: The column contains NULL.
    Remedy: Say with the parameter ``nulls`` which value of the domain stands for NULL.
    """

    code = "LDP303"


class WrongType(PrivacyError):
    """A column does not have the type of the domain.

    Cause: The column and the domain have different types, or the argument is not a table.
    Remedy: Cast the column, or declare the domain in the type of the column.
    """

    code = "LDP304"


NOT_PERTURBED = (OutsideDomain, MissingValue, WrongType)


@contextmanager
def of_column(name: object) -> Iterator[None]:
    """Within a ``with`` block, let errors about a value to perturb name its column, if it has a name."""
    try:
        yield
    except NOT_PERTURBED as error:
        raise error.of_column(name) if isinstance(name, str) and name else error from None


class NotReports(PrivacyError):
    """The values that were passed to an estimator cannot be reports of the mechanism. Most likely they are the raw column.

    Cause: The raw column was passed, or reports of another epsilon, another domain or another version of the domain.
    Remedy: Pass the column of reports with the mechanism that drew them.
    """

    code = "LDP305"


class DuplicateKey(PrivacyError):
    """A set of key-value pairs to perturb contains a key twice.

    Cause: The pairs of a user were not aggregated.
    Remedy: Aggregate to one value for each user and key first, for example with avg or max_by.
    """

    code = "LDP306"


class OutsidePolicy(PrivacyError):
    """A run does something else with the rows of a table than the policy of that table allows.

    Cause: ``[tables.NAME]`` in ``ldpsql.toml`` has another mechanism for a column, keeps fewer columns, or declares permanent
        reports. The table is recognised by what is read, and the mechanism by its fingerprint, however both are written.
    Remedy: Use the policy itself: ``policy='people'``, on the command line ``--table people``, in SQL ``ldp.m.people_city()``.
        Or change the policy, and have the change reviewed (``ldpsql policy diff``).
    """

    code = "LDP307"


class RowBudgetExceeded(PrivacyError):
    """The mechanisms of a table's policy spend more on a row than its total allows.

    Cause: The epsilon, the epsilon per unit of distance or the delta of the columns adds up to more than ``[tables.NAME]``
    allows.
    Remedy: Lower the epsilon of a column, leave a column out, or declare a larger total.
    """

    code = "LDP308"


class Redrawn(PrivacyError):
    """Something that perturbs is not stored, so each read of it would draw new reports.

    Cause: A view, an ephemeral model, a hook or a model that dbt rebuilds contains ``ldp.perturb``.
    Remedy: Store the reports once and read these. In dbt use an incremental model with ``unique_key`` and
    ``full_refresh=false``.
    """

    code = "LDP309"


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
    Remedy: Use a smaller epsilon, make one row of all rows of a user, leave out the people whose budget is used up, or wait
    for the next window.
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

    Cause: ``ldp.perturb`` ran without ``ldpsql.release``, a statement reads other tables or files than the release or nobody
    can see which, the transaction began before the ledger was attached, or the data changed after they were charged.
    Remedy: Draw inside ``ldpsql.release``, with the names of tables and files in the statement, or use ``perturb_table`` or
    ``perturb_copy`` with ``charge=``.
    """

    code = "LDP320"


class KeyUnusable(LedgerError):
    """The key of permanent reports is missing, damaged, a different key, or readable by other users.

    Cause: The key file is missing, damaged, replaced, or its permissions are too wide.
    Remedy: Restore the file from its backup, and let only its owner read it. ``ldpsql budget new-key`` makes the first one.
    """

    code = "LDP321"


class DataError(LdpError):
    """The reports do not allow the requested estimate.

    Cause: The table of reports cannot be read to its end, or does not fit the estimate.
    Remedy: Check the column and the source that the message names.
    """

    code = "LDP400"
    exit_code = 5


class ImpossibleReport(DataError):
    """Some reports cannot occur under the mechanism.

    Cause: The column contains raw values, or reports of another mechanism.
    Remedy: Pass the mechanism that drew the reports, or remove the rows that are not reports.
    """

    code = "LDP401"


class IllConditioned(DataError):
    """The channel cannot be inverted with a useful precision.

    Cause: Epsilon is so small for this domain that an inversion would multiply the noise without limit.
    Remedy: Use ``ibu``, or declare fewer values.
    """

    code = "LDP402"


class BadCounts(DataError):
    """Counts are not a map from reports to whole numbers.

    Cause: The counts are negative, fractional or too large, or have other columns or types.
    Remedy: Count with ``ldp.counts(report)`` or ``SELECT report, count(*) AS n``.
    """

    code = "LDP403"


class NoReports(DataError):
    """There are no reports to estimate from.

    Cause: The table or the group is empty, or the column contains only NULL; an aggregate in SQL then returns NULL instead.
    Remedy: Perturb some values first, or check the filter of the query.
    """

    code = "LDP404"

    def __init__(
        self, message: str = "there is not a single report to estimate from", hint: str = "perturb some values first"
    ) -> None:
        super().__init__(message, hint)


class NotApplicable(DataError):
    """The estimator does not apply to reports of this mechanism.

    Cause: The estimator needs neighbouring values, an invertible channel or a smaller domain.
    Remedy: Use ``ibu``, which applies to every mechanism.
    """

    code = "LDP406"


class OutOfTime(DataError):
    """The deadline of an estimator passed before the estimate could begin.

    Cause: ``deadline`` is shorter than the preparation of the channel, or the search for frequent strings.
    Remedy: Raise ``deadline``, use fewer values, or continue fewer prefixes (``kept``).
    """

    code = "LDP407"

    def __init__(
        self,
        message: str = "the deadline passed while the channel was prepared",
        hint: str = "raise deadline, or use fewer values",
    ) -> None:
        super().__init__(message, hint)


class OtherMechanism(DataError):
    """The reports were drawn by another mechanism than the one they are estimated with.

    Cause: The fingerprint of the reports is that of another mechanism, epsilon or domain.
    Remedy: Estimate with the mechanism that drew the reports, and those of each mechanism separately.
    """

    code = "LDP408"


class MechanismUnrecorded(DataError):
    """No mechanism was passed, and the reports do not say which one drew them.

    Cause: The table or the file has no record of the mechanism, such as reports of ``ldp.perturb`` alone or in CSV files,
    or its domain is too long to be recorded and nothing here declares it.
    Remedy: Pass the mechanism that drew the reports, or declare it in ``ldpsql.toml``.
    """

    code = "LDP409"


class ConnectionRefused(LdpError):
    """The functions could not be attached to this connection.

    Cause: The object is not an open DuckDB connection, or a database or schema of yours has the name ``ldp``.
    Remedy: Pass ``duckdb.connect(...)``, or choose another name: ``ldpsql.attach(con, name='dp')``.
    """

    code = "LDP501"


class SourceRefused(LdpError):
    """A table or a file does not exist, or cannot be read as requested.

    Cause: The path or the name is wrong, the file is not of the expected kind, or it changed during the run.
    Remedy: Correct the name, and run again while nobody writes to the source.
    """

    code = "LDP520"
    exit_code = 5


class DestinationExists(LdpError):
    """The destination of the reports already exists.

    Cause: A file, a folder or a table of this name is there.
    Remedy: Choose another name, or pass ``replace=True`` (``--replace``).
    """

    code = "LDP521"


class UnfinishedRun(LdpError):
    """An earlier run to this destination has not finished, or is still running.

    Cause: A run was stopped before it published, or another process is still writing.
    Remedy: Continue with ``resume=True`` (``--resume``), or start again with ``replace=True`` (``--replace``).
    """

    code = "LDP522"


class DestinationRefused(LdpError):
    """The reports cannot be written as requested.

    Cause: The folder contains other files, the disk is full, or the table has other columns.
    Remedy: Choose another destination, or correct what the message names.
    """

    code = "LDP523"


class SparkRefused(LdpError):
    """Spark cannot, or must not, do this.

    Cause: A setting of Spark would draw reports twice, or Spark lacks the type of the reports.
    Remedy: Change the setting or the mechanism that the message names, or use ``ldpsql.perturb_copy``.
    """

    code = "LDP530"


class Interrupted(LdpError):
    """Somebody stopped this.

    Cause: Ctrl-C, a signal, or ``ldpsql.interrupt``.
    Remedy: Run it again. A run of ``perturb_copy`` or ``perturb_table`` continues with ``resume=True``.
    """

    code = "LDP904"
    exit_code = 130  # the shells' code for a process that SIGINT ended

    def __init__(self) -> None:
        super().__init__("interrupted")


class InternalError(LdpError):
    """A defect of ldpsql or of a plugin; the details are withheld because they may hold raw values.

    Cause: An assumption of ldpsql or of a plugin does not hold.
    Remedy: Report it with the version (``ldpsql doctor``) and the code, without your data.
    """

    code = "LDP900"
