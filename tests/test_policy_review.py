"""What got weaker between two versions of the settings, and findings for code review."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldpsql.errors import LdpError
from tests.commands import app, printed

WEAKER, STRONGER, CHANGED = "weaker", "stronger", "changed"
OLD = """
[mechanisms]
city = "krr(epsilon=1, domain=['Lima', 'Oslo'])"
[tables.people]
epsilon = 2
columns = { city = "krr(epsilon=1, domain=['Lima', 'Oslo'])", age = "square_wave(epsilon=1, low=0, high=100, bins=8)" }
keep = ["region"]
[ledger]
path = "budget.ledger"
epsilon_budget = "3"
budget_window = "30 days"
max_epsilon_per_report = "2"
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def verdicts(tmp_path: Path, old: str, new: str) -> set[tuple[str, str, str]]:
    differing = compared(written(tmp_path, "old.toml", old), written(tmp_path, "new.toml", new))
    return {(change["verdict"], change["place"], change["term"]) for change in differing}


def compared(old: Path, new: Path) -> list[dict[str, str]]:
    return list(json.loads(printed("policy", "diff", str(old), str(new), "--format", "json")))


def test_nothing_differs_from_itself_also_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = written(tmp_path / "elsewhere", "ldpsql.toml", OLD)
    assert not compared(written(tmp_path, "old.toml", OLD), other)


TABLE, NAMED = "[tables.people]", "[mechanisms]"
ONE_CHANGE = {
    "an epsilon": ('columns = { city = "krr(epsilon=1', 'columns = { city = "krr(epsilon=0.5', TABLE, "city, epsilon"),
    "a named mechanism": ('ms]\ncity = "krr(epsilon=1', 'ms]\ncity = "krr(epsilon=0.5', NAMED, "city, epsilon"),
    "a kept column": ('keep = ["region"]', "keep = []", "[tables.people]", "column region, kept"),
    "the total of a row": ("epsilon = 2\n", "epsilon = 2.5\n", "[tables.people]", "epsilon of a row"),
    "the budget": ('epsilon_budget = "3"', 'epsilon_budget = "4"', "[ledger]", "epsilon_budget"),
    "the window": ("30 days", "7 days", "[ledger]", "budget_window"),
    "no window": ('budget_window = "30 days"\n', "", "[ledger]", "budget_window"),
    "no largest report": ('max_epsilon_per_report = "2"\n', "", "[ledger]", "max_epsilon_per_report"),
    "a delta": ("[ledger]\n", '[ledger]\ndelta_budget = "0.000001"\n', "[ledger]", "delta_budget"),
    "a column": (', age = "square_wave(epsilon=1, low=0, high=100, bins=8)"', "", "[tables.people]", "age, epsilon"),
}  # fmt: skip
FIRST_IS_WEAKER = {"an epsilon", "a named mechanism", "a kept column", "no window", "a column"}


@pytest.mark.parametrize("name", ONE_CHANGE)
def test_a_change_is_weaker_in_one_direction_and_stronger_in_the_other(tmp_path: Path, name: str) -> None:
    first, second, place, term = ONE_CHANGE[name]
    assert first in OLD
    there, back = verdicts(tmp_path, OLD, OLD.replace(first, second)), verdicts(tmp_path, OLD.replace(first, second), OLD)
    weaker, stronger = (back, there) if name in FIRST_IS_WEAKER else (there, back)
    assert (WEAKER, place, term) in weaker
    assert (STRONGER, place, term) in stronger
    assert WEAKER not in {verdict for verdict, *_ in stronger}


@pytest.mark.parametrize(
    ("first", "second", "term"),
    [("budget.ledger", "other.ledger", "path"), ("epsilon = 2\n", 'epsilon = 2\nunit = "person"\n', "unit")],
)
def test_a_change_without_an_order_is_weaker_both_ways(tmp_path: Path, first: str, second: str, term: str) -> None:
    for old, new in ((OLD, OLD.replace(first, second)), (OLD.replace(first, second), OLD)):
        assert WEAKER in {verdict for verdict, _, name in verdicts(tmp_path, old, new) if name == term}


