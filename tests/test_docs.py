"""The documentation is true: its code runs, its tables come from the registry, every public name is explained."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
from functools import cache, cached_property
from itertools import takewhile
from math import isfinite
from pathlib import Path
from types import FunctionType

import pytest
from duckdb import DuckDBPyConnection, StatementType

import ldpsql
from ldpsql.functions import registry
from ldpsql.ledger.review import read_settings, terms
from ldpsql.registry import hookspecs
from ldpsql.settings import sections
from tests import reference
from tests.commands import run
from tests.reference import REFERENCE, pages

ROOT = REFERENCE.parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PLUGIN_GUIDE = (ROOT / "docs" / "guides" / "plugins.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@cache
def modules() -> list[str]:
    names = []
    for package in ("ldpsql", "ldpsql.plugins", "ldpsql.udfs"):
        folder = importlib.import_module(package)
        names += [m.name for m in pkgutil.walk_packages([folder.__path__[0]], f"{package}.") if not m.name.endswith("__main__")]
    return sorted(set(names))


def test_the_reference_comes_from_the_registry() -> None:
    for name, text in pages().items():
        assert (REFERENCE / name).read_text(encoding="utf-8") == text, f"{name}: run: make docs"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'"{page.relative_to(ROOT / "docs")}"' in navigation, page


def anchors(page: Path) -> set[str]:
    """Return the names that links into a page can use: its headings, as the site and GitHub write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_pages_leads_to_a_page_and_a_heading() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
            linked = page.parent / target if target else page
            assert linked.exists(), (page, target, anchor)
            assert not anchor or anchor in anchors(linked), (page, target, anchor)


def run_in_order(text: str, name: str) -> int:
    """Run the Python and SQL of a page; every SELECT gives rows. Return how many there were."""
    names: dict[str, object] = {}
    selects = 0
    for language, body in re.findall(r"^```(python|sql)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(body, name, "exec"), names)
            continue
        con = names["con"]
        assert isinstance(con, DuckDBPyConnection)
        for statement in con.extract_statements(body):
            result = con.sql(statement)
            if result is not None and statement.type == StatementType.SELECT:
                columns = result.columns
                rows = result.fetchall()
                assert len(rows) > 0, statement.query
                assert not any(lacks_an_error(dict(zip(columns, row, strict=True))) for row in rows), statement.query
                selects += 1
    return selects


def lacks_an_error(cell: object) -> bool:
    """Return whether a cell is, or contains, an estimate whose error is infinite or NULL."""
    if isinstance(cell, dict):
        nobody = cell.get("frequency") is not None and cell["low"] <= 0  # a key that nobody seems to have has no mean
        errors = [
            error for name, error in cell.items() if str(name).endswith("_error") and not (nobody and name == "mean_error")
        ]
        return any(error is None or not isfinite(error) for error in errors) or any(map(lacks_an_error, cell.values()))
    return isinstance(cell, list) and any(map(lacks_an_error, cell))


def test_an_error_that_is_missing_is_found() -> None:
    row = {"value": 1, "estimate": 0.5, "std_error": 0.1}
    assert not lacks_an_error([row, {"d": {"mean_error": 0.1}}])
    for error in (None, float("inf"), float("nan")):
        assert lacks_an_error({"x": [row, row | {"std_error": error}]})
        key = {"frequency": 0.2, "frequency_error": 0.1, "low": 0.1, "high": 0.3, "mean": 1.0, "mean_error": error}
        assert lacks_an_error(key)
        assert not lacks_an_error(key | {"low": 0.0})


def test_the_python_and_sql_of_the_readme_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_in_order(TEXT, "README.md") >= 2
    assert "ibu of 2000 reports under krr: usable, certified" in capsys.readouterr().out


PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if page.stem != "orchestrators" and page.parent != REFERENCE  # tests/test_recipes.py runs it; the reference is generated
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_and_sql_of_every_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda words, check: run(*words[3:]).check_returncode())
    run_in_order(page.read_text(encoding="utf-8"), page.name)
    assert not re.search(r"unknown$|\binf\b|\+- nan", capsys.readouterr().out, re.MULTILINE)


