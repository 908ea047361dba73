"""Reports that arrive day by day: each day is perturbed once and counted once, and estimates come from the sum of the counts.

``python examples/daily/daily.py [FOLDER]``. Every day a file of raw values is perturbed into its partition
``reports/day=N/``. Then the model ``daily_counts.sql`` next to this file reads that day only, and adds one row of counts. (dbt
would run the model; here its two forms, first run and increment, are made by hand.) The estimate over all days comes from
``ldp.counts(counts)``, so its cost does not depend on the number of reports, and it equals the estimate from all reports to
the last bit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from duckdb import DuckDBPyConnection

import ldpsql

DAYS, PEOPLE = 5, 20_000
CITIES = ["Lima", "Oslo", "Rome", "Kyiv"]
MECHANISM = f"krr(epsilon=1, domain={CITIES})"
MODEL = Path(__file__).with_name("daily_counts.sql")


def raw_file(con: DuckDBPyConnection, folder: Path, day: int) -> Path:
    """Write the raw values of a day, as a source system would."""
    file = folder / f"raw-{day}.parquet"
    shares = f"[1, 1, 1, {1 + day % 4}, 2, 2, 3, 4]"
    con.execute(f"COPY (SELECT {CITIES}[{shares}[1 + i % 8]] AS city FROM range({PEOPLE}) t(i)) TO '{file}'")
    return file


def perturbed_day(con: DuckDBPyConnection, folder: Path, day: int) -> None:
    """Perturb the file of a day into its partition, then remove it."""
    partition = folder / "reports" / f"day={day}"
    partition.mkdir(parents=True)
    raw = raw_file(con, folder, day)
    ldpsql.perturb_copy(con, raw, partition / "reports.parquet", {"city": MECHANISM})
    raw.unlink()


def add_counts(con: DuckDBPyConnection, folder: Path) -> None:
    """Run the model: the first time in full, later for the days after the last one."""
    exists = con.execute("SELECT count(*) > 0 FROM duckdb_tables() WHERE table_name = 'daily_counts'").fetchall() == [(True,)]
    text = re.sub(r"\{\{ config.*?\}\}", "", MODEL.read_text(encoding="utf-8"))
    increment = re.compile(r"\{% if is_incremental\(\) %\}(.*?)\{% endif %\}", re.DOTALL)
    select = increment.sub(r"\1" if exists else "", text).replace("{{ this }}", "daily_counts")
    select = select.replace("{{ ref('reports') }}", f"read_parquet('{folder}/reports/*/*.parquet', hive_partitioning := true)")
    con.execute(f"INSERT INTO daily_counts {select}" if exists else f"CREATE TABLE daily_counts AS {select}")


def main(folder: Path) -> None:
    """Run all days, and compare the estimates."""
    con = ldpsql.connect()
    con.execute(f"CREATE MACRO city() AS ldp.krr(1, {CITIES})")
    for day in range(DAYS):
        perturbed_day(con, folder, day)
        add_counts(con, folder)
        days, shares = con.execute("SELECT count(*), ldp.ibu(ldp.counts(counts), city()) FROM daily_counts").fetchall()[0]
        print(f"after {days} days:", ", ".join(f"{s['value']} {s['estimate']:.3f} +- {s['std_error']:.3f}" for s in shares))
    ((everything,),) = con.execute(f"SELECT ldp.ibu(city, city()) FROM '{folder}/reports/*/*.parquet'").fetchall()
    same = shares == everything
    print(f"from all {DAYS * PEOPLE:,} reports:", "the same, to the last bit" if same else "DIFFERENT")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as name:
            main(Path(name))
