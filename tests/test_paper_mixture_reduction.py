"""The page of the mixture reduction paper: each verdict follows from numbers, and other numbers turn it."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
WAVE = np.array([1.0, -1.1, 0.9, -1.0, 1.1, -0.9, 1.0, -1.0])  # what runs differ by


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import modules of the paper as ``python examples/papers`` does."""
    monkeypatch.syspath_prepend(str(PAPERS))
    return lambda name: import_module(f"mixture_reduction.{name}" if name != "reproduction" else name)


def verdicts(paper: Any) -> dict[str, str]:
    """Return the verdicts of the claims of the paper."""
    return {f.figure: f.verdict for f in paper.findings if f.verdict != "beyond the paper"}


def runs_around(mean: float, spread: float = 0.02) -> np.ndarray:
    """Return eight runs with this mean, and a spread relative to it."""
    return np.asarray(mean * (1 + spread * (WAVE - WAVE.mean())))


# --- mixture reduction, figures 4, 7 and 8 ---


def test_every_method_of_figure_4_runs_on_a_handful_of_people(part: Any) -> None:
    mixture, shared = part("frequencies"), part("reproduction")
    for mechanism in ("krr", "olh"):
        with shared.connect() as con:
            rows = mixture.frequency(con, [900, 500, 300, 200, 100], mechanism, 1.0, full=False)
        assert set(rows["method"]) == {
            *mixture.BASELINES,
            *mixture.STOPPED,
            *mixture.MAXIMUM,
            *mixture.FIVE,
            *mixture.OBSERVED[mechanism],
            *mixture.BEYOND,
            mixture.TOLD,
            "EM, later",
        }
        assert rows["mae"].is_between(0, 1).all()
        paper = shared.Reproduction("x", "y")
        mixture.judged(paper, "fig. 4", rows)
        assert [finding.verdict for finding in paper.findings].count("beyond the paper") == len(mixture.BEYOND) + 1


def test_mixture_reduction_merges_names_and_not_numbers_in_order(part: Any) -> None:
    """As numbers, airports are neighbours, of which algorithm 3 merges windows. As names they are categories.

    Three runs: the frequent tenth is less too low by MR than by EM, by 4.6 standard deviations of one run (ten runs), so the
    mean has another sign once in 10^14 tests.
    """
    mixture, shared = part("frequencies"), part("reproduction")
    with shared.connect() as con:
        counts = mixture.destinations(con)
        shared.people(con, counts, named=True)
        shared.perturbed(con, f"ldp.krr(1, {shared.names(len(counts))})", 3)
        rows = mixture.errors(con, mixture.stopped(mixture.STOPPED, 1), np.array(counts) / sum(counts))
    mean = {method: some["bias of the top"].mean() for (method,), some in rows.group_by("method")}
    assert mean["MR"] > mean["EM"]


def table(
    errors: dict[str, float], column: str, epsilons: tuple[float, ...] = (0.5, 1.0, 2.0), spread: float = 0.02
) -> pl.DataFrame:
    """Return rows of eight runs for each method and epsilon, with this mean error."""
    return pl.DataFrame([
        {"method": name, "epsilon": epsilon, "run": run, column: value}
        for name, mean in errors.items() for epsilon in epsilons for run, value in enumerate(runs_around(mean, spread).tolist())
    ])  # fmt: skip


LATER = {
    "EM after 5 steps": 1.8,
    "held out": 1.0,
    "certified maximum": 1.0,
    "empirical Bayes": 1.0,
    "best": 1.0,
    "BaseCut, two deviations": 1.0,
    "IIW, limit": 1.0,
    "MR told the order of the shares": 0.8,
}
FIGURE_4 = LATER | {"unbiased": 2.0, "NormSub": 1.2, "BaseCut": 1.5, "IIW": 1.4, "EM": 1.1, "EM, later": 1.1, "MR": 0.9}


