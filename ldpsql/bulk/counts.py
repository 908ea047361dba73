"""Counts of reports: all that an estimator sees of the data, from streams of any size, on any machine; they add up.

`partial_counts` counts one part, `merge` adds parts, `ldpsql.estimate` takes the sum: the result is the same to the last bit
as from all the reports. For sets of values, where nearly all reports differ, `partial_supports` keeps one number a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.bulk.fingerprints import of_frame
from ldpsql.bulk.sources import batches_of, check_columns, stream
from ldpsql.channels import SetChannel
from ldpsql.domains.columns import plain
from ldpsql.errors import BadCounts, InvalidParameter, NoReports
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.functionals import bounded
from ldpsql.inference.counts import GroupedCounts, weighed
from ldpsql.inference.outcome import Fit, simplex_projection
from ldpsql.inference.score_intervals import deviations, of_votes
from ldpsql.mechanisms.base import Mechanism, certify_values
from ldpsql.registry.agreement import KEY, NONE, Fingerprints, check_agreement, of_schema, together
from ldpsql.registry.registry import registry
from ldpsql.reports import SetReports, impossible

_AHEAD = 64  # batches that are counted before their counts are added up


@dataclass(frozen=True)
class Counts:
    """Distinct reports, in a fixed order, how often each occurs, and the fingerprint of what drew them, if it is known.

    If rows have weights, ``numbers`` are structs of the number of rows n, their weight w, and their squared weight ww.
    """

    reports: pa.Array
    numbers: pa.Array
    fingerprints: Fingerprints = NONE

    @classmethod
    @withheld
    def of(cls, reports: pa.Array, numbers: pa.Array) -> Counts:
        """Add up the numbers of equal reports; NULL reports are left out.

        Raises:
            BadCounts: if a number, or the sum of a report's numbers, is not a whole number from 0 to 2^53 - 1.

        """
        reports = _decoded(reports)
        if reports.null_count:
            there = reports.is_valid()
            reports, numbers = reports.filter(there), numbers.filter(there)
        if not len(reports):
            return cls(reports, pa.array([], pa.uint64()))
        _, counts = GroupedCounts.of(reports, numbers).merged()
        return cls(counts.reports, counts.written())

    @classmethod
    @withheld
    def from_arrow(cls, table: Any) -> Counts:
        """Return counts from the columns ``report`` and ``n`` of a frame of pandas or an Arrow stream.

        Raises:
            BadCounts: if a column is missing, or the numbers are not counts.

        """
        read = stream(table, ("report", "n")).read_all()
        if {"report", "n"} - set(read.column_names):
            raise BadCounts("counts must have the columns report and n", "SELECT city AS report, count(*) AS n")
        total = cls.of(read["report"].combine_chunks(), read["n"].combine_chunks())
        return replace(total, fingerprints=of_schema(read.schema, "report"))

    def one_group(self) -> GroupedCounts:
        """Return the counts as those of one group."""
        return GroupedCounts.of(self.reports, self.numbers)

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns ``report`` and ``n``; its metadata hold the fingerprint."""
        written = {f"{KEY}report": "\n".join(sorted(self.fingerprints))} if self.fingerprints else None
        return pa.table([self.reports, self.numbers], ["report", "n"], metadata=written)

    @withheld
    def __add__(self, other: Counts) -> Counts:
        return merge([self, other])


@dataclass(frozen=True)
class Supports:
    """How many reports there are, and how many support each value of the domain: all that an inversion needs of them.

    Others may have added them up, as Prio does by position: ``Supports("oue(1, ['a', 'b'])", 900, [350, 460])``.

    Raises:
        BadCounts: unless there is a whole number for each value, from 0 to the number of reports.
        InvalidParameter: if the mechanism does not report sets of values.

    """

    mechanism: Mechanism
    reports: int
    numbers: NDArray[np.int64]

    def __init__(self, mechanism: Mechanism | str, reports: int, numbers: Any) -> None:
        read, sums = registry().mechanism(mechanism), np.asarray(numbers)
        whole = sums.shape == (_of_sets(read).inputs,) and np.issubdtype(sums.dtype, np.integer)
        if not whole or not isinstance(reports, int | np.integer) or sums.min() < 0 or sums.max() > reports:
            raise BadCounts("there must be a whole number for each value, from 0 to the number of reports", "[350, 460] of 900")
        for name, value in (("mechanism", read), ("reports", int(reports)), ("numbers", sums.astype(np.int64))):
            object.__setattr__(self, name, value)

    @withheld
    def __add__(self, other: Supports) -> Supports:
        if self.mechanism != other.mechanism:
            raise InvalidParameter("reports of different mechanisms do not add up", "estimate them separately")
        return Supports(self.mechanism, self.reports + other.reports, self.numbers + other.numbers)

    @withheld
    def inv(self, confidence: float = 0.95) -> pa.Table:
        """Return the unbiased share of every value: value, estimate, std_error, low, high (Wilson's interval, inverted).

        A report supports x with probability miss + (hit - miss) theta_x, and reports are independent.

        Raises:
            NoReports: if there is none.

        """
        if not self.reports:
            raise NoReports()
        channel, values = _of_sets(self.mechanism), certify_values(self.mechanism).values.values
        hit, miss, n = float(channel.hit), float(channel.miss), float(self.reports)
        share, z = (self.numbers / n - miss) / (hit - miss), deviations(confidence)
        ends = of_votes(share[None], simplex_projection(share[None]), (miss, hit), n, z)
        errors = bounded(Fit.inversion(share[None]), *ends, z)
        columns = [values, share, errors.std_error[0], errors.low[0], errors.high[0]]
        return pa.table(columns, ["value", "estimate", "std_error", "low", "high"])


