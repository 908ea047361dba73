"""How many tests name something below the public modules: ``python -m tests.internals`` prints the share, and the files.

A test function names an internal if it uses a name that its file imports from a module of ldpsql that is not public, or gives
the path of one to monkeypatch. A name that a public module exports, too, should be imported from there. Tests of rooms of which
the inside is the point have files of their own, `OWN`: no other file imports these rooms.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ROOMS = (
    *(
        "dbt",
        "errors",
        "estimators",
        "functions",
        "ledger",
        "mechanisms",
        "pairs",
        "polars",
        "privic",
        "questions",
        "spark",
        "strings",
        "testing",
    ),
)
PUBLIC = frozenset({"ldpsql", *(f"ldpsql.{room}" for room in _ROOMS)})
MOST = 0.1  # of the tests: it only falls
# The files that test a room from the inside: each list only shrinks.
OWN = {
    "ldpsql.inference.solver": {"conftest.py", "test_large_domains.py", "test_one_maximum.py", "test_solver.py"},
    "ldpsql.privacy.certificate": {"test_mechanisms.py"},
    "ldpsql.channels.native": {"test_door.py", "test_kernels.py", "test_large_domains.py"},
    "ldpsql.ledger.file": {"test_ledger.py", "test_ledger_damage.py", "test_year.py"},
    "ldpsql.sql.surface": {"test_connecting.py"},
    "ldpsql.caches": {"test_caches.py"},
    "ldpsql.bulk.orders": {"test_datasets.py", "test_perturb_rows.py", "test_shuffling.py"},
}
_PATH = re.compile(r"ldpsql(\.\w+)+")


@dataclass(frozen=True)
class Test:
    """A test function: its file, its name, and the internals that it names."""

    file: str
    name: str
    internals: frozenset[str]


@cache
def tests() -> list[Test]:
    """Return all test functions."""
    return [test for file in sorted((ROOT / "tests").rglob("test_*.py")) for test in _of_file(file)]


def share() -> float:
    """Return the share of test functions that name internals."""
    found = tests()
    return sum(bool(test.internals) for test in found) / len(found)


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def exported(module: str) -> frozenset[str]:
    """Return what a module lists in ``__all__``."""
    path = ROOT / module.replace(".", "/")
    body = parsed(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).body
    lists = [node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return frozenset(name for found in lists for name in ast.literal_eval(found))


@cache
def imported(file: Path) -> dict[str, str]:
    """Return the internal module of each name that a file imports from one."""
    found = {}
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ldpsql":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                module = (
                    inner
                    if (ROOT / inner.replace(".", "/")).is_dir() or (ROOT / f"{inner.replace('.', '/')}.py").is_file()
                    else node.module
                )
                if module not in PUBLIC and not (node.module in PUBLIC and alias.name in exported(node.module)):
                    found[alias.asname or alias.name] = module
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname and _internal(alias.name)}
    return found


def strangers() -> set[tuple[str, str]]:
    """Return the rooms with test files of their own, and the other files that import them."""
    files = {file: set(imported(file).values()) for file in (ROOT / "tests").rglob("*.py")}
    return {
        (room, file.name)
        for room, own in OWN.items()
        for file, modules in files.items()
        if file.name not in own and any(module == room or module.startswith(f"{room}.") for module in modules)
    }


def _of_file(file: Path) -> Iterator[Test]:
    inner = imported(file)
    for node in parsed(file).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            texts = {str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)}
            paths = {text for text in texts if _PATH.fullmatch(text) and _internal(text.rpartition(".")[0])}
            yield Test(file.name, node.name, frozenset({inner[name] for name in names & inner.keys()} | paths))


def _internal(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "ldpsql" and module not in PUBLIC and _is_module(module)


def _is_module(module: str) -> bool:
    """Return whether a text names a module, or a class or function in one; `plugins` and `udfs` lie next to the package."""
    names = (module, module.rpartition(".")[0])
    places = [ROOT / name.replace(".", "/") for whole in names for name in (whole, whole.removeprefix("ldpsql."))]
    return any(place != ROOT / "ldpsql" and (place.is_dir() or place.with_suffix(".py").is_file()) for place in places)


if __name__ == "__main__":
    found = tests()
    for file in sorted({test.file for test in found}):
        of_file = [test for test in found if test.file == file]
        naming = [test for test in of_file if test.internals]
        if naming:
            modules = sorted({module for test in naming for module in test.internals})
            print(f"{file:32} {len(naming):3} of {len(of_file):3}  {' '.join(modules)}")
    print(f"{share():.1%} of {len(found)} test functions name internals, at most {MOST:.1%}")
    sys.exit(share() > MOST or bool(strangers()))
