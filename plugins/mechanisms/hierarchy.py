"""A hierarchy of levels, for ranges and quantiles (HH with hashes).

Cormode, Kulkarni, Srivastava, "Answering range queries under local differential privacy", VLDB 2019; levels are made to agree
as by Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB 2010.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from ldpsql.mechanisms import (
    Levels,
    Mechanism,
    NodeReports,
    OrderedMechanism,
    WholeField,
    best_tree,
    hookimpl,
    node_reports,
    tree_channel,
)


class Hierarchy(OrderedMechanism):
    """A hierarchy: a random level of a tree over the range, and optimised local hashing of the node that holds the value.

    For shares of ranges, quantiles and means of up to 2^20 ordered values. The level is drawn independently of the value, so
    all of epsilon goes to the node; few nodes are reported by k-RR. Reports are STRUCT(level, seed, y), level 0 is that of the
    values. By default, fanout and levels are those with the smallest expected error of a range.

    >>> mechanism = Hierarchy(epsilon=1, low=0, high=99, step=1)
    >>> mechanism.fanout, mechanism.levels, mechanism.channel().counts
    (2, 5, [100, 50, 25, 13, 7])
    """

    name = "hierarchy"
    sql_reports = NodeReports.marker
    fanout: Annotated[WholeField, Field(ge=2, le=1 << 20)] | None = Field(
        None, description="number of children of a node; NULL: the number with the smallest expected error"
    )
    levels: Annotated[WholeField, Field(ge=1, le=20)] | None = Field(
        None, description="number of levels that are reported, from the values up; NULL: that with the smallest expected error"
    )

    @model_validator(mode="after")
    def _grow(self) -> Self:
        """Return the mechanism with fanout and levels: they are part of what its reports mean."""
        if self.fanout is None or self.levels is None:
            self.__dict__["fanout"], self.__dict__["levels"] = best_tree(self.epsilon, self.layout(), self.fanout, self.levels)
        return self

    def channel(self) -> Levels:
        """Return the levels, each with the response to its nodes."""
        return tree_channel(self.epsilon, self.layout(), self.fanout or 2, self.levels or 1)

    def alphabet(self) -> NodeReports:
        """Return the reports of all levels."""
        return node_reports(self.channel())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the hierarchy."""
    return [Hierarchy]
