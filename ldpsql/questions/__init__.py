"""The building blocks of questions: the base classes, and the numbers about a distribution that questions ask for.

A plugin that offers questions imports only from here; the names are stable within one `API_VERSION`.
"""

from __future__ import annotations

from ldpsql.domains.columns import python_value
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.estimates import distances
from ldpsql.estimates.conditions import TableCells, bound_of, check_ordered, condition, items_of, named_place
from ldpsql.estimates.diagnosis import Diagnosis
from ldpsql.estimates.estimate import Estimate, Estimates, check_single, estimator_of_top
from ldpsql.estimates.functionals import FIELDS, Functional, Measure
from ldpsql.estimates.question import (
    NULL,
    NUMBERS,
    RANGE,
    TESTED,
    Argument,
    Asked,
    Fields,
    Kind,
    Lines,
    Question,
    QuestionOfColumn,
    Source,
    fields_of,
    is_table,
)
from ldpsql.estimates.simulated import (
    OF_PLACES,
    MetricName,
    SimulatedError,
    Simulation,
    compare_simulated,
    metric_named,
    simulated_errors,
)
from ldpsql.estimates.spans import RangeShare, RangeShares, RectangleShares, check_grid
from ldpsql.estimates.tables import (
    Columns,
    Contrast,
    Margin,
    Mean,
    Quantile,
    Share,
    Variance,
    margin_of,
    number_of,
    share_of,
    two_columns,
)
from ldpsql.hooks import API_VERSION, hookimpl
from ldpsql.inference.counting import likelihoods, without_impossible
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.mixed import Mixed, Perturbed, Repeated, of_lists
from ldpsql.names import INV, SHARES
from ldpsql.outcomes.by_value import (
    Corrected,
    Design,
    QuestionOfOutcome,
    by_value,
    linear,
    logistic,
    named_columns,
    one_mechanism,
)
from ldpsql.outcomes.moments import Moments

__all__ = [
    "API_VERSION", "FIELDS", "INV", "NULL", "NUMBERS", "OF_PLACES", "RANGE", "SHARES", "TESTED", "Argument", "Asked",
    "Columns", "Contrast", "Corrected", "Design", "Diagnosis", "Domain", "Estimate", "Estimates", "Fields", "Functional",
    "GroupedCounts", "InvalidParameter", "Kind", "Lines", "Margin", "Mean", "Measure", "MetricName", "Mixed", "Moments",
    "Perturbed", "Quantile", "Question", "QuestionOfColumn", "QuestionOfOutcome", "RangeShare", "RangeShares",
    "RectangleShares", "Repeated", "Share", "SimulatedError", "Simulation", "Source", "TableCells", "Variance", "bound_of",
    "by_value", "check_grid", "check_ordered", "check_single", "compare_simulated", "condition", "distances",
    "estimator_of_top", "fields_of", "hookimpl", "is_table", "items_of", "likelihoods", "linear", "logistic", "margin_of",
    "metric_named", "named_columns", "named_place", "number_of", "of_lists", "one_mechanism", "python_value", "share_of",
    "simulated_errors", "two_columns", "without_impossible",
]  # fmt: skip
