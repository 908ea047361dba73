"""The conformance suite for mechanisms and estimators, built-in or third-party.

In the tests of your plugin, call `check_mechanism` on a few instances and `check_estimator` on every estimator class. They
raise `AssertionError` with the claim that failed. `enumerated` lists the reports of a small mechanism with their exact
probabilities, for checks of your own. `operator_of`, `DenseOperator` and `estimate_counts` make likelihoods and estimates from
tables of counts, for which no report is drawn; `certificate` checks a channel against a claim, and `plausible` whether draws
follow their probabilities.
"""

from __future__ import annotations

from ldpsql.estimates.estimate import estimate_counts
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import DenseOperator
from ldpsql.mechanisms.audit import plausible
from ldpsql.privacy.certificate import certificate
from ldpsql.testing.estimators import check_estimator
from ldpsql.testing.mechanisms import (
    Enumeration,
    check_mechanism,
    check_rows,
    check_sampler,
    enumerated,
    examples,
    insecure_words_for_tests,
)

__all__ = [
    "DenseOperator", "Enumeration", "certificate", "check_estimator", "check_mechanism", "check_rows", "check_sampler",
    "enumerated", "estimate_counts", "examples", "insecure_words_for_tests", "operator_of", "plausible",
]  # fmt: skip
