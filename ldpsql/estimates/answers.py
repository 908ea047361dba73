"""Answers of an estimate about columns of a table, in Python; `ldpsql.estimates.tables` computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.shown import rounded

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates


class Answer(NamedTuple):
    """A number with its standard error and its interval; the error is infinite if the reports say nothing about the number."""

    estimate: float
    std_error: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the number with its interval, both rounded to the width of the interval."""
        return rounded(self.estimate, self.low, self.high)


class TestedAnswer(NamedTuple):
    """A difference with its standard error and interval, and the p-value of the hypothesis that there is none."""

    estimate: float
    std_error: float
    low: float
    high: float
    p_value: float


class Answers:
    """The answers of an estimate; conditions are values, lists or ``{"low": .., "high": ..}`` by the names of columns.

    For an estimate of one column, a condition is a value, a list or a range without a name.
    """

    of: Estimates
    group: int

    def share(self, of: Any, given: Any = None) -> Answer:
        """Return the share of some values, of all or where a condition on other columns holds.

        Raises:
            InvalidParameter: if a condition names a column or a value that the estimate does not have.

        """
        return Answer(*self.ask("share", of=of, given=given))

    def mean(self, of: str | None = None, given: Any = None) -> Answer:
        """Return the mean of a column: of dates in days, of times in seconds since 1970.

        Raises:
            InvalidDomain: if the values have no order.

        """
        return Answer(*self.ask("mean", of=of, given=given))

    def variance(self, of: str | None = None, given: Any = None) -> Answer:
        """Return the variance of a column, in the unit of `mean` squared.

        Raises:
            InvalidDomain: if the values have no order.

        """
        return Answer(*self.ask("variance", of=of, given=given))

    def quantile(self, q: float, of: str | None = None, given: Any = None) -> Answer:
        """Return the value of a column below which a share q lies, on the scale of `mean`; `ask` takes several shares.

        Raises:
            InvalidDomain: if the values have no order.
            InvalidParameter: if q is not between 0 and 1.

        """
        return Answer(*self.ask("quantile", q=q, of=of, given=given)[1:])

    def ask(self, question: str, **arguments: Any) -> Any:
        """Return the answer to a question of any plugin, a named tuple, or a list of them: the same as in SQL.

        Args:
            question: the name of the question, such as 'median'.
            arguments: its arguments. Dates are numbers of days, times are seconds since 1970.

        Raises:
            UnknownName: if there is no such question.
            InvalidParameter: if the arguments do not fit the values.

        """
        from ldpsql.estimates.question import answered, question_named  # noqa: PLC0415  # questions are about estimates

        kind = question_named(question)
        if kind.raw:
            raise InvalidParameter(
                f"'{kind.name}' is about raw columns, which an estimate does not have",
                f"ldpsql.estimate(frame, m, question='{kind.name}', {next(iter(kind.raw))}='premium')",
            )
        return answered(kind.asked(**arguments), self.of, self.group)

    def margin(self, columns: Sequence[str] | str, given: Sequence[str] | str | None = None) -> pa.Table:
        """Return the table of some columns: a column for each, estimate, std_error, low, high; unknown errors are NULL.

        Args:
            columns: the names of the columns.
            given: some of them: shares are then of the rows with the same values of these.

        """
        return self._table("margin", columns=columns, given=given)

    def _table(self, question: str, **arguments: Any) -> pa.Table:
        from ldpsql.estimates.question import answer_table, question_named  # noqa: PLC0415  # see `ask`

        return answer_table(question_named(question).asked(**arguments), self.of, self.group)

    def difference(self, of: Any, given: Any, versus: Any) -> TestedAnswer:
        """Return the difference of a share, or of the mean of a column, between two conditions, with its p-value.

        Args:
            of: a condition, whose share is compared, or the name of a column, whose mean is.
            given: the first condition.
            versus: the second condition.

        """
        return TestedAnswer(*self.ask("difference", of=of, given=given, versus=versus))

    def independence(self, columns: Sequence[str]) -> Any:
        """Return a test of whether two columns are independent of each other, and their mutual information in bits.

        Raises:
            InvalidParameter: unless two columns are named.
            NotApplicable: if the table of all columns has too many cells.

        """
        return self.ask("independence", columns=columns)

    def compare(self, other: Answers, of: Any = None, given: Any = None) -> TestedAnswer:
        """Return the same difference between this estimate and that of other people, with the same values.

        Raises:
            InvalidParameter: if the values differ.

        """
        from ldpsql.estimates.question import answered_apart, question_named  # noqa: PLC0415  # see `ask`

        if self.of.values != other.of.values:
            raise InvalidParameter(
                "the two estimates have different values", "use mechanisms with the same columns and domains"
            )
        asked = question_named("compare").asked(of=of, given=given)
        measured = answered_apart(asked, (self.of, self.group), (other.of, other.group))
        return TestedAnswer(*(float(getattr(measured, name)[0]) for name in TestedAnswer._fields))
