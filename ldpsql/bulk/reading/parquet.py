"""Read columns of plain types from Parquet files as record batches through Arrow, which is cheaper than through DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ldpsql.domains.columns import family

BATCH_ROWS = 122_880  # a row group of DuckDB


def rows_of(file: str) -> list[int]:
    """Return the number of rows of each row group."""
    metadata = pq.read_metadata(file)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def plain_batches(
    files: Sequence[str], wanted: Iterable[str], encoded: Iterable[str], groups: range | None = None
) -> pa.RecordBatchReader | None:
    """Return columns of files, or of some row groups of one; None unless all files have them with the same plain types.

    Text in the columns ``encoded`` comes as a dictionary and positions in it, as in the file, so each string is looked up once.
    """
    names = set(wanted)
    schemas = [pa.schema([field for field in pq.read_schema(file) if field.name in names]) for file in files]
    common = schemas[0].remove_metadata()
    if len(common) != len(names) or not all(map(common.equals, schemas)) or not all(map(family, common.types)):
        return None

    texts = [field.name for field in common if pa.types.is_string(field.type) and field.name in set(encoded)]
    for name in texts:
        common = common.set(common.get_field_index(name), pa.field(name, pa.dictionary(pa.int32(), pa.string())))

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            with pq.ParquetFile(file, memory_map=True, read_dictionary=texts) as opened:
                read = range(opened.metadata.num_row_groups) if groups is None else groups
                yield from opened.iter_batches(BATCH_ROWS, row_groups=list(read), columns=common.names, use_threads=False)

    return pa.RecordBatchReader.from_batches(common, batches())