NO_GAIN = {"MR / EM": "differs", "MR / EM, later": "differs", "MR / certified maximum": "differs"}
BY_EM = {"MR / unbiased": "does not tell"}  # EM in place of MR would do


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, BY_EM),
        ({"EM": 1.5}, {}),
        ({"MR": 1.1}, NO_GAIN | BY_EM),
        ({"EM": 0.95}, {"MR / EM": "differs", "MR / EM, later": "does not tell"} | BY_EM),
        ({"EM, later": 0.95}, {"MR / EM, later": "differs"} | BY_EM),
        ({"certified maximum": 1.3}, {"MR / certified maximum": "does not tell"} | BY_EM),  # as far as EM that stops early
        ({"unbiased": 1.2}, {"MR / unbiased": "differs"}),
    ],
)
def test_figure_4_agrees_if_errors_fall_as_far_as_claimed_and_not_by_em_alone(
    part: Any, changed: dict[str, float], expected: dict[str, str]
) -> None:
    paper = part("reproduction").Reproduction("x", "y")
    part("frequencies").judged(paper, "f", table(FIGURE_4 | changed, "mae"))
    claims = dict.fromkeys(("MR / EM", "MR / EM, later", "MR / certified maximum", "MR / unbiased"), "agrees")
    assert verdicts(paper) == {f"f: {name}": verdict for name, verdict in (claims | expected).items()}


def test_a_gain_within_its_noise_decides_nothing(part: Any) -> None:
    bounded = part("claims").bounded
    for ratio, verdict in (
        ((0.8, 0.02), "agrees"),
        ((0.8, 0.15), "cannot decide"),
        ((1.0, 0.02), "differs"),
        ((0.95, 0.03), "cannot decide"),
    ):
        assert bounded("f", "c", ratio, 0.9).verdict == verdict


@pytest.mark.parametrize(("em", "mr", "expected"), [
    (-2.0, -1.0, ["agrees", "agrees"]), (-1.0, -2.0, ["agrees", "differs"]), (2.0, 1.0, ["differs", "differs"]),
    (-1.0, -1.0, ["agrees", "differs"]),
])  # fmt: skip
def test_figure_8_wants_a_bias_beyond_its_noise(part: Any, em: float, mr: float, expected: list[str]) -> None:
    paper = part("reproduction").Reproduction("x", "y")
    rows = table({"EM": em, "MR": mr, "NormSub": 0.5, "certified maximum": -0.2}, "bias of the top", (1.0,))
    part("frequencies").biased(paper, "fig. 8", rows, rows)
    assert [finding.verdict for finding in paper.findings] == expected


def test_figure_8_does_not_tell_a_bias_that_every_method_has(part: Any) -> None:
    biases = {"EM": -2.0, "MR": -1.0, "certified maximum": -0.2}
    frequencies, low = part("frequencies"), table(biases, "bias of the top", (1.0,))
    paper = part("reproduction").Reproduction("x", "y")
    frequencies.biased(paper, "fig. 8", low, low)
    assert [finding.verdict for finding in paper.findings] == ["does not tell", "agrees"]
    top = low.pivot(on="method", index="run", values="bias of the top")
    assert [frequencies.too_low("f", top, name).verdict for name in ("EM", "MR")] == ["agrees", "agrees"]
    assert [frequencies.less_biased("f", top, name).verdict for name in ("MR", "EM")] == ["agrees", "differs"]


def test_figure_4_of_frequent_values_names_the_best_method(part: Any) -> None:
    frequent, best = part("frequencies"), {0.5: "MR", 1.0: "MR", 2.0: "unbiased"}
    for turned, expected in ((False, "agrees"), (True, "differs")):
        rows = pl.concat([
            table({name: 0.5 if (name == top) != turned else 1.0 for name in FIGURE_4}, "top", (epsilon,))
            for epsilon, top in best.items()
        ])  # fmt: skip
        paper = part("reproduction").Reproduction("x", "y")
        frequent.frequent(paper, "fig. 4", rows)
        assert verdicts(paper)["fig. 4, frequent values"] == expected


# Errors of the mean in eight runs, by method: signs differ, or not if a method is biased.
SPREAD = {"SR": 4.0, "PM": 3.5, "PM-EM": 0.2, "SW-EMS": 0.2, "PM-MR": 0.9, "PM-EMS": 0.2, "PM-EM after 5 steps": 0.2}
BIAS = {"PM-EM": 2.0, "SW-EMS": 3.0, "PM-EMS": 2.5, "PM-EM after 5 steps": 3.0}
SMALLEST, FALLS = "fig. 2, S-MN: MAE of the mean", "fig. 2, S-MN: MAE of the mean, PM-MR against PM"


