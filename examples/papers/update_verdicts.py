"""The verdicts on the figures of "Full convergence of the iterative Bayesian update", each from measurements alone."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import polars as pl
from reproduction import WITHIN, Finding, away

ORDER = ["ibu", "inv_p", "inv_n"]

UNKNOWN_STOP = {
    "ibu, own rule": "the paper does not say where it stopped: .2238 is reached after about 600 steps, this rule goes on",
    "ibu, maximum": "the paper calls its EM the maximum, which is .41 away from the truth: its run stopped far before",
}
TUNED = "600 steps are about where TV is least, which only the truth shows; the paper does not say where it stopped"
PEOPLE = 123_273
SOUTH, NORTH, DEGREE = 37.7228, 37.7946, 111_195  # borders, and metres of a degree of latitude
BEYOND_BORDER = 8000 - (NORTH - SOUTH) * DEGREE  # metres: the area is 8 km high
PUBLISHED = {"reports": 0.4544, "inv_p": 0.4567, "inv_n": 0.4633, "ibu": 0.2238}  # fig. 9: one run
WINS = 2  # standard errors of the difference in a run, at every epsilon
STOPS = (
    "the paper does not say where IBU stops: sooner lowers its TV and raises its EMD; the maximum of the likelihood of k-RR, and "
    "INV-P, cut the same counts at nearly the same place"
)


def one_runs(rows: pl.DataFrame, others: list[pl.DataFrame]) -> list[Finding]:
    """Return whether each number of figure 9 is a likely one, from many runs at its epsilon and at others."""
    findings = []
    for name, published in {**PUBLISHED, **dict.fromkeys(("ibu, own rule", "ibu, maximum"), PUBLISHED["ibu"])}.items():
        ours, *far = (part.filter(pl.col("estimator") == name)["tv"].to_numpy() for part in (rows, *others))
        finding = Finding.of_one_run(f"fig. 9, {name}: TV", published, ours, far, TUNED if name == "ibu" else "")
        findings.append(replace(finding, why=finding.why or UNKNOWN_STOP.get(name, "")))
    return findings


def almost_identical(inv_n: float, inv_p: float) -> Finding:
    """Return whether the inversions are equally far from the truth at epsilon 1."""
    return Finding.checked("fig. 10a, epsilon 1", "TV of INV-N and INV-P almost identical", f"mean TV {inv_n:.4f} and {inv_p:.4f}",
                           abs(inv_n / inv_p - 1) < 0.1,
                           note="one run moves either by .02 to .03: the inverse of the channel amplifies the noise of few waves")  # fmt: skip


def checkins(label: str, total: int, empty: int, strip: int) -> Finding:
    """Return whether the data are the paper's: its cells reach beyond its borders, by as much as a strip before them is wide."""
    noise = WITHIN * sqrt(2 * strip)
    return Finding.checked(f"{label}: data", f"{PEOPLE:,} check-ins, some cells without any",
                           f"{total:,} between the borders, {empty} cells without; sixteen cells of half a kilometre reach {BEYOND_BORDER:.0f} m farther, and as "
                           f"wide a strip before the border holds {strip}: {total + strip:,} +- {noise:.0f}",
                           abs(PEOPLE - total - strip) <= noise and empty > 0, "the borders and the height of the area do not explain it",
                           "it does not hold for the borders alone")  # fmt: skip


def projected_better(mean: pl.DataFrame) -> Finding:
    """Return whether INV-P has an earth mover's distance of at most two thirds of INV-N's at epsilon 1."""
    one = mean.filter(pl.col("epsilon") == 1)
    return Finding.checked("fig. 10b, epsilon 1", "EMD: INV-P significantly better than INV-N", listed(one, ORDER[1:]),
                           one["inv_p"][0] < 0.67 * one["inv_n"][0])  # fmt: skip


def laplace_better(laplace: pl.DataFrame, exponential: pl.DataFrame) -> Finding:
    """Return whether IBU is nearer to the truth with Laplace's noise at every epsilon."""
    ratio = (laplace["ibu"] / exponential["ibu"]).to_list()
    return Finding.checked("fig. 11", "Laplace serves better than exponential",
                           "TV of IBU, Laplace / exponential: " + ", ".join(f"{r:.2f}" for r in ratio), max(ratio) < 1)  # fmt: skip


def as_text(values: dict[str, float]) -> str:
    """Write means as text."""
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def nearest_of_three(figure: str, mean: dict[str, float]) -> Finding:
    """Return whether IBU is nearer than both inversions."""
    return Finding.checked(
        figure, "IBU is nearest to the original", as_text(mean), mean["ibu"] < min(mean["inv_n"], mean["inv_p"])
    )