LOLOHA = "loloha(permanent={}, once=0.5, domain=['Lima', 'Oslo'])"
TABLE_OF_DISTANCES = "exponential(1, ['Lima', 'Oslo'], distances=[[0, {0}], [{0}, 0]])"
GRID = "planar_laplace(1, columns=4, rows=4, side={})"


def named(mechanism: str) -> str:
    return f'[mechanisms]\ncity = "{mechanism}"\n'


def test_more_epsilon_for_all_permanent_reports_is_weaker_though_one_report_costs_the_same(tmp_path: Path) -> None:
    weaker = (WEAKER, NAMED, "city, epsilon of permanent reports")
    assert weaker in verdicts(tmp_path, named(LOLOHA.format(1)), named(LOLOHA.format(8)))
    assert WEAKER not in {verdict for verdict, *_ in verdicts(tmp_path, named(LOLOHA.format(8)), named(LOLOHA.format(1)))}


@pytest.mark.parametrize("mechanism", [TABLE_OF_DISTANCES, GRID])
def test_another_unit_of_distance_is_weaker_though_epsilon_is_the_same(tmp_path: Path, mechanism: str) -> None:
    for old, new in ((1, 9), (9, 1)):
        differing = verdicts(tmp_path, named(mechanism.format(old)), named(mechanism.format(new)))
        assert (WEAKER, NAMED, "city, distances") in differing


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("geometric(1, low=0, high=10)", "geometric(1, low=0, high=20)"),
        ("square_wave(1, low=0, high=10, bins=8)", "square_wave(1, low=5, high=10, bins=8)"),
        ("krr(1, ['Lima', 'Oslo'])", "krr(1, ['Lima', 'Rome'])"),
        ("planar_laplace(1, columns=4, rows=4, side=1)", "planar_laplace(1, columns=4, rows=5, side=1)"),
        ("row(a := krr(1, [1, 2]), b := krr(1, [1, 2]))", "row(a := krr(1, [1, 2]), b := krr(1, [1, 3]))"),
    ],
)
def test_another_domain_is_weaker_both_ways(tmp_path: Path, old: str, new: str) -> None:
    for before, after in ((old, new), (new, old)):
        assert (WEAKER, NAMED, "city, domain") in verdicts(tmp_path, named(before), named(after))


def test_the_same_values_in_another_order_are_a_change_that_is_not_weaker(tmp_path: Path) -> None:
    differing = verdicts(tmp_path, named("krr(1, ['Lima', 'Oslo'])"), named("krr(1, ['Oslo', 'Lima'])"))
    assert differing == {(CHANGED, NAMED, "city, mechanism")}


@pytest.mark.parametrize("rule", ["nulls", "outside"])
def test_a_rule_that_is_removed_or_means_another_value_is_weaker(tmp_path: Path, rule: str) -> None:
    without, lima, oslo = (
        named(f"krr(1, ['Lima', 'Oslo']{end})") for end in ("", f", {rule}='as:Lima'", f", {rule}='as:Oslo'")
    )
    for old, new, verdict in ((lima, without, WEAKER), (lima, oslo, WEAKER), (without, lima, STRONGER)):
        assert (verdict, NAMED, f"city, {rule}") in verdicts(tmp_path, old, new)


def test_every_difference_between_lists_of_plugins_is_weaker(tmp_path: Path) -> None:
    lists = ["", '[plugins]\nallow = ["coin"]\n', '[plugins]\nallow = ["coin", "other"]\n', "[plugins]\nallow = []\n"]
    for old in lists:
        for new in lists:
            assert verdicts(tmp_path, old, new) == ({(WEAKER, "[plugins]", "allow")} if old != new else set())


def test_epsilons_that_differ_in_the_last_of_twelve_decimals_are_in_order(tmp_path: Path) -> None:
    old, new = (named(f"krr(1.00000000000{last}, ['Lima', 'Oslo'])") for last in (1, 2))
    assert (WEAKER, NAMED, "city, epsilon") in verdicts(tmp_path, old, new)