def means_around(bias: dict[str, float], spread: dict[str, float]) -> pl.DataFrame:
    """Return the errors of the mean in eight runs at epsilon 1.5."""
    shift, width = BIAS | bias, SPREAD | spread
    return pl.DataFrame([
        {"run": run, "method": name, "epsilon": 1.5, "error": shift.get(name, 0.0) + width[name] * (wave + run * at % 3 / 100)}
        for at, name in enumerate(SPREAD) for run, wave in enumerate((WAVE - WAVE.mean()).tolist())
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("bias", "spread", "differ"),
    [
        ({}, {}, set()),
        ({}, {"PM-MR": 2.1}, {SMALLEST, FALLS}),  # a tie is not smallest
        ({}, {"PM": 1.5}, {FALLS}),
        ({}, {"SR": 0.5}, {SMALLEST}),
        ({"PM": 9.0}, {}, {"unbiased"}),
        ({"PM-EM": 0.0}, {"PM-EM": 2.0}, {"unbiased", "less biased"}),
        ({"PM-MR": 4.0}, {}, {SMALLEST, FALLS, "less biased"}),
    ],
)
def test_figures_2_and_3_want_the_least_error_the_headline_and_less_bias(
    part: Any, bias: dict[str, float], spread: dict[str, float], differ: set[str]
) -> None:
    claims = part("means").claims("S-MN", means_around(bias, spread))
    found = dict(zip((SMALLEST, FALLS, "unbiased", "less biased"), (finding.verdict for _, finding in claims), strict=True))
    assert {name for name, verdict in found.items() if verdict == "differs"} == differ


def test_figures_2_and_3_do_not_tell_what_em_does_as_well(part: Any) -> None:
    """Here EM has the errors of MR: what MR gains on the sample mean is no gain of merging, and EM is unbiased too."""
    rows, em = means_around({}, {}), means_around({"PM-EM": 0.0}, {"PM-EM": 0.9})
    for own, expected in ((rows, ["agrees"] * 4), (em, ["differs", "does not tell", "differs", "differs"])):
        paper = part("reproduction").Reproduction("x", "y")
        part("means").by_mean(paper, "S-MN", own, rows)
        assert [finding.verdict for finding in paper.findings] == expected
        assert all("epsilon x 1.2" in finding.why for finding in paper.findings if finding.verdict != "differs")


def test_figure_1_wants_half_the_distance_and_not_by_em_alone(part: Any) -> None:
    methods = part("methods")
    for mr, em, expected in ((0.2, 0.9, "agrees"), (0.2, 0.2, "does not tell"), (0.7, 0.9, "differs"), (1.0, 0.2, "differs")):
        distances = {"MR": mr, "EM": em, methods.RAW: 1.0, **dict.fromkeys((*methods.SMOOTHED, *methods.FIVE), 0.9)}
        laws = {name: np.array([[1 + far, 1 - far]]) * (1 + 0.01 * WAVE[:, None]) for name, far in distances.items()}
        paper = part("reproduction").Reproduction("x", "y")
        part("means").by_mixture(paper, laws | {"expected": np.ones((1, 2))}, laws | {"expected": np.ones((1, 2))})
        assert list(verdicts(paper).values()) == [expected]


def test_figure_7_wants_em_below_the_inversion(part: Any) -> None:
    for em, others, expected in ((0.9, 1.1, "agrees"), (0.9, 0.9, "does not tell"), (1.1, 0.9, "differs")):
        paper = part("reproduction").Reproduction("x", "y")
        rows = table({"EM": em, "unbiased": 1.0, "NormSub": others, "EM after 5 steps": 0.8}, "mae")
        part("frequencies").by_inversion(paper, "fig. 7", rows, rows)
        assert list(verdicts(paper).values()) == [expected]


def test_pckv_pm_agrees_with_the_ratio_of_its_own_share_only(part: Any) -> None:
    scripts = part("scripts")
    for share, published in scripts.PAIR_OUTPUT.items():
        ratio = scripts.PAIR_MR_OUTPUT[share] / published
        for runs, expected in ((runs_around(0.9 * ratio), "agrees"), (runs_around(1.2 * ratio), "differs")):
            paper = part("reproduction").Reproduction("x", "y")
            scripts.by_mixture(paper, "fig. 10", share, {"MR": runs, "EM": runs_around(1.2 * ratio)})
            assert list(verdicts(paper).values()) == [expected]


def test_the_means_of_the_script_agree_with_the_two_that_the_text_names(part: Any) -> None:
    means = part("means")
    errors = {name: runs_around(published) for name, published in means.READ_OFF.items()}
    more = {name: 0.8 * runs for name, runs in errors.items()}
    for mutants in ({"SR": runs_around(0.1)}, {"EM after 5 steps": runs_around(0.3)}, {}):
        assert [f.verdict for f in means.read_off(errors | mutants, more)] == ["agrees", "agrees"]
    assert [f.verdict for f in means.read_off(errors | {"PM": runs_around(0.03)}, more)] == ["differs", "agrees"]
    alone = {"PM": errors["PM"]}
    assert means.read_off({**alone, "PM-MR": errors["PM-MR"]}, more)[0].why == "it does not hold with PM-MR, epsilon x 1.2"
    equal = means.read_off({**alone, "PM-MR": errors["PM"], "SR": errors["PM"]}, errors)[0]
    assert equal.verdict == "does not tell"


def test_a_published_mean_of_errors_a_third_of_ours_differs(part: Any) -> None:
    """Twenty errors with mean and spread .013: their spread is not that of a hundred with mean .004."""
    errors = -np.log((np.arange(20) + 0.5) / 20)
    near, ours = part("claims").near, 0.013 * errors / errors.mean()
    assert [near("fig. 2", mean, ours, 100, 3.0).verdict for mean in (0.004, 0.013, 0.04)] == ["differs", "agrees", "differs"]


def test_a_published_mean_differs_from_runs_of_the_same_law_as_seldom_as_it_says(part: Any, rng: np.random.Generator) -> None:
    """Squared errors of a normal estimate, five against a hundred: beyond two deviations in 5 % of 4,000 draws, within 2 %."""
    near = part("claims").near
    means, runs = (rng.normal(size=(4000, n)) ** 2 for n in (5, 100))
    differing = sum(near("f", five.mean(), many, 5, 2.0).verdict == "differs" for five, many in zip(means, runs, strict=True))
    assert 0.03 * 4000 < differing < 0.075 * 4000


def test_the_window_of_the_script_agrees_with_its_own_start_only(part: Any) -> None:
    scripts = part("scripts")
    for factor, expected in ((1.0, "agrees"), (2.0, "differs")):
        paper = part("reproduction").Reproduction("x", "y")
        squared = {scripts.BY_SCRIPT: runs_around(factor), "values from -1 at first": runs_around(1.5)}
        scripts.by_window(paper, "fig. 10", 1.0, squared)
        assert list(verdicts(paper).values()) == [expected]


@pytest.mark.parametrize("epsilon", [0.5, 1.3])
def test_the_window_of_the_script_keeps_epsilon_and_is_a_law(part: Any, epsilon: float) -> None:
    """Half of a bin of numbers is wider than a bin of reports, so that some window fills one."""
    law = part("pckv").window_law(epsilon, 256)
    assert law.sum(axis=1) == pytest.approx(1)
    assert law.max() / law.min() == pytest.approx(exp(epsilon), rel=1e-9)


def test_em_of_the_scripts_is_ems_and_their_mixture_keeps_the_weight_of_a_window(part: Any) -> None:
    """Half of the range is empty: the window there is merged, and the other half has the estimate of EM that smooths."""
    methods, module, values = part("methods"), part("scripted"), np.full(20_000, 0.5)
    reports, _ = methods.drawn("piecewise(2)", values, 128, 2)
    law, even, tolerance = reports.operator.matrix(), np.full(128, 1 / 128), 1e-3 * exp(2)
    ours = methods.fitted(reports, methods.stopped(methods.SMOOTHED, 2)["EMS"])
    theirs = np.array([module.ems(law, counts, even, tolerance, 5000) for counts in reports.counts])
    assert np.abs(ours - theirs).sum(axis=1).max() < 0.05
    merged = module.scripted(reports, 2)
    assert merged.sum(axis=1) == pytest.approx(1)
    assert np.ptp(merged[:, :32], axis=1).max() < 1e-12  # equal shares
    assert np.abs(merged - theirs).sum(axis=1).max() < 0.5


@pytest.mark.parametrize(
    ("theta", "taken", "start", "weight"),
    [
        ([0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.0, 0.0], [], 5, 0.1),
        ([0.1, 0.2, 0.4, 0.1, 0.1, 0.1, 0.0, 0.0], [5], 3, 0.2),
        ([0.01, 0.0, 0.39, 0.2, 0.2, 0.2, 0.0, 0.0], [], 0, 0.01),  # about as light, and at the end
    ],
)
def test_the_lightest_free_window_is_merged(part: Any, theta: list[float], taken: list[int], start: int, weight: float) -> None:
    used = np.zeros(8)
    used[taken] = 1
    assert part("scripted").lightest(np.array(theta), used, 2, 0.03) == (start, pytest.approx(weight))


VERDICTS = {  # of each module of the paper: what makes its verdicts; the tests above turn each of them
    "convergence": {"by_level", "by_steps", "by_time"},
    "densities": {"by_density"},
    "frequencies": {"judged", "frequent", "too_low", "less_biased", "by_inversion"},
    "key_value": {"by_key"},
    "means": {"claims", "by_mixture", "read_off"},
    "scripts": {"by_output", "by_ratio", "by_mixture", "by_window", "pairs"},
}
_DECIDES = re.compile(r"\b(Finding\.checked|at_most|bounded|near|Verdict)\b\(?")


MODULES = sorted(path.stem for path in (PAPERS / "mixture_reduction").glob("*.py") if path.stem != "claims")


@pytest.mark.parametrize("module", MODULES)
def test_every_function_that_makes_a_verdict_is_turned_by_a_test(module: str) -> None:
    """A verdict is made by one of the functions listed above, and a test calls each of them; ``near`` is that of `pairs`."""
    text = (PAPERS / "mixture_reduction" / f"{module}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    making = {node.name for node in functions if _DECIDES.search(ast.get_source_segment(text, node) or "")}
    assert making == VERDICTS.get(module, set())
    tests = Path(__file__).read_text(encoding="utf-8")
    assert all(f".{name}(" in tests for name in making - {"pairs"})


def test_published_output_agrees_within_its_noise_only(part: Any) -> None:
    """Our errors are the published ones, then twice as large, then those of another method."""
    scripts, shared = part("scripts"), part("reproduction")
    for output in (scripts.OUTPUT, scripts.HASHED_OUTPUT):
        others = dict(zip(output, reversed(list(output.values())), strict=True))
        for errors, expected in ((output, "agrees"), ({k: 2 * v for k, v in output.items()}, "differs"), (others, "differs")):
            paper = shared.Reproduction("x", "y")
            squared, more = ({name: runs_around(factor * value) for name, value in errors.items()} for factor in (1, 0.7))
            scripts.by_output(paper, "f", output, squared | {scripts.SUMMED: runs_around(1.0)}, more)
            assert set(verdicts(paper).values()) == {expected}


def test_a_published_ratio_agrees_if_its_noise_does_not_reach_1(part: Any) -> None:
    scripts = part("scripts")
    for ratio, spread, expected in ((0.77, 0.01, "agrees"), (0.77, 0.2, "cannot decide"), (1.07, 0.02, "differs")):
        paper = part("reproduction").Reproduction("x", "y")
        squared = {"MR": runs_around(ratio, spread), "EM": runs_around(1.0, spread), "EM, later": runs_around(1.0, spread)}
        scripts.by_ratio(paper, "f", scripts.OUTPUT, squared, "EM, later", "")
        assert list(verdicts(paper).values()) == [expected]
    paper = part("reproduction").Reproduction("x", "y")
    scripts.by_ratio(
        paper, "f", scripts.OUTPUT, squared | dict.fromkeys(("MR", "EM"), runs_around(0.77, 0.01)), "EM, later", ""
    )
    assert list(verdicts(paper).values()) == ["does not tell"]  # EM that stops as early has the same error


def test_the_filter_of_the_script_is_iiw_with_another_number_of_reports(part: Any) -> None:
    """Of the values 0, 1 and 2, as many reports are 0 as are 2, so that the reports add up to their number. Ours sum to one."""
    counts = np.array([440.0, 120, 440])
    with part("reproduction").connect() as con:
        con.execute("CREATE MACRO m() AS ldp.krr(1.5, range(3))")
        con.execute("CREATE TABLE counted AS SELECT 0 AS run, MAP {0: 440, 1: 120, 2: 440} AS counts")
        ours = part("methods").estimated(con, part("methods").BASELINES["IIW"])
    own = part("scripts").filtered(counts[None] / 1000, 1.5, 1000)
    assert own - own.mean() == pytest.approx(ours - ours.mean(), abs=1e-12)


def test_pairs_agree_with_the_published_error_at_their_own_epsilon_only(part: Any) -> None:
    """PCKV-UE, exact law: the error of the inversion by the delta method, next to that of 4,000 runs at two epsilons."""
    scripts, pckv, claims = part("scripts"), part("pckv"), part("claims")
    values = np.full(20_000, 0.55)
    for epsilon, expected in ((1.3, "agrees"), (0.6, "differs"), (2.0, "differs")):
        errors = pckv.sign_errors(values, 100_000, epsilon, 4000)
        assert claims.near("f", scripts.PAIR_OUTPUT[0.2], errors, scripts.PAIR_RUNS, 4.0).verdict == expected
    raw = pckv.sign_errors(values, 100_000, 1.3, 4000, raw=True)
    assert claims.near("f", scripts.PAIR_OUTPUT[0.2], raw, scripts.PAIR_RUNS, 4.0).verdict == "differs"


def test_one_key_of_pckv_pm_as_described_keeps_the_split_of_the_budget(part: Any) -> None:
    """At most e^epsilon between two values of the key, and between having it and having another one; nearly reached."""
    for epsilon in (0.5, 1.3, 3.0):
        law = part("pckv").joint(epsilon).matrix()
        kept, without = law[:-1], law[-1]
        most = (kept / without).max() * (without / kept).max()
        assert most == pytest.approx(exp(epsilon), rel=1e-9)
        assert kept[:, -1].max() == pytest.approx(0.5, abs=0.02)  # nothing is shown half of the time
        assert law.sum(axis=1) == pytest.approx(1)


FIGURE_10 = {"pckv_ue, inv": 2.0, "pckv_grr, inv": 2.2, "MR": 0.9, "EM": 2.5}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ["agrees", "agrees", "agrees"]),
        ({"EM": 1.1}, ["does not tell", "does not tell", "agrees"]),
        ({"EM": 0.8}, ["does not tell", "does not tell", "differs"]),
        ({"pckv_grr, inv": 1.1}, ["differs", "agrees", "agrees"]),
        ({"pckv_ue, inv": 0.8}, ["differs", "differs", "agrees"]),
        ({"MR": 2.6}, ["differs", "differs", "differs"]),
    ],
)
def test_figure_10_wants_half_the_error_at_small_epsilons(part: Any, changed: dict[str, float], expected: list[str]) -> None:
    paper, module = part("reproduction").Reproduction("x", "y"), part("key_value")
    errors = dict.fromkeys((*module.IN_PLACE, *module.BEYOND), 1.0) | {
        getattr(module, name, name): value for name, value in (FIGURE_10 | changed).items()
    }
    rows = table(errors, "squared error", module.EPSILONS)
    module.by_key(paper, "fig. 10", rows, rows)
    assert [finding.verdict for finding in paper.findings if finding.verdict != "beyond the paper"] == expected


