"""Accuracy of the estimators on fixed workloads: error of each as a ratio to plain EM, on the same reports.

``python benchmarks/accuracy.py [REPEATS [DATA]]``: DATA is a folder with the public files named in `SOURCES`; workloads whose
file is absent are left out. Errors are mean absolute errors of the shares, and mean squared errors for small samples. Plain EM
is the exact maximum, ``ibu``; the rule of the papers, |change of log-likelihood| < 1e-3 e^epsilon, is a column of its own.
Reports are drawn from the channels by NumPy with a fixed seed: what is measured is estimation. Writes
``benchmarks/accuracy.json``.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ldpsql import LdpError, Likelihood
from ldpsql.counting import operator_of
from ldpsql.mechanism import certify
from ldpsql.operators import DenseOperator, Floats, KeepOrSpreadOperator
from ldpsql.registry import registry

SOURCES = {
    "adult_census_income.parquet": "UCI Adult, CC BY 4.0",
    "us_military_counts.csv": "US Department of Defense demographics",
    "irs2013_agi_sample.parquet": "IRS Statistics of Income 2013",
    "gowalla_sf_grid_24x16.csv": "SNAP Gowalla (Cho, Myers, Leskovec, KDD 2011)",
}
CATEGORIES = ("inv_p", "base_cut", "iiw", "em_mr", "corrected_em", "pool", "empirical_bayes", "best")
NUMBERS = ("ems", "em_mr", "pool", "ibu(stop='held_out')", "ems(stop='held_out')", "best")
GRID = ("ems(stop='held_out')", "pool", "ibu(stop='held_out')", "best")
DRAW = np.random.default_rng(20130101)


@dataclass(frozen=True)
class Workload:
    """A true distribution, how many report it and through what."""

    name: str
    truth: Floats
    n: int
    mechanism: str
    epsilon: float
    estimators: tuple[str, ...]

    def likelihood(self) -> Likelihood:
        """Draw one set of reports."""
        mechanism = registry().mechanism(self.mechanism)
        op, known = operator_of(mechanism), certify(mechanism)
        counts = DRAW.multinomial(self.n, op.forward(self.truth)).astype(np.float64)
        return Likelihood(op, counts[None], known.layout, known.named)

    def errors(self, repeats: int) -> dict[str, float]:
        """Return the mean absolute error of plain EM, and of each estimator as a ratio to it."""
        rule = f"ibu(stop='paper', tolerance={1e-3 * np.exp(self.epsilon):.6f})"
        found: dict[str, list[float]] = {}
        for _ in range(repeats):
            likelihood = self.likelihood()
            for name in ("ibu", rule, *self.estimators):
                try:
                    theta = registry().estimator(name).fit(likelihood).theta[0]
                except LdpError:
                    continue
                found.setdefault("em, paper's rule" if name == rule else name, []).append(
                    float(np.abs(theta - self.truth).mean())
                )
        means = {name: float(np.mean(errors)) for name, errors in found.items()}
        return {"ibu": means["ibu"]} | {name: mean / means["ibu"] for name, mean in means.items() if name != "ibu"}


def normalised(weights: Floats) -> Floats:
    """Scale to sum to one."""
    return np.asarray(weights / weights.sum())


def categorical(name: str, truth: Floats, sizes: tuple[int, ...], epsilons: tuple[float, ...]) -> Iterator[Workload]:
    """Yield workloads of k-RR, and of OLH with public seeds where that is the better one."""
    domain = [f"v{i}" for i in range(len(truth))]
    for n in sizes:
        for epsilon in epsilons:
            hashed = len(truth) > 3 * np.exp(epsilon) + 2
            for text in ("krr(epsilon={}, domain={})", *(["olh(epsilon={}, domain={}, seeds='orthogonal')"] if hashed else [])):
                label = f"{name}, {text.split('(')[0]}, n={n:,}, epsilon={epsilon:g}"
                yield Workload(label, truth, n, text.format(epsilon, domain), epsilon, CATEGORIES)


def synthetic() -> Iterator[Workload]:
    """Yield shuffled distributions of 300 values, as in the papers."""
    size = 300
    shapes = {
        "Zipf 1.3": np.arange(1, size + 1) ** -1.3,
        "Zipf .8": np.arange(1, size + 1) ** -0.8,
        "30 of 300": np.where(np.arange(size) < 30, 1.0, 0.0),
        "geometric": 0.98 ** np.arange(size),
    }
    for name, shape in shapes.items():
        yield from categorical(name, normalised(DRAW.permutation(shape)), (43_386, 300_000), (0.5, 1.0, 2.0, 3.0))


def real(folder: Path) -> Iterator[Workload]:
    """Yield the workloads of the files that are there."""
    if (file := folder / "adult_census_income.parquet").is_file():
        table = pq.read_table(file)
        for columns in (["education", "occupation"], ["native_country"]):
            seen = table.group_by(columns).aggregate([([], "count_all")])["count_all"].to_numpy()
            yield from categorical(f"census {'+'.join(columns)}", normalised(seen.astype(float)), (48_842,), (1.0, 2.0))
        ages = np.bincount(table["age"].to_numpy(), minlength=91)[17:91].astype(float)
        for epsilon in (0.1, 0.5):
            text = f"truncated_geometric(epsilon={epsilon}, low=17, high=90)"
            yield Workload(f"census age, geometric, epsilon={epsilon}", normalised(ages), 48_842, text, epsilon, NUMBERS)
    if (file := folder / "us_military_counts.csv").is_file():
        with file.open(encoding="utf-8") as lines:
            seen = np.array([float(row["n"]) for row in csv.DictReader(lines)])
        yield from categorical("military, 300 groups", normalised(np.sort(seen)[::-1][:300]), (300_000,), (1.0, 2.0))
    if (file := folder / "irs2013_agi_sample.parquet").is_file():
        income = np.asarray(pq.read_table(file)["a02650_capped"].to_numpy(), dtype=np.float64)
        truth = normalised(np.histogram(income, 256)[0].astype(float))
        for kind in ("square_wave", "piecewise"):
            text = f"{kind}(epsilon=1, low=0, high=1, bins=256)"
            yield Workload(f"income, {kind}, epsilon=1", truth, len(income), text, 1.0, NUMBERS)
    if (file := folder / "gowalla_sf_grid_24x16.csv").is_file():
        with file.open(encoding="utf-8") as lines:
            rows = sorted(csv.DictReader(lines), key=lambda row: (int(row["y"]), int(row["x"])))
        truth = normalised(np.array([float(row["n"]) for row in rows]))
        for epsilon in (0.5, 1.0, 2.0):
            text = f"planar_geometric(epsilon={epsilon}, columns=24, rows=16, side=0.5)"
            yield Workload(f"Gowalla, planar geometric, epsilon={epsilon}", truth, 123_026, text, epsilon, GRID)


def small_samples(repeats: int) -> dict[str, dict[str, float]]:
    """Return mean squared errors relative to EM as in Murakami, Hino, Sakuma: k-RR of 400 values at four epsilons."""
    out = {}
    for exponent in (1.0, 0.5):
        truth = normalised(np.arange(1, 401) ** -exponent)
        for exact in (0, 10, 50):
            users = {0.1: 500, 2.0: 500, float(np.log(400)): 50, 40.0: exact}
            out[f"Zipf {exponent:g}, N4={exact}"] = _small_sample(truth, {e: n for e, n in users.items() if n}, repeats)
    return out


def _small_sample(truth: Floats, users: dict[float, int], repeats: int) -> dict[str, float]:
    size, total = len(truth), sum(users.values())
    spreads = [1.0 / (np.exp(epsilon) + size - 1.0) for epsilon in users]
    parts = [KeepOrSpreadOperator(size, float(np.exp(e) * q), float(q)) for e, q in zip(users, spreads, strict=True)]
    table = np.hstack([n / total * part.matrix() for n, part in zip(users.values(), parts, strict=True)])
    stacked, named = DenseOperator(table), np.tile(np.arange(size), len(parts))
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        drawn = [DRAW.multinomial(n, part.forward(truth)) for n, part in zip(users.values(), parts, strict=True)]
        few = Likelihood(stacked, np.concatenate(drawn)[None].astype(np.float64), named=named)
        for name in ("ibu", "corrected_em", "corrected_em(ridge=0.1)", "uniform", "observed"):
            theta = registry().estimator(name).fit(few).theta[0]
            found.setdefault(name, []).append(float(((theta - truth) ** 2).sum()))
    means = {name: float(np.mean(errors)) for name, errors in found.items()}
    return {"ibu": means["ibu"]} | {name: mean / means["ibu"] for name, mean in means.items() if name != "ibu"}


def main() -> None:
    """Measure, print and write everything."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parents[2] / "shared" / "data"
    rows: dict[str, dict[str, float]] = {}
    for workload in (*synthetic(), *real(folder)):
        rows[workload.name] = workload.errors(repeats)
        print(
            workload.name,
            *(f"{name} {ratio:.2f}" for name, ratio in rows[workload.name].items() if name != "ibu"),
            sep=" | ",
            flush=True,
        )
    best = np.array([row["best"] for row in rows.values()])
    rule = np.array([row["best"] / row["em, paper's rule"] for row in rows.values()])
    summary = {
        "best / ibu": {"mean": best.mean(), "worst": best.max(), "cells above 1.03": int((best > 1.03).sum())},
        "best / em, paper's rule": {"mean": rule.mean(), "worst": rule.max(), "cells above 1.03": int((rule > 1.03).sum())},
    }
    print(json.dumps(summary, indent=1))
    small = small_samples(repeats)
    print(json.dumps(small, indent=1))
    told = {"repeats": repeats, "mean absolute error": rows, "summary": summary, "small samples, mean squared error": small}
    Path(__file__).with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
