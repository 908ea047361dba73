"""LDP4xx: the reports do not allow the requested estimate."""

from __future__ import annotations

from ldpsql.errors.base import LdpError


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

    Cause: The table or the group is empty, or the column contains only NULL.
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

    Cause: The table or the file has no record of the mechanism, such as CSV, or its domain is too long to be recorded and
    nothing here declares it.
    Remedy: Pass the mechanism that drew the reports, or declare it in ``ldpsql.toml``.
    """

    code = "LDP409"
