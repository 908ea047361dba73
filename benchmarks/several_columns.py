"""Tables of several columns: processor seconds of certified estimates, and the distance of planned tables to the truth.

Adult (48,842 persons) and the counts of the US military (1,414,593 persons), from the folder of public data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from time import process_time

import numpy as np
import polars as pl
import pyarrow as pa

import ldpsql
from benchmarks.figures import Figure, against, at_most, public_file
from ldpsql.domains.composite import Product
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimates.planning import plan_tables
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism

LARGE = ("workclass", "education", "marital_status", "occupation", "sex")
TABLES = ((("marital_status", "income"), 0.035), (("education", "income"), 0.10), (("education", "occupation"), 0.50))


def made(name: str, **parameters: object) -> Mechanism:
    """Return a mechanism of a name."""
    return registry().mechanism({"mechanism": name, **parameters})


def split(people: pl.DataFrame, columns: tuple[str, ...], epsilon: str) -> Mechanism:
    """Return k-RR with this epsilon for each column."""
    return made("row", columns={name: made("krr", epsilon=epsilon, domain=domain(people, name)) for name in columns})


def domain(people: pl.DataFrame, column: str) -> list[str]:
    """Return the values of a column."""
    return list(people[column].unique().sort())


def shares(mechanism: Mechanism, rows: pa.Array) -> Floats:
    """Return the true share of every cell."""
    values = mechanism.values()
    assert isinstance(values, Product)
    return np.bincount(values.codes(rows), minlength=len(values)) / len(rows)


def timed(reports: pa.Array, mechanism: Mechanism, estimator: str) -> tuple[float, Estimate]:
    """Return the processor seconds of an estimate, and the estimate."""
    start = process_time()
    one = ldpsql.estimate(reports, mechanism, estimator)
    return process_time() - start, one


def large(people: pl.DataFrame) -> Iterator[Figure]:
    """Measure the certified maximum over 30,240 cells."""
    rows = people.select(LARGE).to_struct("row").to_arrow()
    for epsilon in ("2", "4"):
        mechanism = split(people, LARGE, epsilon)
        seconds, one = timed(ldpsql.perturb(rows, mechanism), mechanism, "ibu(tolerance=1e-6)")
        yield Figure(f"Adult, 30,240 cells, epsilon {epsilon} a column: certified maximum", seconds, "s")
        yield at_most(f"Adult, 30,240 cells, epsilon {epsilon} a column: gap", one.diagnosis.gap, 1e-6, "")


def planned(people: pl.DataFrame, draws: int) -> Iterator[Figure]:
    """Measure how far the planned mechanism's tables are from the truth, at a total epsilon of 2."""
    for columns, most in TABLES:
        values = {name: domain(people, name) for name in columns}
        sizes = {name: len(own) for name, own in values.items()}
        best = plan_tables(registry().mechanisms, sizes, len(people), "2")[0].mechanism
        mechanism = made(best.partition("(")[0], epsilon="2", columns=values)
        rows = people.select(columns).to_struct("row").to_arrow()
        truth = shares(mechanism, rows)
        each = [ldpsql.estimate(ldpsql.perturb(rows, mechanism), mechanism, "best").estimate for _ in range(draws)]
        distance = float(np.mean([np.abs(one - truth).sum() for one in each]))
        yield at_most(f"Adult, {' x '.join(columns)}, {best.partition('(')[0]}: L1", distance, most, "")


def pairs(counted: pl.DataFrame) -> Iterator[Figure]:
    """Measure the 15 pair tables of six columns at epsilon 4 a column."""
    columns = counted.columns[:6]
    texts = counted.select(pl.col(columns).cast(pl.String), "n")
    people = texts.select(pl.col(columns).repeat_by("n")).explode(columns)
    parts = {name: made("krr", epsilon="4", domain=domain(people, name)) for name in columns}
    reports = {name: ldpsql.perturb(people[name].to_arrow(), part) for name, part in parts.items()}
    total, gaps = 0.0, []
    for pair in combinations(columns, 2):
        mechanism = made("row", columns={name: parts[name] for name in pair})
        column = pa.StructArray.from_arrays([reports[name] for name in pair], list(pair))
        seconds, one = timed(column, mechanism, "ibu")
        total, gaps = total + seconds, [*gaps, one.diagnosis.gap]
    yield Figure("US military, 15 pair tables of 1.4 million persons", total, "s")
    yield at_most("US military, largest gap of the 15 tables", max(gaps), 1e-9, "")


def figures(quick: bool) -> list[Figure]:  # one flag for all benchmarks
    """Return all figures."""
    rows: list[Figure] = []
    if adult := public_file("adult_census_income.parquet"):
        people = pl.read_parquet(adult)
        rows += [*large(people), *planned(people, 3 if quick else 20)]
    if military := public_file("us_military_counts.csv"):
        rows += pairs(pl.read_csv(military))
    return rows


def check() -> Iterator[Figure]:
    """Yield the processor time of a certified table of two columns, and its distance to the truth against the inversion."""
    if adult := public_file("adult_census_income.parquet"):
        people, columns = pl.read_parquet(adult), ("education", "occupation")
        mechanism = split(people, columns, "2")
        rows = people.select(columns).to_struct("row").to_arrow()
        truth, reports = shares(mechanism, rows), ldpsql.perturb(rows, mechanism)
        far = {name: np.abs(ldpsql.estimate(reports, mechanism, name).estimate - truth).sum() for name in ("best", "inv_p")}
        yield Figure("Adult, education x occupation, epsilon 2 a column: best / inv_p, L1", float(far["best"] / far["inv_p"]))
        joint = made("joint_krr", epsilon="2", columns={name: domain(people, name) for name in columns})
        own = ldpsql.perturb(rows, joint)
        yield against("the same as joint_krr, perturbed and estimated", lambda: ldpsql.estimate(own, joint, "ibu"), repeats=3)
