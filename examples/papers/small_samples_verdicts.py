"""The verdicts on the figures of "Distribution estimation with small samples", each from measurements alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from reproduction import Finding, away

PRINTED = {"(13) norm": "inv_n(weigh='mechanisms')", "(13) proj": "inv_p(weigh='mechanisms')"}
WINS = 2  # standard errors of the difference in a run, in every setting
LARGE = ("the correction moves weight from large shares to those that EM leaves at zero, which costs most where few are large: see "
         "flatter populations, at the end")  # fmt: skip
MUCH = ("much is corrected, as alpha is found in reports simulated from the observed shares, which are flat: with that of our default, "
        "simulated from EM's estimate, the errors are nearly EM's, see flatter populations, at the end")  # fmt: skip
WHY_NOT = {
    "MSE": LARGE,
    "JS divergence": "the correction moves weight to cells that EM leaves at zero, which this distance minds where they are empty, and "
                     "large shares lose it: see flatter populations, at the end",
}  # fmt: skip
MEANT = {
    "held out": "the reports themselves choose where to stop",
    "empirical Bayes": "it starts from the inversion, which those with epsilon 0.1 drown: not for mixed levels",
    "our default": "alpha from reports simulated from EM's estimate, and (24) with its factor 2",
    "(24) as printed": "our default without the factor 2",
    "best": "the mean of those that predict held-out reports best",
}


def means(rows: pl.DataFrame) -> dict[str, float]:
    """Return the mean squared error of every method."""
    return dict(rows.group_by("method").agg(pl.col("squared_error").mean()).iter_rows())


def paired(rows: pl.DataFrame, measure: str) -> tuple[float, float]:
    """Return Proposal's mean over EM's, and by how many standard errors of the difference in a run Proposal is worse."""
    both = rows.pivot(on="method", index="run", values=measure).sort("run")
    a, b = both["Proposal"].to_numpy(), both["EM"].to_numpy()
    return float(a.mean() / b.mean()), away(a - b)


def by_equation_13(figure: str, source: str, rows: pl.DataFrame) -> Finding:
    """Put equation 13 as printed next to the inversion that weighs each report alike."""
    mean = dict(rows.group_by("method").agg(pl.col("squared_error").mean()).iter_rows())
    pairs = zip(PRINTED, ("MatInv norm", "MatInv proj"), strict=True)
    text = ", ".join(f"{ours}: {mean[printed] / mean[ours]:.2f}" for printed, ours in pairs)
    return Finding(f"{figure}, {source}: equation 13", "weights 1/M for each mechanism", f"MSE as printed / here, {text}", "beyond the paper",
                   "by default, each mechanism weighs as much as it has reports; as printed, it is weigh := 'mechanisms'")  # fmt: skip


def flatter(label: str, p: np.ndarray, squared: Mapping[str, np.ndarray], divergences: Mapping[str, np.ndarray]) -> Finding:
    """Put the errors of Uniform, Proposal and our default next to those of EM in a population, and correlate them with EM's."""
    of = {name: f"{squared[name].mean() / squared['EM'].mean():.2f}" for name in squared if name != "EM"}
    r = {name: f"{np.corrcoef(squared[name], squared['EM'])[0, 1]:.2f}" for name in ("Proposal", "our default")}
    text = (f"largest share {p.max():.3f}: MSE / EM {', '.join(f'{name} {ratio}' for name, ratio in of.items())}; JS divergence, Proposal "
            f"/ EM {divergences['Proposal'].mean() / divergences['EM'].mean():.2f}; r {', '.join(f'{name} {one}' for name, one in r.items())}")  # fmt: skip
    return Finding(f"flatter populations, {label}", "other data", text, "beyond the paper", f"{len(squared['EM'])} runs")


def corrected(problem: str, users: Mapping[float, int], squared: Mapping[str, np.ndarray]) -> Finding:
    """Put the mean squared errors of the options of the correction next to that of EM, in the same runs."""
    em = squared["EM"]
    texts = [f"{name} {own.mean() / em.mean():.3f} ({away(own - em):+.1f})" for name, own in squared.items() if name != "EM"]
    people = ", ".join(f"{n} users at epsilon {epsilon:.3g}" for epsilon, n in users.items())
    return Finding(f"corrected EM, {problem}, {people}", "other data", f"MSE / EM (standard errors of the difference) {', '.join(texts)}",
                   "beyond the paper", f"{len(em)} runs")  # fmt: skip