def by_epsilon(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return one row for each epsilon, with the mean distance of every estimator."""
    means = rows.group_by("estimator", "epsilon").agg(pl.col(column).mean())
    return means.pivot(on="estimator", values=column).sort("epsilon")


def listed(mean: pl.DataFrame, names: list[str]) -> str:
    """Write the means of several estimators at every epsilon as text."""
    rows = (f"epsilon {row['epsilon']:g}: " + " / ".join(f"{row[name]:.3f}" for name in names) for row in mean.to_dicts())
    return f"{' / '.join(names)} at " + "; ".join(rows)


def nearest(figure: str, rows: pl.DataFrame, column: str) -> Finding:
    """Return whether IBU is nearer than both inversions in the same runs, at every epsilon, and most of all at the smallest."""
    parts, worse, ratios = [], [], []
    for (epsilon,), part in rows.drop_nulls(column).group_by("epsilon", maintain_order=True):
        runs = part.pivot(on="estimator", index="run", values=column)
        other = runs.select(pl.min_horizontal("inv_n", "inv_p")).to_series()
        worse.append(away((runs["ibu"] - other).to_numpy()))
        ratios.append(float(runs["ibu"].mean() / other.mean()))  # type: ignore[operator, arg-type]
        parts.append(f"epsilon {epsilon:g}: {ratios[-1]:.2f} ({worse[-1]:+.0f})")
    return Finding.checked(
        figure, "IBU is nearest, most of all at small epsilon",
        "IBU / the better inversion (standard errors of the difference) " + ", ".join(parts),
        max(worse) < -WINS and ratios[0] < ratios[-1], "not at every epsilon beyond the noise of these runs",
        "IBU by its own stop rule at 1e-3, without the truth",
    )  # fmt: skip


def stops(mean: pl.DataFrame) -> str:
    """Return IBU over INV-P at every epsilon, wherever IBU may stop."""
    rules = {"1e-2": "ibu, 1e-2", "1e-3": "ibu", "the maximum": "ibu, maximum"}
    return "; ".join(
        f"stopped at {rule}: " + ", ".join(f"{r:.3f}" for r in mean[name] / mean["inv_p"]) for rule, name in rules.items()
    )


def alike(tv: pl.DataFrame, far: pl.DataFrame) -> list[Finding]:
    """Return the verdicts of figure 12 from the mean distances at every epsilon, IBU stopped by its own rule at 1e-3."""
    spread = (tv.select(pl.max_horizontal(ORDER)) / tv.select(pl.min_horizontal(ORDER))).to_series()
    below = bool((tv["ibu"] < tv.select(pl.min_horizontal("inv_p", "inv_n")).to_series()).all())
    better = far.select(pl.max_horizontal("ibu", "inv_p")).to_series() < far["inv_n"]
    ratio = far["ibu"] / far["inv_p"]
    return [
        Finding.checked("fig. 12a, TV", "differences not substantial", listed(tv, ORDER), float(spread.max()) <= 1.25),  # type: ignore[arg-type]
        Finding.checked("fig. 12a, TV", "IBU below INV-P and INV-N at every epsilon", f"IBU / INV-P {stops(tv)}", below, STOPS),
        Finding.checked("fig. 12b, EMD", "IBU and INV-P better than INV-N", listed(far, ORDER), bool(better.all())),
        Finding.checked("fig. 12b, EMD", "IBU and INV-P almost the same", f"IBU / INV-P {stops(far)}",
                        bool(ratio.is_between(0.9, 1.1).all()), STOPS),
    ]  # fmt: skip


def finds(name: str, tv: float) -> Finding:
    """Return whether figure 13 comes out: equal shares are .42 away from the binomial, .6 from the uniform on four of ten."""
    return Finding.checked(f"fig. 13, {name}", "IBU finds the original", f"TV {tv:.3f}", tv < 0.1)


def nearly_the_same(name: str, rows: pl.DataFrame, ibu: str = "ibu") -> Finding:
    """Return whether figure 14 comes out: at every epsilon, a run of one of the three estimators may be one of another.

    The paper draws the runs on an axis that begins at zero and shows all epsilons, so differences count on this axis.
    """
    some = rows.filter(pl.col("estimator").is_in([ibu, *ORDER[1:]]))
    each = some.group_by("epsilon", "estimator").agg(pl.col("tv").mean(), spread=pl.col("tv").std())
    by = each.group_by("epsilon").agg(apart=pl.col("tv").max() - pl.col("tv").min(), spread=pl.col("spread").mean())
    most, height = float((by["apart"] / by["spread"]).max()), float(by["apart"].max() / each["tv"].max())  # type: ignore[arg-type, operator]
    shown = f"apart by at most {most:.1f} standard deviations of a run, {height:.0%} of the axis"
    return Finding.checked(f"fig. 14, {name}", "the three estimators are nearly the same",
                           f"{listed(by_epsilon(some, 'tv'), [ibu, *ORDER[1:]])}; {shown}", most < WINS,
                           "beyond what a run of one and of another differ by")  # fmt: skip
