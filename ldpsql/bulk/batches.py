"""Perturb streams of record batches, from any engine that speaks Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ldpsql.bulk.charging import Charged
from ldpsql.bulk.columns.chosen import chosen_columns
from ldpsql.bulk.columns.mechanisms import Columns, check_columns
from ldpsql.bulk.columns.projection import Projection
from ldpsql.bulk.in_memory import Charging, is_held
from ldpsql.bulk.reading.parquet import BATCH_ROWS
from ldpsql.bulk.reading.streams import batches_of, stream
from ldpsql.errors.boundary import withheld, withheld_stream
from ldpsql.ledger.uncharged import uncharged


@withheld
def perturb_batches(
    batches: Any,
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    charge: Charged = None,
) -> pa.RecordBatchReader:
    """Return a stream of record batches with some columns perturbed; each batch is drawn when it is read.

    Rows stay in the order of the stream. If that order depends on the values, shuffle the rows first, or use `perturb_copy`.

    Args:
        batches: anything that speaks Arrow's stream interface: a RecordBatchReader, an Arrow table, a Polars frame; or a pandas
            frame, whose NaN is NULL.
        columns: the mechanism of each column, or one of a row, such as ``row(city=krr(...), age=...)``, which is the same; the
            reports replace each column under its name.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out. Dictionaries and views become plain columns, so that
            they hold only the values of their rows.
        charge: the ledger that is charged before the first draw, or the name of the people, for the ledger of ``ldpsql.toml``.
            If it charges by user and the rows come as a stream, each batch is charged before it is drawn. The metadata of the
            schema record the release under ``ldpsql.release``, or that the ledger of ``ldpsql.toml`` was not charged.

    Raises:
        UnknownName, SourceRefused: if a column is missing, or occurs twice.
        BudgetExceeded: if somebody's budget would be exceeded; for a stream that is charged by user while reading.
        MissingValue, OutsideDomain, WrongType: while reading, if a value cannot be perturbed.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    chosen = chosen_columns(columns, keep, policy)
    charged = chosen.charge(charge)
    projection = Projection.of(chosen.mechanisms, chosen.keep)
    chosen.check(projection, charged)
    charging = Charging(charged, projection.uncertified)
    user = [] if charging.user is None else [charging.user]
    reader = stream(batches, [*projection.columns, *user])
    schema = projection.schema(reader.schema)
    projection.check_types(reader.schema)
    check_columns(user, reader.schema.names)
    if charged is not None and is_held(batches):
        table = reader.read_all()
        for batch in table.to_batches(BATCH_ROWS):
            projection.check(batch)
        charging.whole(table.column(user[0]) if user else None, len(table))
        reader = table.to_reader(BATCH_ROWS)
    elif not user:
        charging.whole()
    schema = schema.with_metadata(schema.metadata | charging.metadata(uncharged=charged is None and uncharged()))
    return pa.RecordBatchReader.from_batches(schema, _drawn(reader, projection, schema, charging))


@withheld_stream
def _drawn(
    reader: pa.RecordBatchReader, projection: Projection, schema: pa.Schema, charging: Charging
) -> Iterator[pa.RecordBatch]:
    for batch in batches_of(reader):
        if charging.by_batch:
            projection.check(batch)
        with charging.drawing(batch):
            reports = projection.perturb(batch, schema)
        yield reports
    charging.end()
