"""The share of some values, or of some cells of a table."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import NULL, Argument, Domain, Question, Share, hookimpl, share_of


@dataclass(frozen=True)
class ShareOfValues(Question):
    """The share of some values or cells, of all or of those in which a condition holds."""

    name = "share"
    summary = (
        "the share of some values of columns, of all or where a condition on other columns holds, with its error and interval"
    )
    of: Argument
    given: Argument = NULL

    def about(self, values: Domain) -> Share:
        """Return the share."""
        return share_of(values, self.of, self.given)


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the share."""
    return [ShareOfValues]
