"""The pages of ``make papers``: the table of agreement can say no, and the figures it rests on come out again."""

from __future__ import annotations

from importlib import import_module
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
DATA = Path(__file__).parents[2] / "shared" / "data"
RARE = 4.9  # standard deviations that a normal figure exceeds once in 10^6


def needs(name: str) -> pytest.MarkDecorator:
    """Skip if a file that may not be shipped is missing."""
    return pytest.mark.skipif(not (DATA / name).is_file(), reason=f"{name} is not here")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import scripts as ``python examples/papers`` does."""
    monkeypatch.syspath_prepend(str(PAPERS))
    return import_module


def verdicts(paper: Any) -> dict[str, str]:
    return {finding.figure: finding.verdict for finding in paper.findings}


# --- the table ---


def test_a_claim_that_does_not_hold_is_reported_as_a_difference(script: Any, tmp_path: Path) -> None:
    shared = script("reproduction")
    paper = shared.Reproduction("A & B", "source")
    paper.findings.append(shared.Finding.checked("fig. 1", "x < y", "2 < 1", 2 < 1, "because"))  # noqa: PLR0133
    paper.findings.append(shared.Finding.checked("fig. 2", "x > y", "2 > 1", 2 > 1))  # noqa: PLR0133
    page = paper.write(tmp_path).read_text("utf-8")
    assert verdicts(paper) == {"fig. 1": "differs", "fig. 2": "agrees"}
    assert "<td>x &lt; y</td><td>2 &lt; 1</td><td>differs</td><td>because</td>" in page
    assert "| fig. 1 | x < y | 2 < 1 | differs | because |\n" in (tmp_path / "a_&_b.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("mutants", "verdict", "why"),
    [
        ({"a": True, "b": True}, "does not tell", "it also holds with a, b"),
        ({"a": True, "b": False}, "agrees", "it also holds with a; it does not hold with b"),
        ({"rival": True, "b": False}, "does not tell", "it also holds with rival; it does not hold with b"),
        ({"a": False, "b": False}, "agrees", "it does not hold with a, b"),
    ],
)
def test_a_claim_that_every_mutant_passes_does_not_tell(script: Any, mutants: dict[str, bool], verdict: str, why: str) -> None:
    shared = script("reproduction")
    findings = {name: shared.Finding.checked("fig. 1", "x < y", "", holds) for name, holds in mutants.items()}
    finding = shared.Finding.checked("fig. 1", "x < y", "1 < 2", True).against(findings, "rival")
    assert (finding.verdict, finding.why) == (verdict, why)
    differs = shared.Finding.checked("fig. 1", "x < y", "2 < 1", False, "because")
    assert differs.against(findings) == differs


def test_a_claim_is_tried_with_each_method_in_place_that_moves_it(script: Any) -> None:
    """Five steps are farther than the inversion; another inversion does not matter; no mutant moves the last claim."""
    shared = script("reproduction")
    rows = shared.pl.DataFrame({"estimator": ["ibu", "inv_p", "inv_n", "five"], "tv": [1.0, 2.0, 3.0, 4.0]})

    def decide(rows: Any) -> list[Any]:
        tv = dict(rows.iter_rows())
        text = f"{tv['ibu']} and {tv['inv_p']}"
        return [
            shared.Finding.checked("fig. 1", "ibu nearest", text, tv["ibu"] < tv["inv_p"]),
            shared.Finding.checked("fig. 2", "as many", str(len(tv)), True),
        ]

    replaced = {"five steps": {"ibu": "five"}, "raw": {"inv_p": "inv_n"}, "none": {"inv_n": "five"}}
    mutants = shared.mutants_of((rows,), replaced, "estimator")
    assert dict(mutants["five steps"][0].iter_rows()) == {"ibu": 4.0, "inv_p": 2.0, "inv_n": 3.0, "five": 4.0}
    first, last = shared.tested(decide, (rows,), mutants)
    assert (first.verdict, first.why) == ("agrees", "it also holds with raw; it does not hold with five steps")
    assert (last.verdict, last.why) == ("does not tell", "it also holds with five steps, raw, none")


def test_a_likelihood_with_one_maximum_does_not_pass_for_one_with_many(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section III: exact figures, no chance in them; then the two channels change places."""
    ibu, shared = script("iterative_bayesian_update"), script("reproduction")
    for swapped, expected in ((False, "agrees"), (True, "differs")):
        if swapped:
            flat = ibu.FLAT
            monkeypatch.setattr(ibu, "FLAT", ibu.PEAKED)
            monkeypatch.setattr(ibu, "PEAKED", flat)
        paper = shared.Reproduction("x", "y")
        with shared.connect() as con:
            ibu.counter_examples(con, paper, False)
        assert set(verdicts(paper).values()) == {expected}, [f.ours for f in paper.findings]


