"""`ldpsql.key_value`: estimates from reports of sets of pairs."""

from __future__ import annotations

from ldpsql.bulk.counts import Counts
from ldpsql.bulk.frames import likelihood_of, mechanism_of
from ldpsql.bulk.sources import Column
from ldpsql.engine.groups import one_thread
from ldpsql.errors.boundary import withheld
from ldpsql.estimators.base import Estimator
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import INV
from ldpsql.pairs import KeyValueEstimate, estimate_key_value
from ldpsql.registry.registry import registry


@withheld
@one_thread
def key_value(
    reports: Column | Counts, mechanism: Mechanism | str | None = None, estimator: Estimator | str = INV
) -> KeyValueEstimate:
    """Estimate the frequency and the mean of every key from a column of reports of sets of pairs; NULL reports are left out.

    Raises:
        ImpossibleReport, NotReports, NoReports: if the column cannot hold reports of the mechanism.

    """
    drawn_by = mechanism_of(reports, mechanism)
    return estimate_key_value(drawn_by, likelihood_of(reports, drawn_by), registry().estimator(estimator))[0]