def test_figure_5_wants_each_of_four_errors_to_fall(part: Any) -> None:
    densities = part("densities")
    for mr, expected in ((0.85, "agrees"), (1.0, "differs")):
        rows = pl.DataFrame([
            {"data": "a", "method": name, "run": run, **dict.fromkeys((*densities.ERRORS, densities.SORTED), value)}
            for name in (*densities.DENSITIES, densities.RAW, densities.BY_SCRIPT)
            for run, value in enumerate(runs_around(mr if name in ("MR", densities.BY_SCRIPT) else 1.0).tolist())
        ])  # fmt: skip
        paper = part("reproduction").Reproduction("x", "y")
        densities.by_density(paper, "laplace", rows, rows, ["a"])
        assert list(verdicts(paper).values()) == [expected] * 13


def test_figure_5_does_not_tell_merging_from_an_em_that_stops_early(part: Any) -> None:
    densities = part("densities")
    rows = pl.DataFrame([
        {"data": "a", "method": name, "run": run, **dict.fromkeys((*densities.ERRORS, densities.SORTED), value)}
        for name in (*densities.DENSITIES, densities.RAW, densities.BY_SCRIPT)
        for run, value in enumerate(runs_around(1.2 if name == densities.LONG else 0.95).tolist())
    ])  # fmt: skip
    paper = part("reproduction").Reproduction("x", "y")
    densities.by_density(paper, "laplace", rows, rows, ["a"])
    assert sorted(verdicts(paper).values()) == ["differs"] * 9 + ["does not tell"] * 4


