"""The difference of a share or a mean between two conditions, and whether two columns are independent of each other."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import (
    NULL,
    TESTED,
    Argument,
    Columns,
    Contrast,
    Domain,
    InvalidParameter,
    Kind,
    Mean,
    Question,
    Share,
    hookimpl,
    number_of,
    python_value,
    two_columns,
)


@dataclass(frozen=True)
class Difference(Question):
    """A share or a mean where one condition holds, less the same where another one does, of the same reports."""

    name = "difference"
    summary = "the difference of a share or a mean between two conditions, with its error, interval and p-value"
    fields = TESTED
    of: Argument
    given: Argument
    versus: Argument

    def about(self, values: Domain) -> Contrast:
        """Return the difference."""
        if not self.given.is_valid or not self.versus.is_valid:
            raise InvalidParameter(
                "a difference needs two conditions", "given := {city: 'Lima'}, versus := {city: 'Oslo'}; see also ldp.compare"
            )
        return Contrast(*(number_of(values, self.of, where) for where in (self.given, self.versus)))


@dataclass(frozen=True)
class Comparison(Question):
    """A share or a mean of some people, less the same of other people."""

    name = "compare"
    summary = "the difference of a share or a mean between the counts of two groups, with its error, interval and p-value"
    fields = TESTED
    two_groups = True
    of: Argument = NULL
    given: Argument = NULL

    def about(self, values: Domain) -> Share | Mean:
        """Return the share or the mean."""
        return number_of(values, self.of, self.given)


@dataclass(frozen=True)
class IndependenceTest(Question):
    """A test of whether two columns are independent, both of a table of two if none is named."""

    name = "independence"
    summary = "a test of whether two columns are independent of each other, with their mutual information in bits"
    fields = {
        "mutual_information": Kind.NUMBER,
        "statistic": Kind.NUMBER,
        "degrees": Kind.WHOLE,
        "p_value": Kind.NUMBER,
    }
    options = {"estimator": "NULL"}
    columns: Argument = NULL

    def about(self, values: Domain) -> Columns:
        """Return the two columns."""
        return two_columns(values, python_value(self.columns))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the difference within a group of people, the comparison of two groups, and the test of independence."""
    return [Difference, Comparison, IndependenceTest]
