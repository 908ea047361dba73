"""Every verdict of the papers' pages is a function of measurements, and a test shows measurements that turn it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
VERDICTS = ("checked", "of_one_run")
TURNED = ("differs", "turned")


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]


def attributes(node: ast.AST) -> set[str]:
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def names(node: ast.AST) -> set[str]:
    """Return the names, attributes and texts in a function, its decorators included."""
    texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return attributes(node) | texts | {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def deciding(folder: Path) -> set[str]:
    """Return the functions that decide whether a claim of a paper holds, without the methods of the table itself."""
    paths = [path for path in folder.rglob("*.py") if path.name != "reproduction.py"]
    return {f.name for path in paths for f in functions(path) if attributes(f) & set(VERDICTS)}


def mutated(folder: Path) -> set[str]:
    """Return what is named in tests of the papers that turn a verdict."""
    tests = [f for path in folder.glob("test_paper*.py") for f in functions(path) if f.name.startswith("test_")]
    return {name for test in tests if names(test) & set(TURNED) for name in names(test)}


def test_every_function_that_decides_has_a_test_that_turns_it() -> None:
    missing = deciding(PAPERS) - mutated(Path(__file__).parent)
    assert not missing


def test_a_verdict_without_such_a_test_is_seen(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("def new(x):\n    return Finding.checked('fig. 1', 'x', 'x', x)\n", "utf-8")
    (tmp_path / "test_papers.py").write_text("def test_new():\n    assert page.new(True).verdict == 'agrees'\n", "utf-8")
    assert deciding(tmp_path) - mutated(tmp_path) == {"new"}


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import modules as ``python examples/papers`` does."""
    monkeypatch.syspath_prepend(str(PAPERS))
    return import_module


def judged(finding: Any) -> str:
    return str(finding.verdict)


# --- iterative Bayesian update ---


@pytest.mark.parametrize(("ibu", "verdict"), [(0.45, "agrees"), (0.57, "differs"), (0.6, "differs")])
def test_figure_2_wants_ibu_nearest(verdicts: Any, ibu: float, verdict: str) -> None:
    mean = {"ibu": ibu, "inv_n": 0.57, "inv_p": 0.62}
    assert judged(verdicts("update_verdicts").nearest_of_three("fig. 2", mean)) == verdict


def ninth(**means: float) -> pl.DataFrame:
    """Return six runs of every estimator of figure 9, by default around the paper's numbers."""
    published = {
        "reports": 0.4544,
        "inv_p": 0.4567,
        "inv_n": 0.4633,
        "ibu": 0.2238,
        "ibu, own rule": 0.2238,
        "ibu, maximum": 0.2238,
    }
    wave = 0.01 * np.array([-1, 1, -1, 1, -1, 1])
    rows = [{"estimator": name, "tv": mean + step} for name, mean in (published | means).items() for step in wave]
    return pl.DataFrame(rows)


@pytest.mark.parametrize("name", ["reports", "inv_p", "inv_n", "ibu, own rule", "ibu, maximum"])
def test_each_number_of_figure_9_is_turned_by_its_own_runs(verdicts: Any, name: str) -> None:
    """The truth's other epsilons are far away; of the tuned IBU alone "agrees" says so."""
    far = [ninth(**dict.fromkeys(ninth()["estimator"].unique(), value)) for value in (0.1, 0.9)]
    decide = verdicts("update_verdicts").one_runs
    before = {finding.figure: finding.verdict for finding in decide(ninth(), far)}
    after = {finding.figure: finding.verdict for finding in decide(ninth(**{name: 0.6}), far)}
    assert set(before.values()) == {"agrees", "agrees after tuning"}
    assert {figure for figure in before if before[figure] != after[figure]} == {f"fig. 9, {name}: TV"}
    assert after[f"fig. 9, {name}: TV"] == "differs"


def test_figure_9_decides_nothing_if_another_epsilon_would_agree(verdicts: Any) -> None:
    findings = verdicts("update_verdicts").one_runs(ninth(), [ninth(), ninth()])
    assert {finding.verdict for finding in findings} == {"cannot decide"}


@pytest.mark.parametrize(("inv_p", "verdict"), [(0.5, "agrees"), (0.43, "differs"), (0.57, "differs")])
def test_figure_10_wants_the_inversions_alike(verdicts: Any, inv_p: float, verdict: str) -> None:
    assert judged(verdicts("update_verdicts").almost_identical(0.5, inv_p)) == verdict


@pytest.mark.parametrize(
    ("total", "empty", "strip", "verdict"),
    [
        (123_026, 50, 229, "agrees"),
        (123_026, 50, 100, "differs"),
        (123_273, 50, 229, "differs"),
        (123_026, 0, 229, "differs"),
    ],
)
def test_figures_1_and_8_want_the_papers_data(verdicts: Any, total: int, empty: int, strip: int, verdict: str) -> None:
    assert judged(verdicts("update_verdicts").checkins("fig. 8", total, empty, strip)) == verdict


@pytest.mark.parametrize(("inv_p", "verdict"), [(0.4, "agrees"), (0.9, "differs")])
def test_figure_10b_wants_the_projection_much_better(verdicts: Any, inv_p: float, verdict: str) -> None:
    mean = pl.DataFrame({"epsilon": [0.5, 1.0], "inv_p": [2.0, inv_p], "inv_n": [1.0, 1.0]})
    assert judged(verdicts("update_verdicts").projected_better(mean)) == verdict


