"""Hierarchies of levels: of ordered values, for ranges and quantiles (HH with hashes); of squares of a grid, for rectangles.

Cormode, Kulkarni, Srivastava, "Answering range queries under local differential privacy", VLDB 2019, in one and two dimensions;
levels are made to agree as by Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency", VLDB 2010. The quad-tree is that of Cormode, Procopiuc, Srivastava, Shen, Yu, "Differentially private spatial
decompositions", ICDE 2012.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from ldpsql.mechanisms import (
    CellMechanism,
    Domain,
    Epsilon,
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


class _Tree:
    """A random level of a tree over the values, drawn independently of the value, and a response to the node that holds it."""

    if TYPE_CHECKING:  # a mechanism
        epsilon: Epsilon
        fanout: int | None
        levels: int | None
        values: Callable[[], Domain]
        layout: Callable[[], tuple[int, ...]]

    sql_reports = NodeReports.marker

    def grown(self) -> Self:
        """Return the mechanism with fanout and levels: they are part of what its reports mean."""
        if self.fanout is None or self.levels is None:
            self.values()  # refuses a grid that is too large
            self.__dict__["fanout"], self.__dict__["levels"] = best_tree(self.epsilon, self.layout(), self.fanout, self.levels)
        return self

    def channel(self) -> Levels:
        """Return the levels, each with the response to its nodes."""
        return tree_channel(self.epsilon, self.layout(), self.fanout or 2, self.levels or 1)

    def alphabet(self) -> NodeReports:
        """Return the reports of all levels."""
        return node_reports(self.channel())


class Hierarchy(_Tree, OrderedMechanism):
    """A hierarchy: a random level of a tree over the range, and optimised local hashing of the node that holds the value.

    For shares of ranges, quantiles and means of up to 2^20 ordered values. The level is drawn independently of the value, so
    all of epsilon goes to the node; few nodes are reported by k-RR. Reports are STRUCT(level, seed, y), level 0 is that of the
    values. By default, fanout and levels are those with the smallest expected error of a range.

    >>> mechanism = Hierarchy(epsilon=1, low=0, high=99, step=1)
    >>> mechanism.fanout, mechanism.levels, mechanism.channel().counts
    (2, 5, [100, 50, 25, 13, 7])
    """

    name = "hierarchy"
    fanout: Annotated[WholeField, Field(ge=2, le=1 << 20)] | None = Field(
        None, description="number of children of a node; NULL: the number with the smallest expected error"
    )
    levels: Annotated[WholeField, Field(ge=1, le=20)] | None = Field(
        None, description="number of levels that are reported, from the values up; NULL: that with the smallest expected error"
    )
    _grow = model_validator(mode="after")(_Tree.grown)


class GridHierarchy(_Tree, CellMechanism):
    """A hierarchy of squares: a random level of a tree over a grid, and optimised local hashing of the square with the cell.

    For shares of rectangles of up to 160,000 cells. The level is drawn independently of the cell, so all of epsilon goes to
    the square; few squares are reported by k-RR. Unlike noise on the plane, all cells are equally hard to tell apart. Reports
    are STRUCT(level, seed, y), level 0 is that of the cells. By default, there are as many levels as possible with
    an expected error of a rectangle that is at most a fifth above the smallest.

    >>> mechanism = GridHierarchy(epsilon=1, columns=24, rows=16)
    >>> mechanism.fanout, mechanism.levels, mechanism.channel().counts
    (2, 4, [384, 96, 24, 6])
    """

    name = "grid_hierarchy"
    fanout: Annotated[WholeField, Field(ge=2, le=1 << 16)] | None = Field(
        None, description="how many squares lie along the side of the next; NULL: chosen by the expected error"
    )
    levels: Annotated[WholeField, Field(ge=1, le=18)] | None = Field(
        None, description="number of levels that are reported, from the cells up; NULL: chosen by the expected error"
    )
    _grow = model_validator(mode="after")(_Tree.grown)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the hierarchy, and that of squares."""
    return [Hierarchy, GridHierarchy]
