"""Whether two columns of a table are independent of each other."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import NULL, Argument, Columns, Domain, Kind, Question, hookimpl, python_value, two_columns


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
    """Offer the test."""
    return [IndependenceTest]