def test_figure_6_and_table_2_turn_with_steps_and_times(part: Any) -> None:
    module, shared = part("convergence"), part("reproduction")
    level = {0: 1.0, 300: 2.0, 1000: 1.01, 3000: 1.0}
    for mae, expected in ((level, "agrees"), (level | {300: 1.01}, "agrees"), (level | {300: 2.0, 1000: 2.0}, "differs")):
        assert module.by_level("fig. 6", 1000, mae).verdict == expected
    for ratio, expected in ((0.4, "agrees"), (0.9, "differs")):
        paper = shared.Reproduction("x", "y")
        module.by_steps(paper, "fig. 6", runs_around(ratio).tolist())
        module.by_time(paper, "table II", 100, 50, {"EM": 1.0, "MR": ratio})
        assert list(verdicts(paper).values()) == [expected, expected]


def test_every_figure_and_table_of_the_paper_is_listed(part: Any) -> None:
    contents = import_module("mixture_reduction").CONTENTS if part("claims") else {}
    assert set(contents) == {*(f"fig. {n}" for n in range(1, 11)), "table I", "table II"}
    assert [name for name, reason in contents.items() if reason] == ["table I"]


def test_table_1_has_not_the_verdicts_of_table_2(part: Any) -> None:
    shared, part_of = part("reproduction"), part("convergence")
    paper = shared.Reproduction("x", "y", contents={"table I": "no result", "table II": ""})
    part_of.by_time(paper, "table II, income", 100, 50, {"EM": 1.0, "MR": 0.5})
    assert paper.every() == [("table I", "not reproduced", "no result"), ("table II", "agrees (1)", "")]