@pytest.mark.slow
def test_parts_whose_data_are_missing_say_so_and_are_left_out(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script("reproduction"), "SHARED", tmp_path)
    missing = {
        "small_samples": ["adult_census_income.parquet"],
        "privic": ["gowalla_sf_privic_grid.csv", "gowalla_paris_privic_grid.csv"],
    }
    for name, files in missing.items():
        paper = script(name).reproduce(full=False)
        assert all(finding.figure.startswith(("proposition 1", "corrected EM")) for finding in paper.findings)  # they need none
        skipped = {line for line in capsys.readouterr().out.splitlines() if "missing" in line}
        assert skipped == {f"{paper.title}: {file} is missing: this part is skipped" for file in files}
        assert paper.write(tmp_path).stat().st_size > 1000


# --- iterative Bayesian update, figure 9 ---

# Total variation over 400 runs, simulated with NumPy and the channel in doubles, apart from the code of this project:
# mean and standard deviation of one run.
RUNS = {"reports": (0.4559, 0.0013), "inv_n": (0.4985, 0.0192), "inv_p": (0.4956, 0.0298), "ibu": (0.2372, 0.0136)}


@needs("gowalla_sf_grid_24x16.csv")
def test_figure_9_is_one_run_of_a_wide_spread(script: Any) -> None:
    """The mean of twelve runs is off by RARE standard deviations once in 10^6; the paper's run is looked up in the spread."""
    ibu, shared, runs = script("iterative_bayesian_update"), script("reproduction"), 12
    with shared.connect() as con:
        ibu.san_francisco(con)
        shared.perturbed(con, ibu.grid("planar_geometric", 1), runs)
        calls = {name: ibu.ESTIMATORS[name] for name in ("inv_n", "inv_p")} | {"ibu": ibu.STOPPED}
        rows = ibu.pl.concat([ibu.noisy(con), ibu.distances(con, calls, tv=ibu.TV)])
    means, published = ibu.means(rows, "tv"), script("update_verdicts").PUBLISHED
    for name, (mean, deviation) in RUNS.items():
        assert means[name] == pytest.approx(mean, abs=RARE * deviation * sqrt(1 / runs + 1 / 400)), name
        assert abs(published[name] - mean) <= shared.WITHIN * deviation, name


def runs_of(mean: float, deviation: float) -> Any:
    """Return five runs with this mean and standard deviation."""
    return mean + deviation * np.array([-1, -1, 0, 1, 1])


@pytest.mark.parametrize(
    ("published", "others", "tuned", "verdict"),
    [
        (0.24, [0.4, 0.1], "", "agrees"),
        (0.24, [0.4, 0.1], "600 steps", "agrees after tuning"),
        (0.24, [0.4, 0.25], "600 steps", "cannot decide"),
        (0.44, [0.4, 0.1], "600 steps", "differs"),
        (0.40, [0.4, 0.1], "", "differs"),
    ],
)
def test_a_figure_of_one_run_agrees_only_if_other_epsilons_do_not(
    script: Any, published: float, others: list[float], tuned: str, verdict: str
) -> None:
    finding = script("reproduction").Finding.of_one_run(
        "fig. 9", published, runs_of(0.24, 0.014), [runs_of(mean, 0.014) for mean in others], tuned
    )
    assert finding.verdict == verdict
    assert tuned in finding.why