@withheld
def partial_counts(batches: Any, column: str, weight: str | None = None) -> Counts:
    """Count the reports of one column of a stream, batch by batch; NULL reports are left out.

    Args:
        batches: anything that offers Arrow's stream interface, or a pandas frame.
        column: the column of the reports.
        weight: the column of the weights of the rows; None if all count the same. Weighted counts add up with their like only.

    Raises:
        BadCounts: if a weight is negative, NULL or not finite.
        UnknownName, SourceRefused: if there is no such column, or more than one.

    """
    reader = _with(batches, column, *([] if weight is None else [weight]))
    waiting = [_nothing(reader, column)] if weight is None else []
    for batch in batches_of(reader):
        reports = batch.column(column)
        if weight is None:
            waiting.append(Counts.of(reports, pa.array(np.ones(len(reports), dtype=np.uint64))))
        else:
            _, counts = weighed(_decoded(reports), plain(batch.column(weight)))
            waiting.append(Counts(counts.reports, counts.written()))
        if len(waiting) > _AHEAD:
            waiting = [_merged(waiting)]
    waiting = waiting or [_nothing(reader, column)]
    return replace(_merged(waiting), fingerprints=of_frame(batches, column) or of_schema(reader.schema, column))


C = TypeVar("C", Counts, Supports)


@withheld
def merge(parts: Iterable[C]) -> C:
    """Return the sum of counts, or of supports, of at least one part; engines may store the same reports in different types.

    Raises:
        NoReports: if there is no part.
        InvalidParameter: if a part is neither counts nor supports, or both occur.
        BadCounts: if the types of the reports have nothing in common.
        OtherMechanism: if different mechanisms drew the reports.

    """
    return _merged(list(parts))


def _merged(parts: list[C]) -> C:
    """Return the sum of the parts, and take them out of the list: long reports then lie in memory twice, not three times."""
    if not parts:
        raise NoReports("there are no counts to add up", "count some reports first")
    if not all(isinstance(part, Counts | Supports) and type(part) is type(parts[0]) for part in parts):
        raise InvalidParameter("these are not counts, or counts of different kinds", "pass what ldpsql.partial_counts returns")
    if isinstance(parts[0], Counts):
        fingerprints = together(part.fingerprints for part in parts)
        total = replace(Counts.of(*_joined(parts)), fingerprints=fingerprints)
        pa.default_memory_pool().release_unused()  # it would keep what the joined reports took
        return total
    return reduce(lambda a, b: a + b, parts)


@withheld
def partial_supports(batches: Any, column: str, mechanism: Mechanism | str) -> Supports:
    """Count for each value the reports of one column that support it; NULL reports are left out.

    Sets are counted a byte at a time: one histogram of 256 for each byte of the words, whatever the number of values.

    Raises:
        UnknownName, SourceRefused: if there is no such column, or more than one.
        ImpossibleReport: if it holds anything but sets of values of this mechanism.
        InvalidParameter: if the mechanism does not report sets of values.
        OtherMechanism: if another mechanism drew them.

    """
    read = registry().mechanism(mechanism)
    channel = _of_sets(read)
    form = SetReports(channel.inputs)
    reports, numbers = 0, np.zeros(form.words * 64, dtype=np.int64)
    check_agreement(of_frame(batches, column) or NONE, read)
    for batch in batches_of(_with(batches, column)):
        words = form.read(plain(batch.column(column)).drop_null())
        if not channel.possible(words).all():
            raise impossible()
        reports += len(words)
        octets = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8)
        sums = [np.bincount(octets[:, place], minlength=256) @ _BITS for place in range(octets.shape[1])]
        numbers += np.concatenate(sums)
    return Supports(read, reports, numbers[: form.size])


def _of_sets(mechanism: Mechanism) -> SetChannel:
    """Return the channel of a mechanism that reports sets of values."""
    certified = certify_values(mechanism)
    if not isinstance(certified.reports, SetReports) or not isinstance(certified.channel, SetChannel):
        raise InvalidParameter(f"{mechanism.name} does not report sets of values", "use partial_counts")
    return certified.channel


_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.int64)


def _with(batches: Any, *columns: str) -> pa.RecordBatchReader:
    reader = stream(batches, list(columns))
    check_columns(list(columns), reader.schema.names)
    return reader


def _nothing(reader: pa.RecordBatchReader, column: str) -> Counts:
    kind = reader.schema.field(column).type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return Counts.of(pa.array([], kind), pa.array([], pa.uint64()))


def _decoded(reports: pa.Array) -> pa.Array:
    reports = plain(reports)
    return reports.dictionary_decode() if pa.types.is_dictionary(reports.type) else reports


def _joined(parts: list[Counts]) -> tuple[pa.Array, pa.Array]:
    """Return the reports and numbers of all parts, and empty the list; engines store the same reports in different types."""
    tables = [part.to_arrow() for part in parts]
    parts.clear()
    try:
        joined = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException:
        joined = None
    if joined is None:
        raise BadCounts(
            "counts of different types of reports do not add up, nor counts with weights and without",
            "cast the reports to one type, or give all rows a weight",
        )
    reports, numbers = (column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in joined.columns)
    return reports, numbers