SHOWN = [block for text in (TEXT, *(page.read_text(encoding="utf-8") for page in PAGES)) for block in blocks("console", text)]
COMMANDS = re.findall(r"^\$ (.*)$", "\n".join(SHOWN), re.MULTILINE)


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_the_commands_of_the_readme_and_of_the_pages_run(command: str, tmp_path: Path) -> None:
    assert len(COMMANDS) >= 12
    words = shlex.split(command)
    variables = dict(word.split("=", 1) for word in takewhile(lambda word: word != "ldpsql", words))
    done = run(*words[len(variables) + 1 :], cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_plugin_shown_in_the_guide_is_the_one_in_the_examples() -> None:
    coin = ROOT / "examples" / "ldpsql-coin"
    there = (coin / "ldpsql_coin.py").read_text(encoding="utf-8") + (coin / "pyproject.toml").read_text(encoding="utf-8")
    _, project = PLUGIN_GUIDE.split("## Start a project")  # before it, the loose file
    printed = [block for block in blocks("text", project) if "coin" in block.lower()]
    assert len(printed) == 4
    for line in "".join(printed).splitlines():
        assert line in there.splitlines(), line


def test_the_files_shown_in_the_guide_on_dbt_are_those_of_the_example() -> None:
    example = ROOT / "examples" / "dbt"
    files = [path.read_text(encoding="utf-8") for path in example.rglob("*") if path.suffix in {".sql", ".toml", ".yml"}]
    guide = (ROOT / "docs" / "guides" / "dbt.md").read_text(encoding="utf-8")
    printed = [block for language in ("jinja", "yaml", "toml") for block in blocks(language, guide)]
    assert len(printed) == 5
    for block in printed:
        lines = block.splitlines()
        assert any(set(lines) <= set(file.splitlines()) for file in files), block


def test_the_targets_that_the_documents_name_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"`?make ([a-z-]+)", (ROOT / document).read_text(encoding="utf-8")):
            assert target == "and" or re.search(rf"^{target}:", makefile, re.MULTILINE), (document, target)


ROOMS = sorted({".".join(name.split(".")[:2]) for name in modules()} - {"ldpsql.dbt"})  # an extra with its own environment


@pytest.mark.parametrize("room", ROOMS)
def test_the_examples_in_the_code_are_right(room: str) -> None:
    for name in modules():
        if name == room or name.startswith(f"{room}."):
            module = importlib.import_module(name)
            assert module.__doc__, name
            assert doctest.testmod(module).failed == 0, name


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_method_has_a_docstring_of_its_own_or_from_a_base_class(room: str) -> None:
    kinds = (FunctionType, property, cached_property, classmethod, staticmethod)
    inside = [importlib.import_module(name) for name in modules() if name == room or name.startswith(f"{room}.")]
    classes = {cls for module in inside for cls in vars(module).values() if isinstance(cls, type)}
    for cls in (cls for cls in classes if cls.__module__.startswith(room) and not cls.__name__.startswith("_")):
        fields = getattr(cls, "__dataclass_fields__", {})  # one may have a function as its default
        for name, own in vars(cls).items():
            if isinstance(own, kinds) and not name.startswith("_") and name not in fields:
                assert any(getattr(vars(base).get(name), "__doc__", "") for base in cls.__mro__), (cls, name)


def test_every_mechanism_and_estimator_shows_an_example() -> None:
    for spec in (*registry().mechanisms.values(), *registry().estimators.values()):
        assert ">>>" in inspect.getdoc(spec), spec.name  # type: ignore[operator]
        assert all(parameter.description for parameter in spec.parameters()), spec.name
        assert spec.summary(), spec.name


def test_the_public_face_is_what_it_says() -> None:
    assert sorted(ldpsql.__all__) == ldpsql.__all__
    assert set(ldpsql.__all__) <= ldpsql._homes().keys()
    for name in ldpsql.__all__:
        assert inspect.getdoc(getattr(ldpsql, name)), name
    with pytest.raises(AttributeError, match="no attribute 'kr'"):
        _ = ldpsql.kr


def test_every_error_has_a_code_of_its_own_and_a_sentence() -> None:
    classes = reference.error_classes()
    assert len({cls.code for cls in classes}) == len(classes)


def test_every_error_has_a_meaning_a_cause_and_a_remedy_in_sentences() -> None:
    for error in reference.error_classes():
        assert "__doc__" in vars(error), error
        for part in reference.explained(error):
            assert part.endswith("."), part
            assert part[0].isupper() or part.startswith(("`", "ldpsql")), part


def test_every_variable_of_the_environment_and_every_key_of_the_settings_is_in_the_reference() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(ldpsql.__file__).parent.rglob("*.py"))
    assert set(re.findall(r"\b(?:LDPSQL|OPENLINEAGE)_[A-Z_]+\b", source)) == set(reference.VARIABLES)
    assert "|  |" not in pages()["settings.md"]  # a key without a meaning


def test_the_example_of_the_settings_is_read_and_has_every_section(tmp_path: Path) -> None:
    path = tmp_path / "ldpsql.toml"
    path.write_text(reference.SETTINGS_EXAMPLE, encoding="utf-8")
    assert read_settings(path).keys() == sections._File.model_fields.keys()
    assert {term.term for term in terms(path)} >= {"unit", "city, mechanism", "age, epsilon", "budget_window"}


def test_codes_of_the_command_line_are_in_the_reference() -> None:
    source = (ROOT / "ldpsql" / "cli" / "failures.py").read_text(encoding="utf-8")
    codes = set(re.findall(r"LDP\d{3}", source)) - {error.code for error in reference.error_classes()}
    assert codes == set(reference.COMMAND_LINE_ERRORS)


def test_every_hook_is_documented() -> None:
    hooks = [value for name, value in vars(hookspecs).items() if name.startswith("ldpsql_")]
    assert len(hooks) >= 3
    assert all(inspect.getdoc(hook) for hook in hooks)
