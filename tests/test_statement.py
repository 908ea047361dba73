"""The statement for the person who approves a collection: true figures, in words of everyday life, and what nobody stated."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ldpsql.errors import BadSettings, InvalidParameter, LdpError, LedgerMissing, PolicyMismatch, UnknownName
from ldpsql.ledger import Ledger, Policy
from ldpsql.pages.statement import certainty, factor
from tests.commands import ROOT, app, printed
from tests.spending import krr

SAID = """collector = "Example Ltd"
purpose = "Plan trains | buses"
people = "Customers"
recipient = "Planning"
retention = "A year"
frequency = "1 week"
"""
TABLE = """[tables.people]
epsilon = 2
columns = { city = "krr(epsilon=1, domain=['Lima', 'Oslo'])", age = "square_wave(epsilon=1, low=0, high=100, bins=8)" }
keep = ["region"]
unit = "person_id"
"""
LEDGER = """[ledger]
path = "people.ledger"
privacy_unit = "person_id"
epsilon_budget = 4
budget_window = "30 days"
"""
DEMO = ROOT / "examples" / "data" / "flights.toml"
WHOLE = TABLE + SAID + LEDGER
OURS = r"ldp|\breports?\b|ledger|mechanism|channel|domain|\brows?\b|perturb|\bk-?rr\b|square_wave|release|certif|estimator|toml"


def written(folder: Path, text: str) -> Path:
    path = folder / "ldpsql.toml"
    path.write_text(text, encoding="utf-8")
    return path


def statement(path: Path, form: str = ".md", *options: str) -> str:
    """Return the statement about the only table of settings."""
    made = path.parent / f"statement{form}"
    printed("statement", *options, "--settings", str(path), "-o", str(made))
    return made.read_text(encoding="utf-8")


# The fields of the public registry of deployments in July 2026: the type of each, or what it may say; * must be there.
REGISTRY: dict[str, dict[str, object]] = {
    "basic*": {
        **{f"{name}*": str for name in ("name", "description", "intended_use", "data_product_region", "publication_date")},
        "data_curators*": list,
        "data_product_type*": {"Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API"},
        "data_product_sector": {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"},
    },
    "dp_variant": {
        "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
        "data_domain": str,
        "unprotected_quantities": str,
    },
    "privacy_loss": {
        **dict.fromkeys(("privacy_unit", "privacy_unit_details", "privacy_parameters_details"), str),
        "privacy_parameters": dict,
    },
    "deployment_model": {
        **dict.fromkeys(("model_name_details", "actors", "release_type_details", "data_source_type_details"), str),
        "access_type_details": str,
        "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"},
        "release_type": {"One release", "Many releases"},
        "data_source_type": {"Static", "Dynamic"},
        "access_type": {"Interactive", "Non-interactive"},
    },
    "accounting": dict.fromkeys(("post_processing", "composition"), str),
    "implementation": dict.fromkeys(("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"), str),
    "administrative": {"sources": str, "notes": str, "registry_authors*": list},
}


def registered(path: Path) -> dict[str, dict[str, Any]]:
    """Return the deployment of the entry in the registry, after a check of its fields."""
    whole = yaml.safe_load(statement(path, ".yaml"))
    assert re.fullmatch("[a-z0-9_]+", whole.pop("url_slug"))
    deployment = whole.pop("deployment")
    assert whole == {"status": "Draft", "tier": 3}
    required = {name for name in REGISTRY if name.endswith("*")}
    assert {name.strip("*") for name in required} <= deployment.keys() <= {name.strip("*") for name in REGISTRY}
    for name, fields in REGISTRY.items():
        held = deployment[name.strip("*")]
        assert {field.strip("*") for field in fields if field.endswith("*")} <= held.keys()
        for field, value in held.items():
            expected = fields.get(field, fields.get(f"{field}*"))
            assert value in expected if isinstance(expected, set) else type(value) is expected, (name, field, value)
            assert value
    assert deployment["privacy_loss"]["privacy_parameters"].keys() <= {"epsilon", "delta", "rho"}
    date.fromisoformat(deployment["basic"]["publication_date"])
    return deployment


@pytest.mark.parametrize("settings", ["TABLE", "TABLE + SAID + LEDGER", "EVERY_ITEM", "PERMANENT", "DEMO"])
def test_the_entry_has_the_fields_of_the_public_registry_and_answers_a_reviewer(tmp_path: Path, settings: str) -> None:
    texts = {"TABLE": TABLE, "EVERY_ITEM": EVERY_ITEM, "PERMANENT": PERMANENT, "DEMO": DEMO.read_text("utf-8")}
    entry = registered(written(tmp_path, texts.get(settings, WHOLE)))
    said = {name: " ".join(map(str, part.values())) for name, part in entry.items()}
    answers = ("SHA-256 of the code", "Floating point", "Timing", "Platform", "Random bits")
    assert [answer for answer in answers if answer not in said["implementation"]] == []
    assert "Adversaries" in said["deployment_model"]
    assert said["implementation"].count("(passed)") == len(entry["dp_variant"]["data_domain"].split("; "))
    assert "FAILED" not in said["implementation"]
    if settings == "TABLE + SAID + LEDGER":
        stated = ("Example Ltd", "Plan trains", "Customers", "Planning", "1 week", "A year", "at most epsilon 4 for a person")
        assert [word for word in stated if word not in str(entry)] == []
    if settings in ("TABLE + SAID + LEDGER", "DEMO"):
        assert "Not stated" not in str(entry)


def figures(path: Path) -> dict[str, tuple[str, ...]]:
    part = statement(path).split("## How much can be found out")[1].split("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return {name: tuple(cells) for name, *cells in rows[1:]}


def open_points(path: Path) -> str:
    return statement(path).split("## To be settled before this is approved")[1].split("## ")[0]


def differing(folder: Path, old: str, new: str) -> tuple[str, str]:
    """Return verdict and term of the only change between settings."""
    (folder / "old.toml").write_text(old, encoding="utf-8")
    (change,) = json.loads(printed("policy", "diff", f"{folder}/old.toml", str(written(folder, new)), "--format", "json"))
    return change["verdict"], change["term"]


def test_the_statement_says_how_often_in_a_sentence(tmp_path: Path) -> None:
    assert "| How often | every 1 week |" in statement(written(tmp_path, TABLE + SAID))
    assert "| How often | once |" in statement(written(tmp_path, TABLE + SAID.replace("1 week", "once")))
    assert "| How often | NOT STATED |" in statement(written(tmp_path, TABLE))


def test_a_year_has_as_many_collections_as_fit_and_the_limit_of_as_many_windows_as_begin(tmp_path: Path) -> None:
    assert figures(written(tmp_path, TABLE + SAID + LEDGER)) == {
        "One collection": ("2", "7.4", "89 %"),
        "A year as planned: 53 collections": ("106", "more than a million", "more than 99.9 %"),  # on days 0, 7, ..., 364
        "The first year at the limit": ("52", "more than a million", "more than 99.9 %"),  # windows on days 0, 30, ..., 360
    }
    once = written(tmp_path, TABLE + SAID.replace("1 week", "once") + LEDGER.replace('budget_window = "30 days"\n', ""))
    assert {name: epsilon for name, (epsilon, *_) in figures(once).items()} == {
        "One collection": "2",
        "A year as planned: 1 collection": "2",
        "The first year at the limit": "4",
    }


PERMANENT = """[tables.people]
epsilon = 3
permanent = true
frequency = "1 week"
unit = "person_id"
[tables.people.columns]
city = "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome'])"
visited = "loloha(permanent=2, once=1, domain=[1, 2, 3, 4, 5, 6], symbols=4)"
age = "square_wave(epsilon=1, low=0, high=100, bins=100)"
"""


def test_permanent_answers_cost_a_year_what_different_answers_cost(tmp_path: Path) -> None:
    """Of 53 collections, three cities, four symbols and 53 ages differ at most."""
    path = written(tmp_path, PERMANENT)
    assert {name: row[0] for name, row in figures(path).items()} == {
        "One collection": "3",
        "A year as planned: 53 collections, if no answer changes": "4",
        "A year as planned: 53 collections, if all answers change every time": str(3 * 1 + 4 * 2 + 53 * 1),
    }
    said = statement(path)
    assert "the same answer reveals nothing more" in said
    assert "when an answer of a person changes" in said
    assert "a year as planned: 64" in statement(path, ".yaml")
    assert differing(tmp_path, PERMANENT, PERMANENT.replace("true", "false")) == ("weaker", "permanent reports")


def test_separate_budgets_of_groups_of_columns_add_up(tmp_path: Path) -> None:
    groups = LEDGER + "column_groups = { place = ['city'] }\n"
    assert figures(written(tmp_path, TABLE + groups))["The first year at the limit"][0] == str(2 * 52)


def test_an_epsilon_per_distance_has_its_own_figures_and_says_what_it_does_not_protect(tmp_path: Path) -> None:
    place = 'columns = { place = "planar_geometric(0.5, columns=4, rows=3)" }\nepsilon_per_distance = 1\n'
    path = written(tmp_path, f"[tables.people]\nepsilon = 1\n{place}frequency = '365 days'\n")
    assert {name: epsilon for name, (epsilon, *_) in figures(path).items()} == {
        "One collection, two answers one unit apart": "0.5",
        "A year as planned: 1 collection, two answers one unit apart": "0.5",
    }
    assert "answers that are far apart can be distinguished" in statement(path)
    loss = registered(path)["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": 0.5}
    assert "epsilon 0.5 per unit of distance" in loss["privacy_parameters_details"]


def test_an_epsilon_per_distance_alone_is_never_said_to_be_none(tmp_path: Path) -> None:
    place = 'columns = { place = "planar_geometric(3, columns=4, rows=3)" }\nepsilon_per_distance = 3\nunit = "person_id"\n'
    collected = written(tmp_path, f"[tables.people]\nepsilon = 1\n{place}frequency = '1 week'\n{LEDGER}")
    assert {name: row[0] for name, row in figures(tmp_path / "ldpsql.toml").items()} == {
        "One collection, two answers one unit apart": "3",
        "A year as planned: 53 collections, two answers one unit apart": "159",
    }  # the ledger has no budget for it, which limits nothing to 0
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", statement(collected, ".html")))
    assert facts["Epsilon per unit of distance, one collection"] == "3"
    assert (facts["Epsilon per unit of distance, first year"], "Epsilon, one collection" in facts) == ("none", False)
    assert "exceeds the limit" in open_points(collected)
    assert "year as planned" not in statement(collected, ".yaml")


def test_what_can_be_found_out_at_most_is_rounded_up() -> None:
    for epsilon in (Fraction(number, 100) for number in range(1, 690)):
        assert float(factor(epsilon).replace(",", "")) >= math.exp(epsilon)
        assert float(certainty(epsilon).removesuffix(" %")) >= 100 / (1 + math.exp(-epsilon))


EVERY_ITEM = """[tables.people]
epsilon = 20
epsilon_per_distance = 3
delta = 0.01
[tables.people.columns]
a = "krr(epsilon=1, domain=['x', 'y'], nulls='as:x')"
b = "oue(epsilon=1, domain=['x', 'y'])"
c = "square_wave(epsilon=1, low=0, high=100, bins=8, outside='clip')"
d = "planar_geometric(1, columns=4, rows=3)"
e = "pckv_grr(1, ['k', 'l'])"
f = "loloha(permanent=2, once=1, domain=['x', 'y'])"
g = "krr(1, domain=[1, 2, 3, 4, 5, 6, 7, 8, 9])"
h = "gaussian(epsilon=1, delta=0.001, low=0, high=1)"
i = "exponential(1, ['x', 'y'], distances=[[0, 1], [1, 0]])"
j = "pem(epsilon=1, max_bytes=4)"
k = "geometric(0.5, low=0, high=10)"
"""


@pytest.mark.parametrize("settings", [TABLE, TABLE + SAID + LEDGER, EVERY_ITEM, PERMANENT])
def test_it_needs_no_word_of_this_project(tmp_path: Path, settings: str) -> None:
    collected = written(tmp_path, settings)
    html = re.sub(
        r"(?s)<style>.*?</style>|<script>.*?</script>|<footer>.*?</footer>|<[^>]*>", " ", statement(collected, ".html")
    )
    for text in (statement(collected), html):
        assert not re.findall(OURS, text, re.IGNORECASE)


def test_what_nobody_stated_and_what_nothing_limits_is_to_be_settled_first(tmp_path: Path) -> None:
    bare = open_points(written(tmp_path, TABLE))
    assert (
        "do not state: who collects, what for, from whom, who receives the answers, how long they are kept, how often" in bare
    )
    assert "nothing stops further collections" in bare
    whole = open_points(written(tmp_path, TABLE + SAID.replace("1 week", "once") + LEDGER))
    assert "do not state" not in whole
    assert "nothing stops" not in whole
    beyond = open_points(written(tmp_path, TABLE + SAID + LEDGER))
    assert "exceeds the limit" in beyond
    assert "hardly protected" in beyond
    other = open_points(written(tmp_path, TABLE + LEDGER.replace('privacy_unit = "person_id"\n', "")))
    assert "counts other persons" in other


def test_answers_to_several_questions_are_a_combination_and_no_map(tmp_path: Path) -> None:
    both = "columns = { r = \"joint_krr(1, {'a': [1, 2], 'b': [1, 2, 3]})\" }"
    text = statement(written(tmp_path, f"[tables.people]\nepsilon = 1\n{both}\n"))
    assert "| r | any combination of a (2 answers), b (3 answers) |" in text


def test_items_that_pass_through_are_named_as_not_protected_and_so_is_the_name_of_the_person(tmp_path: Path) -> None:
    text = statement(written(tmp_path, TABLE.replace('["region"]', '["region", "person_id"]')))
    assert "| region | anything | not protected: handed on as it is | no limit |" in text
    assert "the lines of one person can be put together" in text


def test_what_was_spent_comes_from_the_ledger_and_another_policy_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, TABLE + LEDGER)
    assert "Nothing has been collected yet." in statement(path)
    policy = Policy(epsilon_budget=4, privacy_unit="person_id", budget_window="30 days")
    ledger = Ledger.open(tmp_path / "people.ledger", policy)
    ledger.publish(ledger.charge("people", {"city": krr("0.5")}, "reports", users=[1, 2, 2]))
    text = statement(path)
    assert "Entries of this account so far: 1, first on" in text
    assert "The person who has given most has used epsilon 1." in text
    with pytest.raises(PolicyMismatch):
        statement(written(tmp_path, TABLE + LEDGER.replace("epsilon_budget = 4", "epsilon_budget = 5")))
    with pytest.raises(LedgerMissing):
        statement(path, ".md", "--ledger", str(tmp_path / "missing.ledger"))


def test_words_of_the_settings_are_text_in_every_form(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> | *x* \\n# head"
    collected = written(tmp_path, f'{TABLE}purpose = "{hostile}"\n')
    assert "<script>alert" not in statement(collected, ".html")
    (line,) = (line for line in statement(collected).splitlines() if line.startswith("| What for"))
    assert line == r"| What for | \<script\>alert(1)\</script\> \| \*x\* \# head |"
    assert registered(collected)["basic"]["intended_use"] == hostile.replace("\\n", "\n")
    named = written(tmp_path, TABLE.replace("tables.people", 'tables."<img src=x> *x*"'))
    assert statement(named).startswith(r"# What is collected: \<img src=x\> \*x\*")
    assert "<img" not in statement(named, ".html")


@pytest.mark.parametrize(
    ("settings", "table", "error"),
    [
        ("", None, InvalidParameter),
        (TABLE + TABLE.replace("people", "others"), None, InvalidParameter),
        (TABLE, "nobody", UnknownName),
        (TABLE + 'frequency = "often"\n', None, BadSettings),
        (TABLE.replace("epsilon = 2", "epsilon = 1"), None, LdpError),
        (TABLE + "purpose = 7\n", None, BadSettings),
    ],
)
def test_settings_that_say_nothing_certain_are_refused(
    tmp_path: Path, settings: str, table: str | None, error: type[LdpError]
) -> None:
    with pytest.raises(error):
        statement(written(tmp_path, settings), ".md", *([table] if table else []))


def test_the_command_writes_each_form_and_refuses_others(tmp_path: Path) -> None:
    path, run = written(tmp_path, TABLE + SAID), CliRunner().invoke
    assert run(app, ["statement", "--settings", str(path)]).stdout.startswith("# What is collected: people")
    for name, start in (("s.html", "<!doctype html>"), ("s.md", "# What"), ("s.yaml", "url_slug: ")):
        done = run(app, ["statement", "people", "--settings", str(path), "-o", str(tmp_path / name)])
        assert (done.exit_code, (tmp_path / name).read_text(encoding="utf-8").startswith(start)) == (0, True)
    refused = run(app, ["statement", "--settings", str(path), "-o", str(tmp_path / "s.txt")])
    assert isinstance(refused.exception, InvalidParameter)
    assert not (tmp_path / "s.txt").exists()


@pytest.mark.parametrize(
    ("old", "new", "verdict", "term"),
    [
        ("1 week", "1 day", "weaker", "frequency"),
        ("1 week", "once", "stronger", "frequency"),
        ("1 week", "7 days", "changed", "frequency"),
        ('frequency = "1 week"\n', "", "weaker", "frequency"),
        ("Planning", "Sales", "weaker", "recipient"),
        ('recipient = "Planning"\n', "", "weaker", "recipient"),
    ],
)
def test_a_change_of_who_receives_it_or_how_often_is_compared(
    tmp_path: Path, old: str, new: str, verdict: str, term: str
) -> None:
    assert differing(tmp_path, TABLE + SAID, (TABLE + SAID).replace(old, new)) == (verdict, term)


def test_the_packages_whose_code_may_run_are_compared(tmp_path: Path) -> None:
    texts = {name: f"[plugins]\nallow = {name}\n{TABLE}" for name in ("['coin']", "['coin', 'other']")} | {"none": TABLE}

    def verdict(old: str, new: str) -> str:
        return differing(tmp_path, texts[old], texts[new])[0]

    assert verdict("['coin']", "['coin', 'other']") == "weaker"
    assert verdict("['coin']", "none") == "weaker"  # then the user's own file decides alone
    assert verdict("none", "['coin']") == "weaker"  # the first list