def decomposed(figure: str, source: str, parts: pl.DataFrame, axis: str) -> Finding:
    """Return whether Proposal has the larger bias and the smaller variance, and those without a channel next to none."""
    texts, agrees = [], []
    for (at,), part in parts.group_by(axis, maintain_order=True):
        of = {row["method"]: row for row in part.to_dicts()}
        em, proposal, plain = of["EM"], of["Proposal"], of["ObfDat"]
        texts.append(f"{axis} {at:.0f}: bias {em['bias']:.4f} and {proposal['bias']:.4f}, variance {em['variance']:.4f} and "
                     f"{proposal['variance']:.4f}, ObfDat {plain['variance']:.4f}")  # fmt: skip
        agrees.append(proposal["bias"] > em["bias"] and proposal["variance"] < em["variance"] and of["Uniform"]["variance"] == 0
                      and plain["variance"] < 0.1 * em["variance"])  # fmt: skip
    return Finding.checked(f"{figure}, {source}", "Proposal: more bias, less variance than EM; Uniform none, ObfDat next to none",
                           f"EM and Proposal at {'; '.join(texts)}", all(agrees),
                           f"holds at {sum(agrees)} of {len(agrees)} settings; ObfDat varies by about 1 / N", "bias squared and summed")  # fmt: skip


IN_PLACE = {  # of a method, another one
    "EM after 5 steps": {"EM": "EM after 5 steps"},
    "EM in place of Proposal": {"Proposal": "EM"},
    "raw reports in place of the inversions": {"MatInv norm": "ObfDat", "MatInv proj": "ObfDat"},
}


def compare(figure: str, source: str, rows: pl.DataFrame, axis: str) -> list[Finding]:
    """Check the paper's claims about the methods, at each setting."""
    findings, by = [], {at[0]: part for at, part in rows.group_by(axis, maintain_order=True)}
    for measure, label in (("squared_error", "MSE"), ("js_divergence", "JS divergence")):
        differences = {at: paired(part, measure) for at, part in by.items()}
        text = ", ".join(f"{axis} {at:.0f}: {ratio:.2f} ({away:+.1f})" for at, (ratio, away) in differences.items())
        agrees = max(away for _, away in differences.values()) < -WINS
        findings.append(
            Finding.checked(f"{figure}, {source}: {label}", "Proposal below EM, above all at small N4 or N",
                            f"Proposal / EM (standard errors of the difference) {text}", agrees, WHY_NOT[label])
        )  # fmt: skip
        ratios = [_over_em(part, measure, "MatInv norm", "MatInv proj") for part in by.values()]
        findings.append(
            Finding.checked(f"{figure}, {source}: {label}", "inversions not better than EM, projected far worse",
                            "norm and proj / EM: " + "; ".join(f"{a:.1f} and {b:.1f}" for a, b in ratios),
                            all(a > 0.95 and b > a for a, b in ratios),
                            "where N is very small, nearly equal shares are best, and the clipped inverse has them")
        )  # fmt: skip
    return findings


def beyond(figure: str, source: str, rows: pl.DataFrame, axis: str) -> list[Finding]:
    """Put the errors of methods that the paper does not have next to those of EM, at each setting."""
    findings, by = [], {at[0]: part for at, part in rows.group_by(axis, maintain_order=True)}
    for name, why in MEANT.items():
        tried = {at: part for at, part in by.items() if name in part["method"]}
        alike = {
            at: part.filter(pl.col("run") <= part.filter(pl.col("method") == name)["run"].max()) for at, part in tried.items()
        }
        text = ", ".join(f"{at:.0f}: {_over_em(part, 'squared_error', name)[0]:.2f}" for at, part in alike.items())
        findings.append(
            Finding(f"{figure}, {source}: MSE", "no such method", f"{name} / EM at {axis} {text}", "beyond the paper", why)
        )
    return findings


def _over_em(rows: pl.DataFrame, measure: str, *names: str) -> list[float]:
    mean = dict(rows.group_by("method").agg(pl.col(measure).mean()).iter_rows())
    return [mean[name] / mean["EM"] for name in names]


def in_regions(source: str, rows: pl.DataFrame) -> Finding:
    """Return whether single shares vary less by Proposal, and EM's reach far above the truth and down to zero."""
    of = {method[0]: part.sort("i") for method, part in rows.group_by("method")}
    em, proposal = of["EM"], of["Proposal"]
    less = int((proposal["variance"] < em["variance"]).sum())
    above, zero = float((em["most"] / em["share"]).median()), float(em["zero"].mean())  # type: ignore[arg-type]
    return Finding.checked(f"fig. 12, {source}", "variance smaller by Proposal in all fifteen; EM's maximum much larger than the truth, EM often zero",
                           f"smaller in {less} of {len(em)}; EM's maximum {above:.1f} times the truth (median); zero in {zero:.0%} of its estimates",
                           less == len(em) and above > 1.5 and zero > 0.02, "the largest shares of another population",
                           "the largest shares, in place of wards of Tokyo")  # fmt: skip


