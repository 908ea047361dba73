"""LDP300 to LDP309: refused, because continuing could harm the privacy of a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from ldpsql.errors.base import LdpError


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
