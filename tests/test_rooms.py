"""The structure of the code: the rooms, and what plugins import."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import ldpsql
from ldpsql import names
from ldpsql.functions import registry
from tests import internals

ROOT = Path(__file__).parents[1]
NAMESPACES = {"ldpsql.mechanisms", "ldpsql.estimators", "ldpsql.questions", "ldpsql.functions"}
OUTER = {"ldpsql.pairs", "ldpsql.strings", "ldpsql.privic"}  # rooms whose plugins leave with them, see test_outer_rooms.py
PLUGINS = sorted((ROOT / "plugins").rglob("*.py"))
FUNCTIONS = sorted((ROOT / "udfs").rglob("*.py"))
ABOVE = {"cli", "dbt", "pages", "plugins", "polars", "spark", "testing", "udfs"}  # what no function of SQL is made of


def imports(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_built_in_plugins_import_only_the_public_namespaces() -> None:
    for file in PLUGINS:
        ours = {module for module in imports(file) if module.split(".")[0] in ("ldpsql", "plugins", "udfs")}
        assert ours <= NAMESPACES | OUTER, (file, ours - NAMESPACES)


@pytest.mark.parametrize("file", FUNCTIONS, ids=lambda file: file.stem)
def test_built_in_functions_import_what_is_public_from_there_and_the_rest_from_rooms_below(file: Path) -> None:
    """SQL is an outermost room, as the command line is; the functions of PRIVIC leave together with its room."""
    public = [vars(importlib.import_module(module)) for module in NAMESPACES]
    for module in (module for module in imports(file) - NAMESPACES if module.split(".")[0] in ("ldpsql", "plugins", "udfs")):
        package, _, room = module.partition(".")
        assert package == "ldpsql", module
        assert room.partition(".")[0] not in ABOVE | {""}, module
    nodes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    for module, imported in ((node.module or "", [alias.name for alias in node.names]) for node in nodes):
        if module.startswith("ldpsql.") and module not in NAMESPACES:
            own = {name: getattr(importlib.import_module(module), name) for name in imported}
            assert not [name for name in imported if name.startswith("_")], module
            assert not [name for name in imported if any(one.get(name) is own[name] for one in public)], module


def test_what_a_function_of_sql_needs_is_at_most_forty_names_each_explained_in_the_guide() -> None:
    offered = importlib.import_module("ldpsql.functions").__all__
    guide = (ROOT / "docs" / "guides" / "plugins.md").read_text(encoding="utf-8")
    section = guide.split("## Write a SQL function")[1].split("\n## ")[0]
    explained = {name for line in section.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    assert len(offered) <= 40
    assert explained == set(offered)


def test_the_example_plugin_imports_all_public_namespaces_and_nothing_else_of_ldpsql() -> None:
    ours = {module for module in imports(ROOT / "examples/ldpsql-coin/ldpsql_coin.py") if module.startswith("ldpsql")}
    assert ours == NAMESPACES


def constants(file: Path) -> set[str]:
    """Return the texts in a file, without its docstrings."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {str(node.value) for node in texts if node not in docstrings}


# The demonstration shows what a user would write; lists of what a module exports name functions, not plugins.
MAY_NAME = {
    "names.py",
    "pages/demo.py",
    "estimators/__init__.py",
    "estimators/base.py",
    "inference/operators/__init__.py",
}


ENGLISH = {"row"}  # also a word: the unit of privacy, the heading of a table


def test_the_core_names_what_plugins_offer_in_one_place_and_all_of_it_is_offered() -> None:
    offered = {name for _, functions in registry().functions() for function in functions for name in function.names()}
    inner = re.compile(rf"\b(ldp\.)?({'|'.join(name for name in offered if name.startswith('__ldp_'))})\b|\bldp\._[a-z]")
    plugins = {*registry().mechanisms, *registry().estimators} - ENGLISH
    for file in (ROOT / "ldpsql").rglob("*.py"):
        if file.relative_to(ROOT / "ldpsql").as_posix() not in MAY_NAME:
            assert not [text for text in constants(file) if text in plugins or inner.search(text)], file
    listed = {name.removeprefix("ldp.") for key, name in vars(names).items() if key.isupper()}
    assert listed <= offered | plugins | ENGLISH


@pytest.mark.parametrize("name", sorted(NAMESPACES))
def test_public_namespaces_list_what_they_offer(name: str) -> None:
    namespace = importlib.import_module(name)
    assert namespace.__all__ == sorted(set(namespace.__all__), key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert all(hasattr(namespace, public) for public in namespace.__all__)
    assert namespace.API_VERSION == 1


def test_the_root_has_at_most_ten_files() -> None:
    assert len(list((ROOT / "ldpsql").glob("*.py"))) <= 10


def test_no_room_takes_the_name_of_a_public_function() -> None:
    assert not {room.name for room in (ROOT / "ldpsql").iterdir()} & set(ldpsql.__all__)


def test_every_room_says_what_it_is_for() -> None:
    for room in (ROOT / "ldpsql").glob("*/__init__.py"):
        if room.parent.name not in ("plugins", "udfs"):
            assert ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))), room


@pytest.mark.parametrize("room", ["bulk"])
def test_a_room_of_many_files_names_each_in_its_docstring(room: str) -> None:
    folder = ROOT / "ldpsql" / room
    described = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    folders = {f"{file.parent.name}/" for file in folder.glob("*/__init__.py")}
    assert {
        name for name in files | folders if not re.search(rf"(^ {{4}}|`){name}(\b|(?<=/))", described, re.MULTILINE)
    } == set()


def test_every_room_is_in_the_order_that_lint_checks() -> None:
    order = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[tool.importlinter]")[1]
    for room in (ROOT / "ldpsql").glob("*/__init__.py"):
        if room.parent.name not in ("plugins", "udfs"):
            assert f"ldpsql.{room.parent.name}" in order, room.parent.name


def test_random_data_of_the_tests_can_be_drawn_again() -> None:
    unseeded = "default_rng" + "()"
    assert not [file.name for file in (ROOT / "tests").rglob("*.py") if unseeded in file.read_text(encoding="utf-8")]


def test_few_tests_name_something_below_the_public_modules() -> None:
    assert internals.share() <= internals.MOST, "python -m tests.internals lists them"


def test_rooms_with_tests_of_their_own_are_tested_from_the_inside_there_only() -> None:
    assert internals.strangers() == set()
