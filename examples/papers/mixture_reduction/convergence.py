"""Figure 6 and table II: steps and times of EM and MR."""

from __future__ import annotations

from math import exp
from time import process_time

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import Finding, Reproduction, frame, lines, names, people, perturbed

from mixture_reduction.claims import at_most
from mixture_reduction.data import COMPENSATION, INCOME, income, numbers
from mixture_reduction.methods import FULL, STOPPED, estimated, stopped

SETTLED = {0.75: 8000, 3: 1000}  # steps after which the paper sees a level line
FEWER = 0.5  # steps of MR to those of EM: 4,000 to 8,000, and less
READ_OFF = "the paper reads 'level' from a picture; here it is within 2 % of the error of the maximum"


def nearest(settled: int, steps: list[int]) -> list[int]:
    """Return the last of the steps that were tried below ``settled``, and the first from there on."""
    return [*[step for step in steps if step < settled][-1:], *[step for step in steps if step >= settled][:1]]


def convergence(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 6: error and certified gap of EM after so many steps, and the steps of EM and MR until they stop."""
    for source, counts in {"compensation": COMPENSATION, **({"income": INCOME} if full else {})}.items():
        steps = [1, 10, 30, 100, 300, 1000, 3000, *([10_000, 20_000] if full else [])]
        people(con, counts, named=True)
        points: list[dict[str, object]] = []
        for epsilon, settled in SETTLED.items():
            more, mae = (errors_after(con, counts, epsilon * factor, steps, 5 if full else 3) for factor in (1.2, 1))
            finding, raised = (by_level(f"fig. 6, {source}, epsilon {epsilon}", settled, one) for one in (mae, more))
            paper.findings.append(finding.against({"epsilon x 1.2": raised}))
            by_steps(paper, f"fig. 6, {source}, epsilon {epsilon}: steps of MR / EM", taken(con, epsilon))
            gaps = gaps_after(con, steps)
            certified(con, paper, f"fig. 6, {source}, epsilon {epsilon}, certificate", steps[-1], gaps[-1])
            points += [{"epsilon": f"epsilon {epsilon}", "steps": step, "gap": gap, "mae": mae[step]}
                       for step, gap in zip(steps, gaps, strict=True)]  # fmt: skip
        for column, text in (("mae", "Mean absolute error"), ("gap", "Certified gap")):
            chart = lines(pl.DataFrame(points), "steps", column, "epsilon", log=True)
            paper.picture(f"Figure 6: {text.lower()} of EM, {source}", f"{text} after so many steps, OLH.", chart)


def errors_after(con: DuckDBPyConnection, counts: list[int], epsilon: float, steps: list[int], runs: int) -> dict[int, float]:
    """Return the mean absolute error of EM after each number of steps; after 0 stands that of the certified maximum."""
    perturbed(con, f"ldp.olh({epsilon:g}, {names(len(counts))})", runs)
    calls = {0: "ldp.ibu(counts, m())"} | {step: f"ldp.ibu(counts, m(), stop := {step})" for step in steps}
    p = np.array(counts) / sum(counts)
    return {step: float(np.abs(estimated(con, call) - p).mean()) for step, call in calls.items()}


def by_level(figure: str, settled: int, mae: dict[int, float]) -> Finding:
    """Compare the number of steps after which the error is level with the paper's."""
    last, steps = mae[0], [step for step in mae if step]
    level = next((step for step in steps if abs(mae[step] / last - 1) < 0.02), None)
    least = min(steps, key=mae.__getitem__)
    return Finding.checked(
        figure, f"MAE level after about {settled:,} steps",
        f"within 2 % of that of the maximum after {level:,} steps" if level else
        f"not within 2 % of that of the maximum after {steps[-1]:,} steps",
        level is None if settled > steps[-1] else level in nearest(settled, steps), READ_OFF,
        note=f"the least MAE was at {least:,} steps, {last / mae[least]:.2f} times less than at the maximum")  # fmt: skip


def gaps_after(con: DuckDBPyConnection, steps: list[int]) -> list[float]:
    """Return the certified gap of EM in the first run after each number of steps."""
    call = "SELECT ldp.diagnose(counts, m(), estimator := 'ibu(stop={})').gap AS gap FROM counted WHERE run = 0"
    return [float(frame(con, call.format(step))["gap"][0]) for step in steps]


def taken(con: DuckDBPyConnection, epsilon: float) -> list[float]:
    """Return the steps of MR to those of EM in each run, both stopped by one rule."""
    tolerance = min(0.5, 1e-3 * exp(epsilon))
    steps = [
        frame(con, f"SELECT ldp.diagnose(counts, m(), estimator := '{estimator}').iterations AS n FROM counted ORDER BY run")["n"]
        for estimator in (f"em_mr(tolerance={tolerance})", f"ibu(stop=''paper'', tolerance={tolerance})")
    ]  # fmt: skip
    return (steps[0] / steps[1]).to_list()


def by_steps(paper: Reproduction, figure: str, ratios: list[float]) -> None:
    """Compare the steps of MR and EM with the paper's: half as many, or fewer."""
    paper.findings.append(
        at_most(figure, "MR takes 4,000 steps, EM 8,000 to 20,000", ratios, FEWER, "MR begins with a fit of all values, and "
                "fits again after each merge; each fit goes on from the one before")
    )  # fmt: skip


def certified(con: DuckDBPyConnection, paper: Reproduction, figure: str, step: int, gap: float) -> None:
    """Add what the certificate says about a level line."""
    diagnosis = frame(con, "SELECT unnest(ldp.diagnose(counts, m())) FROM counted WHERE run = 0")
    text = f"gap {gap:.1e} after {step:,} steps; {diagnosis['iterations'][0]} Newton steps reach {diagnosis['gap'][0]:.1e}"
    why = "a level line is not a maximum; the gap bounds what is missing"
    paper.findings.append(Finding(figure, "a level line", text, "beyond the paper", why))


# Seconds of EM and MR
PUBLISHED = {
    ("compensation", "krr"): {0.75: (19, 10), 1: (12, 5), 2: (9, 4), 3: (6, 4)},
    ("compensation", "olh"): {0.75: (765, 311), 1: (502, 204), 2: (115, 83), 3: (58, 37)},
    ("income", "krr"): {0.75: (23, 11), 1: (17, 8), 2: (12, 5), 3: (7, 4)},
    ("income", "olh"): {0.75: (15_684, 2_837), 1: (6_482, 1_697), 2: (1_126, 279), 3: (154, 67)},
}
LAPLACE = {0.75: (12_317, 5_457), 1: (8_152, 3_003), 2: (2_516, 1_026), 3: (823, 412)}
SEEDS = {"krr": "", "olh": ", seeds := 'private'"}
TIMED = 10  # runs in a call, and one of the income through OLH, which takes a minute
TIMES_AGREE = 1.5  # a time moves by a fifth from run to run, and the paper's by as much
AS_MANY_STEPS = "{:.2f} times the steps of EM, as each fit goes on from the one before, and MR also decides what to merge"
AS_FIGURE_6 = "as many steps as EM, see figure 6, and MR also decides what to merge"


def runtimes(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Table II: k-RR, and OLH with private seeds as in the paper; in a quick run the compensation only."""
    for (source, mechanism), published in PUBLISHED.items():
        slow = (source, mechanism) == ("income", "olh")
        if slow and not full:
            continue
        counts = INCOME if source == "income" else COMPENSATION
        people(con, counts, named=True)
        for epsilon, (em, mr) in published.items():
            if full or mechanism == "krr" or epsilon in (1, 3):
                perturbed(con, f"ldp.{mechanism}({epsilon}, {names(len(counts))}{SEEDS[mechanism]})", 1 if slow else TIMED)
                why = AS_FIGURE_6 if slow else AS_MANY_STEPS.format(np.mean(taken(con, epsilon)))
                by_time(paper, f"table II, {source}, {mechanism}, epsilon {epsilon}", em, mr, times(con, epsilon), why)


def laplace_runtimes(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Table II, Laplace: the incomes of the IRS; compensation as numbers is not published."""
    numbers(con, income(con))
    for epsilon, (em, mr) in LAPLACE.items():
        if full or epsilon in (1, 3):
            perturbed(con, f"ldp.laplace({epsilon}, -1, 1, bins := {FULL})", TIMED)
            why = AS_MANY_STEPS.format(np.mean(taken(con, epsilon)))
            by_time(paper, f"table II, income, laplace, epsilon {epsilon}", em, mr, times(con, epsilon), why)


def times(con: DuckDBPyConnection, epsilon: float) -> dict[str, float]:
    """Return the processor time of EM and MR, stopped by one rule, and of the certified maximum with its errors."""
    estimated(con, "ldp.ibu(counts, m(), stop := 1)")  # the first call prepares the channel
    calls = stopped(STOPPED, epsilon) | {"certified maximum": "ldp.ibu(counts, m())"}
    return {name: seconds_of(con, call) for name, call in calls.items()}


def by_time(paper: Reproduction, figure: str, em: float, mr: float, seconds: dict[str, float], why: str = "") -> None:
    """Compare the times of EM and MR with their published ratio."""
    ratio, text = seconds["MR"] / seconds["EM"], ", ".join(f"{name} {one:.2f}" for name, one in seconds.items())
    paper.findings.append(
        Finding.checked(figure, f"EM {em:,} s, MR {mr:,} s: {mr / em:.2f}", f"{ratio:.2f}; CPU seconds: {text}",
                        ratio < min(1.0, TIMES_AGREE * mr / em), why)
    )  # fmt: skip


def seconds_of(con: DuckDBPyConnection, call: str) -> float:
    """Return the processor time that an estimate takes, counts included."""
    start = process_time()
    estimated(con, call)
    return process_time() - start