def over_em(source: str, table: pl.DataFrame) -> list[Finding]:
    """Return whether figures 8 to 10 come out: who is best where, and how close the errors of the two methods are."""
    some, few_low = table.filter(pl.col("N2") > 0), table.filter((pl.col("N2") > 0) & pl.col("N3").is_between(1, 100))
    lower = few_low.filter((pl.col("p") < 0.05) & (pl.col("Proposal") < pl.col("EM")))
    tests = "; ".join(f"N2 {r['N2']}, N3 {r['N3']}: {r['Proposal'] / r['EM']:.2f} (p {r['p']:.0e})" for r in few_low.to_dicts())
    close = some.filter(pl.col("r") > 0.9)
    findings = [
        Finding.checked(f"fig. 8, {source}", "Proposal significantly below EM where N3 is small", f"Proposal / EM at {tests}",
                        len(lower) == len(few_low), LARGE),
        Finding.checked(f"fig. 9, {source}", "errors of EM and Proposal correlate nearly fully in most cases",
                        f"r above .9 in {len(close)} of {len(some)}: " + ", ".join(f"{r:.2f}" for r in some["r"]), 2 * len(close) > len(some),
                        MUCH),
    ]  # fmt: skip
    for label, part, claim, expected in (
        ("N3 = 0", pl.col("N3") == 0, "Uniform or ObfDat best", {"Uniform", "ObfDat"}),
        ("N3 = 30 and 60", pl.col("N3").is_in([30, 60]) & (pl.col("N2") > 0), "Proposal best", {"Proposal"}),
    ):
        chosen = table.filter(part)
        text = "; ".join(f"N2 {r['N2']}, N3 {r['N3']}: {r['best']}" for r in chosen.to_dicts())
        findings.append(
            Finding.checked(f"fig. 10, {source}, {label}", claim, text, set(chosen["best"]) <= expected, WHY_NOT["MSE"])
        )
    last = table.filter((pl.col("N3") == 500) & (pl.col("N2") > 0))
    ratios = (last["Proposal"] / last["EM"]).to_list()
    findings.append(
        Finding.checked(f"fig. 10, {source}, N3 = 500", "Proposal almost the same as EM",
                        "Proposal / EM " + ", ".join(f"{r:.3f}" for r in ratios), all(abs(r - 1) < 0.05 for r in ratios), MUCH)
    )  # fmt: skip
    return findings


def second_order(errors: dict[int, tuple[float, float, float]]) -> Finding:
    """Return whether MSE - b_-1 falls by four if N doubles, from the MSE of EM, that of Proposal, and b_-1 by N."""
    left = np.array([[em - b, proposal - b] for em, proposal, b in errors.values()])
    orders = np.log2(np.abs(left[:-1] / left[1:]))
    text = "; ".join(f"N {n}: {a:.2e} and {b:.2e}" for n, (a, b) in zip(errors, left, strict=True))
    em, proposal = (
        Finding.checked("proposition 1", "MSE of Proposal - b_-1 is of order N^-2", f"EM and Proposal: {text}; order "
                        f"{orders[-1, 0]:.2f} and {orders[-1, 1]:.2f}", bool(order > 1.75), "",
                        "(36) is a third moment of means, which is itself of order N^-2, and here EM's MSE is the smaller one. Exact, over all samples")
        for order in orders[-1]
    )  # fmt: skip
    return proposal.against({"EM": em}, "EM")


def smallest(source: str, n: int, mean: dict[str, float]) -> Finding:
    """Return whether the method with the smallest mean squared error is one that hardly looks at the reports."""
    best = min(mean, key=lambda name: mean[name])
    text = f"{best} ({', '.join(f'{name} {error:.3f}' for name, error in mean.items())})"
    return Finding.checked(f"fig. 6, {source}: MSE, N = {n}", "Uniform or ObfDat smallest where N is very small", text,
                           best in ("Uniform", "ObfDat"), "the fewer shares are large, the farther is Uniform: see flatter populations, at the end")  # fmt: skip


def hardly_less(source: str, n4: int, few: dict[str, float], many: dict[str, float]) -> Finding:
    """Return whether 20,000 users with epsilon .1 instead of 500 hardly change the errors."""
    ratio = {name: many[name] / few[name] for name in ("EM", "Proposal")}
    return Finding.checked(f"fig. 7, {source}, N4 = {n4}: MSE", "only slightly less, or no less, than with N1 = 500",
                           "N1 20,000 / 500: " + ", ".join(f"{name} {value:.2f}" for name, value in ratio.items()),
                           all(0.7 < value < 1.4 for value in ratio.values()), note="forty times as many reports")  # fmt: skip
