"""The building blocks of questions: the base classes, and the numbers about a distribution that questions ask for.

A plugin that offers questions imports only from here; the names are stable within one `API_VERSION`.
"""

from __future__ import annotations

from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import TableCells, condition, named_place
from ldpsql.estimates.contrasts import Contrast, number_of, share_of
from ldpsql.estimates.measures import FIELDS, Functional, Measure
from ldpsql.estimates.question import NULL, Argument, Question, QuestionOfColumn, Shown, Source, is_table
from ldpsql.estimates.rectangles import RectangleShares, check_grid
from ldpsql.estimates.scale import bound_of, check_ordered
from ldpsql.estimates.spans import Quantile, Quantiles, RangeShare, RangeShares
from ldpsql.estimates.tables import MeanOf, QuantileOf, QuantilesOf, Share, VarianceOf
from ldpsql.hooks import API_VERSION, hookimpl

__all__ = [
    "API_VERSION",
    "FIELDS",
    "NULL",
    "Argument",
    "Contrast",
    "Domain",
    "Functional",
    "InvalidParameter",
    "MeanOf",
    "Measure",
    "Quantile",
    "QuantileOf",
    "Quantiles",
    "QuantilesOf",
    "Question",
    "QuestionOfColumn",
    "RangeShare",
    "RangeShares",
    "RectangleShares",
    "Share",
    "Shown",
    "Source",
    "TableCells",
    "VarianceOf",
    "bound_of",
    "check_grid",
    "check_ordered",
    "condition",
    "hookimpl",
    "is_table",
    "named_place",
    "number_of",
    "share_of",
]