@pytest.mark.parametrize(("laplace", "verdict"), [([0.3, 0.1], "agrees"), ([0.3, 0.2], "differs"), ([0.5, 0.1], "differs")])
def test_figure_11_wants_laplace_nearer_at_every_epsilon(verdicts: Any, laplace: list[float], verdict: str) -> None:
    decide = verdicts("update_verdicts").laplace_better
    assert judged(decide(pl.DataFrame({"ibu": laplace}), pl.DataFrame({"ibu": [0.4, 0.2]}))) == verdict


KRR = {
    "ibu": [0.45, 0.11],
    "inv_p": [0.46, 0.112],
    "inv_n": [0.5, 0.12],
    "ibu, maximum": [0.46, 0.112],
    "ibu, 1e-2": [0.4, 0.1],
}


@pytest.mark.parametrize(
    ("tv", "far", "turned"),
    [
        ({}, {}, []),
        ({"inv_n": [0.5, 0.15]}, {}, [0]),  # a substantial difference
        ({"ibu": [0.47, 0.11]}, {}, [1]),
        ({}, {"inv_n": [0.5, 0.111]}, [2]),
        ({}, {"ibu": [0.45, 0.08]}, [3]),
    ],
)
def test_each_claim_of_figure_12_is_turned_by_its_own_measurement(
    verdicts: Any, tv: dict[str, list[float]], far: dict[str, list[float]], turned: list[int]
) -> None:
    tables = (pl.DataFrame({"epsilon": [2.0, 4.0], **KRR, **changed}) for changed in (tv, far))
    findings = verdicts("update_verdicts").alike(*tables)
    assert [i for i, finding in enumerate(findings) if finding.verdict == "differs"] == turned


@pytest.mark.parametrize(("tv", "verdict"), [(0.05, "agrees"), (0.42, "differs")])
def test_figure_13_wants_the_original(verdicts: Any, tv: float, verdict: str) -> None:
    assert judged(verdicts("update_verdicts").finds("binomial", tv)) == verdict


@pytest.mark.parametrize(
    ("inv_n", "verdict"), [([0.05, 0.012], "agrees"), ([0.05, 0.02], "differs"), ([0.09, 0.01], "differs")]
)
def test_figure_14_wants_three_like_errors_at_every_epsilon(verdicts: Any, inv_n: list[float], verdict: str) -> None:
    """Six runs whose standard deviation is a fifth of the mean of the others."""
    wave = np.array([-1, 1, -1, 1, -1, 1]) / 5 / np.sqrt(1.2)
    rows = [
        {"estimator": name, "run": run, "epsilon": epsilon, "tv": mean + own * step}
        for at, (epsilon, own) in enumerate(((0.5, 0.05), (2.0, 0.01)))
        for name, mean in (("ibu", own), ("inv_p", own), ("inv_n", inv_n[at]))
        for run, step in enumerate(wave)
    ]
    assert judged(verdicts("update_verdicts").nearly_the_same("binomial", pl.DataFrame(rows))) == verdict


# --- small samples ---


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [
        ({"Uniform": 0.02, "ObfDat": 0.03, "EM": 0.1}, "agrees"),
        ({"Uniform": 0.04, "ObfDat": 0.03, "EM": 0.1}, "agrees"),
        ({"Uniform": 0.04, "ObfDat": 0.03, "EM": 0.02}, "differs"),
    ],
)
def test_figure_6_wants_a_method_without_variance_where_samples_are_smallest(
    verdicts: Any, mean: dict[str, float], verdict: str
) -> None:
    assert judged(verdicts("small_samples_verdicts").smallest("census", 110, mean)) == verdict


@pytest.mark.parametrize(
    ("many", "verdict"),
    [
        ({"EM": 0.9, "Proposal": 0.85}, "agrees"),
        ({"EM": 0.5, "Proposal": 0.85}, "differs"),
        ({"EM": 0.9, "Proposal": 0.5}, "differs"),
        ({"EM": 0.9, "Proposal": 1.5}, "differs"),
    ],
)
def test_figure_7_wants_little_from_forty_times_as_many_noisy_reports(
    verdicts: Any, many: dict[str, float], verdict: str
) -> None:
    assert judged(verdicts("small_samples_verdicts").hardly_less("census", 20, {"EM": 1.0, "Proposal": 1.0}, many)) == verdict


# --- PRIVIC ---


@pytest.mark.parametrize(("total", "verdict"), [(123_025, "agrees"), (123_026, "differs")])
def test_figure_6_of_privic_wants_the_papers_data(verdicts: Any, total: int, verdict: str) -> None:
    assert judged(verdicts("privic").checkins(verdicts("privic").BAY, total)) == verdict


@pytest.mark.parametrize(("away", "verdict"), [([0.0, 1.0, 2.0], "agrees"), ([0.0, 3.0, 1.0], "differs")])
def test_figure_2b_wants_crowded_places_concealed_about_themselves(verdicts: Any, away: list[float], verdict: str) -> None:
    mechanism = verdicts("privic_mechanism")
    assert judged(mechanism.conceals(mechanism.PARIS, away)) == verdict


@pytest.mark.parametrize(("itself", "verdict"), [(True, "agrees"), (False, "differs")])
def test_figure_2a_wants_laplace_to_report_the_place_itself(verdicts: Any, itself: bool, verdict: str) -> None:
    mechanism = verdicts("privic_mechanism")
    assert judged(mechanism.stays(mechanism.PARIS, itself)) == verdict
