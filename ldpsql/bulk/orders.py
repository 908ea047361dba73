"""The drawing of a run: its reports are written in a random order, over the whole run, or in that of the source; shuffling.

random: each part of the source is drawn and scattered over buckets, then the buckets are shuffled and written
keep:   each part of the source is drawn and written at once, into a file of its own if the destination is a folder
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql.bulk.columns import CompactProjection, Projection
from ldpsql.bulk.databases import DatabaseSink
from ldpsql.bulk.sinks import Form, TableSink, file_name, scratch_folder
from ldpsql.bulk.sources import Part, Source, cut_short
from ldpsql.bulk.staging import Staging
from ldpsql.channels import native
from ldpsql.channels.randomness import Words, random_words
from ldpsql.engine.connections import until_stopped
from ldpsql.engine.groups import at_once
from ldpsql.errors import DestinationRefused, InvalidParameter, LdpError, SourceRefused

# Put rows in a uniformly random order in bounded memory: scatter them over buckets in a file, then shuffle each bucket.
#
# Each row goes into a random bucket, independently of all others. Then the rows of each bucket are put in a uniformly random
# order. The result is the order of independent, identically distributed keys (bucket, position). Rows with such keys are in
# every order with the same probability, whatever the sizes of the buckets, also if several buckets are shuffled as one.

MOST_BUCKETS = 256  # one random byte chooses
BUCKET_ROWS = 1 << 17  # rows that are shuffled at a time stay in the processor's cache
BUCKET_BYTES = 1 << 28  # a larger bucket is scattered again
BLOCK_ROWS = 1 << 20  # rows that are scattered at a time
BLOCK_BYTES = 1 << 26
_PART_ROWS = 1 << 19  # rows of a part at least, and
_REPEATS = 32  # how often each number occurs in it on average
_ROOM = 5  # standard deviations: a number seldom comes up more often than its count
_OUT_ROWS = 122_880  # a row group of DuckDB
_ENDS = "ends of buckets"
_DIGIT = 12  # bits: Arrow sorts by counting, not by comparing, if at most 4,096 values occur


def buckets_for(rows: int | None) -> int:
    """Return how many buckets suit a number of rows, a power of two; None stands for an unknown number."""
    if rows is None:
        return MOST_BUCKETS
    return min(MOST_BUCKETS, 1 << (max(rows - 1, 0) // BUCKET_ROWS).bit_length())


def permutation(count: int, words: Words = random_words) -> pa.Array:
    """Return the numbers 0 .. count - 1 in a uniformly random order.

    The kernel exchanges each number with a random one before it. Without kernels, they are sorted by random keys, digit by
    digit, the last digit first. Further random words order equal keys, as if the keys were longer.
    """
    order = np.arange(count, dtype=np.int32)
    if words is random_words and native.shuffle(order):
        return pa.array(order)
    passes = max(1, -(-(count.bit_length() + 6) // _DIGIT))  # so that few numbers share a key
    digits = [words(-(-count // 4)).view(np.uint16)[:count] >> np.uint16(16 - _DIGIT) for _ in range(passes)]
    sortings = [pc.array_sort_indices(pa.array(digit)) for digit in digits]  # stable
    before = list(accumulate(reversed(sortings), lambda after, by: _take(by, after)))[::-1]  # the order after each sorting
    same = 1 + np.flatnonzero(_alike(np.asarray(_take(pa.array(digits[0]), before[0]))))
    for digit, positions in zip(digits[1:], before[1:], strict=True):
        there = np.asarray(positions)
        same = same[digit[there[same]] == digit[there[same - 1]]]
    return _untied(before[0], same, words) if len(same) else before[0]


def random_order(count: int, words: Words = random_words) -> NDArray[np.int32]:
    """Return the numbers 0 .. count - 1 in a uniformly random order: random buckets, then a random order of each bucket."""
    buckets = buckets_for(count)
    if buckets == 1:
        return np.asarray(permutation(count, words)).astype(np.int32)
    chosen = words(-(-count // 8)).view(np.uint8)[:count] & np.uint8(buckets - 1)
    blocks = at_once(lambda start: _rows_by_bucket(chosen, start), range(0, count, BLOCK_ROWS))
    order, starts = np.empty(count, dtype=np.int32), np.sum([ends for _, ends in blocks], axis=0).tolist()

    def shuffle(bucket: int) -> None:
        members = np.concatenate([rows[ends[bucket] : ends[bucket + 1]] for rows, ends in blocks])
        order[starts[bucket] : starts[bucket + 1]] = _take(pa.array(members), permutation(len(members), words))

    at_once(shuffle, range(buckets))
    return order


def random_arrangement(counts: NDArray[np.int64], words: Words = random_words) -> NDArray[np.int32]:
    """Return the numbers 0 .. len(counts) - 1, each as often as its count, in a uniformly random order.

    16 random bits draw the number of each position from a table in which each number has a little less than its share, and the
    rest is blank. What the numbers then lack fills the blank positions, in a random order. If a number comes up more often than
    its count, all are drawn again. All positions are treated alike, so every order of the numbers has the same probability,
    whatever the shares in the table.
    """
    count, blank = int(counts.sum()), len(counts)
    if blank > 1 << 16:
        return np.repeat(np.arange(blank, dtype=np.int32), counts)[random_order(count, words)]
    shares = np.maximum(counts - _ROOM * np.sqrt(counts), 0) * ((1 << 16) / max(count, 1))
    table = np.full(1 << 16, blank, dtype=np.int32)
    filled = np.repeat(np.arange(blank, dtype=np.int32), shares.astype(np.int64))
    table[: len(filled)] = filled
    order = np.empty(count, dtype=np.int32)
    blocks = [order[start : start + BUCKET_ROWS] for start in range(0, max(count, 1), BUCKET_ROWS)]

    def draw(block: NDArray[np.int32]) -> NDArray[np.int64]:
        table.take(words(-(-len(block) // 4)).view(np.uint16)[: len(block)], out=block, mode="clip")
        return np.bincount(block, minlength=blank + 1)

    lacking = np.array([-1])
    while (lacking < 0).any():
        seen = at_once(draw, blocks)
        lacking = counts - np.sum(seen, axis=0)[:blank]
    rest = np.repeat(np.arange(blank, dtype=np.int32), lacking)[random_order(int(lacking.sum()), words)]
    order[order == blank] = rest
    return order


def random_parts(counts: NDArray[np.int64], most: int, words: Words = random_words) -> list[NDArray[np.int64]]:
    """Divide the numbers 0 .. len(counts) - 1, each as often as its count, into random parts.

    Each goes into any of the parts with the same probability, independently of all others. If each part is then put in a
    uniformly random order, the numbers of all parts, one part after the other, are in a uniformly random order too.

    Args:
        counts: how often each number occurs.
        most: how many parts are allowed, a power of two; few numbers make fewer parts.
        words: the source of random words.

    Returns:
        how often each number occurs in each part.

    """
    parts, rows = [counts], max(_PART_ROWS, _REPEATS * len(counts))
    while len(parts) < most and counts.sum() > rows * len(parts):
        parts = [half for part in parts for half in _halves(part, words)]
    return parts


def _halves(counts: NDArray[np.int64], words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide numbers by a random bit for each time that they occur."""
    ends = np.cumsum(np.maximum(-(-counts // 64), 1))
    bits = words(int(ends[-1])).copy()
    bits[ends - 1] = np.where(counts, bits[ends - 1] >> (-counts % 64).astype(np.uint64), 0)
    ones = np.add.reduceat(np.bitwise_count(bits), np.r_[0, ends[:-1]], dtype=np.int64)
    return ones, counts - ones


def _rows_by_bucket(chosen: NDArray[np.uint8], start: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the rows of a block in the order of their buckets, and where each bucket begins; a block stays in the cache."""
    block = chosen[start : start + BLOCK_ROWS]
    rows, ends = by_bucket(block, np.arange(start, start + len(block), dtype=np.int32))
    return rows, np.concatenate([[0], ends])


def by_bucket(chosen: NDArray[np.uint8], cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return cells in the order of the buckets that were chosen for them, and where those of each of 256 buckets end.

    Without kernels, pairs of neighbours are counted, which takes half the time.
    """
    if (drawn := native.by_bucket(chosen, cells)) is not None:
        return drawn
    pairs = np.bincount(chosen[: len(chosen) & ~1].view(np.uint16), minlength=1 << 16).reshape(256, 256)
    sizes = pairs.sum(axis=0) + pairs.sum(axis=1) + np.bincount(chosen[len(chosen) & ~1 :], minlength=256)
    return cells[np.asarray(pc.array_sort_indices(pa.array(chosen)))], sizes.cumsum()


_CELLS = (1, 2, 4, 8, 16)  # octets of a cell


def cells_of(rows: pa.RecordBatch) -> NDArray[Any] | None:
    """Return rows as cells, which are moved as one; None unless they are of numbers without NULL that fit into a cell."""
    sizes = [_octets(column) for column in rows.columns]
    width = next((width for width in _CELLS if width >= sum(sizes)), 0)
    if not width or not all(sizes):
        return None
    names, ends = [str(number) for number in range(len(sizes))], [*accumulate(sizes)]
    kinds, starts = [f"u{size}" for size in sizes], [end - size for end, size in zip(ends, sizes, strict=True)]
    cells = np.empty(len(rows), {"names": names, "formats": kinds, "offsets": starts, "itemsize": width})
    for name, column, kind, size in zip(names, rows.columns, kinds, sizes, strict=True):
        cells[name] = np.frombuffer(column.buffers()[1], kind, len(column), size * column.offset)
    return cells


def _octets(column: pa.Array) -> int:
    """Return how many octets a number takes; 0 if the column holds NULL, or anything else than numbers of up to 64 bits."""
    whole = pa.types.is_primitive(column.type) and column.type.bit_width <= 64 and not column.null_count
    return column.type.bit_width // 8 if whole else 0  # a boolean is a bit


def rows_of(cells: NDArray[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that `cells_of` made cells of."""
    columns = [pa.py_buffer(np.ascontiguousarray(cells[name])) for name in cells.dtype.names or ()]
    arrays = [pa.Array.from_buffers(kind, len(cells), [None, of]) for kind, of in zip(schema.types, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _take(values: Any, by: pa.Array) -> Any:
    return pc.take(values, by, boundscheck=False)


def _alike(keys: NDArray[np.uint16]) -> NDArray[np.bool_]:
    return keys[1:] == keys[:-1]


def _untied(order: pa.Array, same: NDArray[np.int64], words: Words) -> pa.Array:
    """Put neighbours with equal keys in a uniformly random order; ``same`` has the positions whose key repeats."""
    begun, runs = np.zeros((2, len(order)), dtype=np.bool_)
    begun[same] = runs[same] = runs[same - 1] = True
    tied = np.flatnonzero(runs)
    run = np.cumsum(~begun[tied])
    more = words(len(tied))
    by = np.lexsort((more, run))
    if ((run[1:] == run[:-1]) & (more[by][1:] == more[by][:-1])).any():
        return _untied(order, same, words)
    result = order.to_numpy().copy()
    result[tied] = result[tied[by]]
    return pa.array(result)


def scatter(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes], buckets: int) -> None:
    """Write each row into a random bucket of a file: blocks of rows sorted by bucket, with the end of each bucket."""
    own = pa.PythonFile(os.fdopen(os.dup(file.fileno()), "wb"))  # Arrow closes this copy at the end
    with pa.BufferedOutputStream(own, 1 << 20) as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in _blocks(batches):
            chosen = random_words(-(-block.num_rows // 8)).view(np.uint8)[: block.num_rows] & np.uint8(buckets - 1)
            cells = cells_of(block) if buckets > 1 else None
            if cells is not None:
                cells, ends = by_bucket(chosen, cells)
                rows = rows_of(cells, schema)
            else:
                order, ends = by_bucket(chosen, np.arange(block.num_rows, dtype=np.int32))
                rows = _take(block, pa.array(order)) if buckets > 1 else block
            writer.write_batch(rows, custom_metadata={_ENDS: ends[:buckets].astype("<i8").tobytes()})


def _blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches up to a block."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        some = max(1, batch.num_rows * BLOCK_BYTES // max(batch.nbytes, BLOCK_BYTES))
        for start in range(0, batch.num_rows, some):
            waiting.append(batch.slice(start, some))
            rows, size = rows + waiting[-1].num_rows, size + waiting[-1].nbytes
            if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def schema_of(file: Path) -> pa.Schema:
    """Return the schema of a file of scattered rows."""
    with pa.memory_map(str(file)) as opened:
        return pa.ipc.open_file(opened).schema


class Scattered:
    """Files of rows scattered over the same number of buckets; large buckets are scattered again into files in ``folder``.

    Raises:
        pyarrow.ArrowException: if their columns have types that cannot be joined.

    """

    def __init__(self, files: Sequence[IO[bytes]], folder: Path | None = None) -> None:
        mapped = [_mapped(file) for file in files]
        readers = [pa.ipc.open_file(buffer) for buffer in mapped]
        self._bytes = sum(buffer.size for buffer in mapped)
        self._folder = folder
        self.schema = pa.unify_schemas([reader.schema for reader in readers], promote_options="permissive")
        self._blocks = [_block(reader, i) for reader in readers for i in range(reader.num_record_batches)]

    def shuffled(self, buckets: range) -> Iterator[pa.RecordBatch]:
        """Return the rows of these buckets in a uniformly random order.

        Small buckets are shuffled as one. Which buckets are joined depends only on their numbers of rows.
        """
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for bucket in buckets:
            batches = self._rows(bucket)
            more = sum(batch.num_rows for batch in batches)
            if waiting and rows + more > BUCKET_ROWS:
                yield from self._in_random_order(waiting)
                waiting, rows = [], 0
            waiting += batches
            rows += more
        yield from self._in_random_order(waiting)

    def _rows(self, bucket: int) -> list[pa.RecordBatch]:
        batches = [block.slice(ends[bucket], ends[bucket + 1] - ends[bucket]) for block, ends in self._blocks]
        return [one if one.schema == self.schema else one.select(self.schema.names).cast(self.schema) for one in batches]

    def _in_random_order(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        if rows > 1 and self._bytes > BUCKET_BYTES < sum(batch.nbytes for batch in batches):
            size = sum(batch.nbytes for batch in batches)
            buckets = min(MOST_BUCKETS, 2 << (size // BUCKET_BYTES).bit_length())
            with TemporaryFile(dir=self._folder) as file:
                scatter(batches, self.schema, file, buckets)
                scattered = Scattered([file], self._folder)
                for bucket in range(buckets):  # one by one, so that each is smaller than before
                    yield from scattered._in_random_order(scattered._rows(bucket))
            return
        if rows:
            yield from _shuffled(pa.concat_batches(batches))


def _shuffled(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows in a uniformly random order."""
    cells = cells_of(rows)
    if cells is not None and native.shuffle(cells):
        yield rows_of(cells, rows.schema)
        return
    order = permutation(len(rows))
    for start in range(0, len(rows), _OUT_ROWS):
        yield _take(rows, order.slice(start, _OUT_ROWS))


def _block(reader: pa.RecordBatchFileReader, number: int) -> tuple[pa.RecordBatch, list[int]]:
    """Return a block, the position where each of its buckets begins, and the position where the last one ends."""
    batch, metadata = reader.get_batch_with_custom_metadata(number)
    return batch, [0, *np.frombuffer(metadata[_ENDS.encode()], "<i8").tolist()]


def _mapped(file: IO[bytes]) -> pa.Buffer:
    """Map a file into memory and return it as a buffer."""
    file.flush()
    return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


Progress: TypeAlias = Callable[[int, int | None], None]  # rows done; rows in all, None if unknown


class Meter:
    """The number of rows drawn, for the progress, and the error that was raised while DuckDB read the stream."""

    def __init__(self, total: int | None, progress: Progress | None) -> None:
        self.drawn = 0
        self._skipped = 0
        self._total, self._progress = total, progress
        self._refusal: LdpError | KeyboardInterrupt | None = None

    def skip(self, rows: int) -> None:
        """Count rows that an earlier run drew."""
        self._skipped += rows
        self._report_progress()

    def _report_progress(self) -> None:
        if self._progress:
            self._progress(self._skipped + self.drawn, self._total)

    def reports(self, part: Part, projection: Projection, names: list[str]) -> pa.RecordBatchReader:
        """Return the reports of a part as a stream that counts its rows."""
        with self._reading(part):
            reader = part.read(projection.read(names), projection.mechanisms.keys(), projection.keep)
        schema = projection.schema(reader.schema)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(part):
                for batch in reader:
                    yield projection.perturb(batch, schema)
                    self.drawn += batch.num_rows
                    self._report_progress()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def check(self, part: Part, projection: Projection) -> pa.RecordBatchReader:
        """Return the perturbed columns of a part as a stream that ends in an error at a value that cannot be perturbed."""
        names = [*projection.mechanisms]
        with self._reading(part):
            reader = part.read(names, names, projection.keep)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(part):
                for batch in reader:
                    projection.check(batch)
                    yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    @contextmanager
    def _reading(self, part: Part) -> Iterator[None]:
        """Remember an error of the source: the writer sees only an error of DuckDB's or Arrow's."""
        try:
            yield
        except (LdpError, KeyboardInterrupt) as error:
            self._refusal = error
            raise
        except Exception:
            self._refusal = cut_short(part.title)
            raise

    def watch(self, write: Callable[[], None], hint: str = "is there space on the disk?") -> None:
        """Call ``write``; raise an error as it was before DuckDB reworded it, since DuckDB's message may hold raw values."""
        try:
            write()
        except LdpError as error:
            refusal = self._refusal or error
        except Exception:  # noqa: BLE001  # DuckDB, the file system
            refusal = self._refusal or DestinationRefused("the reports could not be written", hint)
        else:
            return
        refusal.__context__ = refusal.__cause__ = None  # raised outside of the handler, so that no other error is attached
        raise refusal.with_traceback(None)


Order: TypeAlias = Literal["random", "keep"]
_INTO_TABLE = "is there space on the disk, and does the table take their columns?"
FILE_BYTES = 1 << 26  # scattered rows per file of a folder


def check_order(order: str) -> None:
    """Check that an order is 'random' or 'keep'."""
    if order not in get_args(Order):
        raise InvalidParameter(
            "the order must be 'random' or 'keep'", "'random' shuffles all rows; 'keep' shows where in the source a row was"
        )


class Drawing:
    """One run of drawing: each row of the source once, in the order that was asked for."""

    def __init__(self, con: DuckDBPyConnection, source: Source, projection: Projection, meter: Meter) -> None:
        self.parts = self.resumed = 0
        self._con, self._source, self._meter = con, source, meter
        self._compact = CompactProjection.like(projection)
        self.buckets = buckets_for(source.rows)

    @property
    def rows(self) -> int:
        """The number of rows drawn."""
        return self._meter.drawn

    def into_files(self, form: Form, staging: Staging, order: Order) -> None:
        """Draw the parts that are not complete, and write all of them."""
        if order == "keep":
            self._each_part(staging, "part", partial(self._write, form))
            return

        def draw(part: Part, at: Path) -> None:
            with at.open("xb") as file:
                self._scatter(part, file, staging.files("drawn"))

        self._each_part(staging, "drawn", draw)
        with ExitStack() as stack:
            files: list[IO[bytes]] = [stack.enter_context(file.open("rb")) for file in staging.files("drawn")]
            self._meter.watch(lambda: self._write_shuffled(files, form, staging))

    def into_table(self, sink: TableSink | DatabaseSink, order: Order, then: Callable[[Any], None]) -> None:
        """Draw all rows and write them into a table; call ``then`` in the transaction that does."""
        (part,) = self._source.parts
        if order == "keep":
            self._meter.watch(lambda: sink.write(self._reports(part, encoded=sink.encoded), then), _INTO_TABLE)
            return
        with TemporaryFile(dir=scratch_folder(self._con)) as file:
            self._meter.watch(lambda: self._scatter(part, file))
            reports = self._shuffled(Scattered([file]), range(self.buckets), encoded=sink.encoded)
            self._meter.watch(lambda: sink.write(reports, then), _INTO_TABLE)

    def _each_part(self, staging: Staging, kind: str, write: Callable[[Part, Path], None]) -> None:
        """Write each part that is not complete into a file of its own."""
        for number, part in enumerate(self._source.parts):
            if staging.done(number, kind):
                self.resumed += 1
                self._meter.skip(part.rows or 0)
                continue
            with staging.new_part(number, kind) as folder:
                self._meter.watch(partial(write, part, folder / file_name(number)))
            self.parts += 1

    def _write(self, form: Form, part: Part, at: Path) -> None:
        form.write(self._con, self._reports(part, encoded=form.kind != "arrow"), at.parent, at.name)

    def _reports(self, part: Part, *, encoded: bool) -> pa.RecordBatchReader:
        """Return the reports of a part, drawn as they are read."""
        reader = self._meter.reports(part, self._compact, self._source.names)
        return self._decoded(reader.schema, reader, encoded=encoded)

    def _scatter(self, part: Part, file: IO[bytes], earlier: Iterable[Path] = ()) -> None:
        """Draw a part into a file, if its columns have types that can be joined with those of earlier files."""
        reader = self._meter.reports(part, self._compact, self._source.names)
        try:
            pa.unify_schemas([*map(schema_of, earlier), reader.schema], promote_options="permissive")
        except pa.ArrowException:
            raise SourceRefused(
                f"a kept column has incompatible types in {part.title} and in an earlier file",
                "cast it in one",
            ) from None
        scatter(until_stopped(self._con, reader), reader.schema, file, self.buckets)

    def _write_shuffled(self, files: list[IO[bytes]], form: Form, staging: Staging) -> None:
        """Write one file, or a folder of files with some buckets each; neither shows which part of the source a row is from."""
        scattered = Scattered(files, staging.folder)
        size = sum(os.fstat(file.fileno()).st_size for file in files)
        outputs = min(self.buckets, 1 + size // FILE_BYTES) if form.folder else 1
        for number in range(outputs):
            if not staging.done(number):
                buckets = range(self.buckets * number // outputs, self.buckets * (number + 1) // outputs)
                reports = self._shuffled(scattered, buckets, encoded=form.kind != "arrow")
                with staging.new_part(number) as folder:
                    form.write(self._con, reports, folder, file_name(number))

    def _shuffled(self, scattered: Scattered, buckets: range, *, encoded: bool) -> pa.RecordBatchReader:
        """Return the reports of some buckets."""
        return self._decoded(scattered.schema, until_stopped(self._con, scattered.shuffled(buckets)), encoded=encoded)

    def _decoded(self, compact: pa.Schema, batches: Iterable[pa.RecordBatch], *, encoded: bool) -> pa.RecordBatchReader:
        """Return the reports that compact batches stand for."""
        schema = self._compact.decoded_schema(compact, encoded=encoded)
        return pa.RecordBatchReader.from_batches(schema, (self._compact.decoded(batch, schema) for batch in batches))