def distances_of(ibu: list[float], inversion: list[float]) -> list[dict[str, object]]:
    """Return five runs at each epsilon in which IBU and both inversions have these distances, with a little noise."""
    methods = {"ibu": ibu, "inv_n": [1.1 * value for value in inversion], "inv_p": inversion}
    return [
        {"epsilon": float(at + 1), "run": run, "estimator": name, "tv": value * (1 + (run * 7 + at) % 5 / 1000)}
        for name, values in methods.items()
        for at, value in enumerate(values)
        for run in range(5)
    ]


@pytest.mark.parametrize(
    ("ibu", "inversion", "verdict"),
    [
        ([0.3, 0.2, 0.02], [0.8, 0.3, 0.025], "agrees"),
        ([0.3, 0.2, 0.03], [0.8, 0.3, 0.025], "differs"),  # farther at one epsilon
        ([0.3, 0.3, 0.02], [0.8, 0.3, 0.025], "differs"),  # a tie
        ([0.7, 0.2, 0.01], [0.8, 0.3, 0.025], "differs"),  # most of all at large epsilon
    ],
)
def test_figures_10_and_11_want_the_nearest_at_every_epsilon(
    script: Any, ibu: list[float], inversion: list[float], verdict: str
) -> None:
    module = script("iterative_bayesian_update")
    rows = module.pl.DataFrame(distances_of(ibu, inversion))
    assert module.nearest("fig. 10", rows, "tv").verdict == verdict


def test_every_figure_and_table_has_a_verdict_or_a_reason(script: Any) -> None:
    shared = script("reproduction")
    paper = shared.Reproduction("x", "y", contents={"fig. 1": "", "fig. 2": "a diagram", "fig. 10": "", "table 3": ""})
    paper.findings += [
        shared.Finding.checked("fig. 10b, TV", "a < b", "1 < 2", True),
        shared.Finding.checked("fig. 10: data", "a < b", "2 < 1", False),
        shared.Finding("table 3, certificate", "none", "1", "beyond the paper"),
    ]
    assert paper.every() == [
        ("fig. 1", "not reproduced", shared.ABSENT),
        ("fig. 2", "not reproduced", "a diagram"),
        ("fig. 10", "agrees (1), differs (1)", ""),
        ("table 3", "not reproduced", shared.ABSENT),
    ]


# --- small samples, figure 5 ---


@needs("adult_census_income.parquet")
def test_the_correction_is_below_em_where_samples_are_smallest(script: Any) -> None:
    """N4 = 0, 20 runs: a run's difference is 1.9 standard deviations below 0 (30 runs), so the mean is above once in 10^16."""
    small, shared = script("small_samples"), script("reproduction")
    with shared.connect() as con:
        small.simulated(con, small.population(con, "census"), (500, 500, 50, 0), 20)
        rows = small.errors(con, {"EM": "ibu", "Proposal": "corrected_em"})
    ratio, away = script("small_samples_verdicts").paired(rows, "squared_error")
    assert ratio < 1
    assert away < 0


def test_a_correction_that_does_not_help_is_reported_as_a_difference(script: Any, rng: np.random.Generator) -> None:
    small = script("small_samples")
    errors = {
        "EM": 1.0,
        "Proposal": 1.5,
        "MatInv norm": 3.0,
        "MatInv proj": 9.0,
        "held out": 1.0,
        "empirical Bayes": 1.0,
        "our default": 1.0,
        "(24) as printed": 1.0,
        "best": 1.0,
    }
    rows = [
        {
            "run": run,
            "method": name,
            "squared_error": value + rng.random() / 100,
            "js_divergence": value + rng.random() / 100,
        }
        for name, value in errors.items()
        for run in range(10)
    ]
    findings = small.compare("fig. 5", "census", small.pl.DataFrame(rows).with_columns(N4=0.0), "N4")
    verdicts = [(finding.paper[:8], finding.verdict) for finding in findings]
    assert verdicts.count(("Proposal", "differs")) == 2
    assert verdicts.count(("inversio", "agrees")) == 2