def test_the_variance_of_krr_is_that_of_its_two_chances(part: Any) -> None:
    """For two values: p (1 - p) / (2 p - 1)^2, whatever their shares."""
    p = np.exp(1.5) / (np.exp(1.5) + 1)
    assert part("scripts").krr_variance(1.5, 2) == pytest.approx(p * (1 - p) / (2 * p - 1) ** 2)


def test_a_level_line_is_looked_for_next_to_the_steps_of_the_paper(part: Any) -> None:
    nearest = part("convergence").nearest
    assert nearest(1000, [100, 300, 1000, 3000]) == [300, 1000]
    assert nearest(8000, [1000, 3000, 10_000, 20_000]) == [3000, 10_000]


def test_the_four_errors_of_figure_5_are_those_of_two_points(part: Any) -> None:
    """All mass moved from bin 0 to bin 9 of ten on [-1, 1]: bins are .2 wide."""
    four_errors = part("densities").four_errors
    p, q = np.eye(10)[0], np.eye(10)[9]
    errors = four_errors(p, q)
    assert errors["Wasserstein"] == pytest.approx(1.8)
    assert errors["variance"] == pytest.approx(0)
    assert errors[part("densities").SORTED] == 0  # it does not see that the mass is elsewhere
    assert four_errors(p, p) == dict.fromkeys(errors, 0)