def test_a_budget_in_place_of_the_policy_that_a_ledger_holds_is_weaker(tmp_path: Path) -> None:
    ledger = '[ledger]\npath = "budget.ledger"\n'
    assert (WEAKER, "[ledger]", "epsilon_budget") in verdicts(tmp_path, ledger, ledger + "epsilon_budget = 100\n")


def test_a_ledger_that_is_gone_is_weaker_in_every_limit(tmp_path: Path) -> None:
    differing = verdicts(tmp_path, OLD, OLD[: OLD.index("[ledger]")])
    assert {term for verdict, _, term in differing if verdict == WEAKER} >= {"path", "epsilon_budget", "max_epsilon_per_report"}


def test_the_commands_show_and_compare_and_exit_with_3_if_weaker(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old.toml", OLD), written(tmp_path, "new.toml", OLD.replace("30 days", "7 days"))
    run = CliRunner().invoke
    assert "budget_window" in run(app, ["policy", "show", str(old)]).stdout
    weaker = run(app, ["policy", "diff", str(old), str(new), "--format", "json"])
    assert weaker.exit_code == 3
    assert [row["verdict"] for row in json.loads(weaker.stdout)] == [WEAKER]
    assert run(app, ["policy", "diff", str(new), str(old)]).exit_code == 0
    assert run(app, ["policy", "diff", str(old), str(old)]).exit_code == 0


@pytest.mark.parametrize("text", ["[tables.people]\nepsilon = 1\ncolumns = {a = \"krr(2, ['x', 'y'])\"}", "[nothing]", "x ="])
def test_settings_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LdpError):
        printed("policy", "show", str(written(tmp_path, "ldpsql.toml", text)))
    with pytest.raises(LdpError):
        printed("policy", "show", str(tmp_path / "missing.toml"))


def test_what_cannot_be_read_is_named_with_its_file_and_its_table(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old.toml", OLD), written(tmp_path, "new.toml", OLD.replace('age = "square', 'age = "squire'))
    with pytest.raises(LdpError, match=r"new\.toml: age in \[tables\.people\]: there is no mechanism"):
        compared(old, new)
    for text, place in (
        (OLD.replace("epsilon = 2\n", "epsilon = -2\n"), r"\[tables\.people\]"),
        (OLD.replace("[mech", "[mach"), ""),
    ):
        with pytest.raises(LdpError, match=rf"new\.toml.*{place}"):
            printed("policy", "show", str(written(tmp_path, "new.toml", text)))


def results(folder: Path, *files: str) -> list[dict[str, Any]]:
    """Return what lint finds in files of a folder, all of which perturb in a view, as results of SARIF."""
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        written(folder, name, "SELECT 1;\nCREATE VIEW v AS SELECT ldp.perturb(city, city()) FROM people")
    (run,) = json.loads(printed("lint", *(str(folder / name) for name in files), "--format", "sarif"))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["view"]
    return list(run["results"])


def test_addresses_of_files_in_sarif_are_percent_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = [*results(Path(), "models/a b#1%.sql"), *results(tmp_path, "ä.sql")]
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in found]
    assert places == ["models/a%20b%231%25.sql", f"{tmp_path.as_uri()}/%C3%A4.sql"]


def test_a_finding_is_a_result_with_its_line_and_its_remedy(tmp_path: Path) -> None:
    (result,) = results(tmp_path, "a.sql")
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 2}
    assert result["ruleId"] == "view"
    assert result["message"]["text"].startswith("view: it perturbs, ")


def test_lint_writes_sarif_and_text_and_exits_with_3(tmp_path: Path) -> None:
    file = written(tmp_path, "v.sql", "CREATE VIEW v AS SELECT ldp.perturb(city, city()) FROM people")
    log = CliRunner().invoke(app, ["lint", str(file), "--format", "sarif"])
    assert (log.exit_code, json.loads(log.stdout)["runs"][0]["results"][0]["ruleId"]) == (3, "view")
    assert CliRunner().invoke(app, ["lint", str(file), "--format", "text"]).stdout.startswith("file")
