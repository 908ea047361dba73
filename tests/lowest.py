"""The lowest versions that pyproject.toml allows: ``make test-lowest``.

``python -m tests.lowest`` writes them as constraints for pip. With ``--tests`` it writes which tests meet the dependencies
of which the lowest version is older than that of constraints.txt; with the others, nothing is tested that `make test` does not.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Where each dependency is used most.
MEETING = {
    "duckdb": "test_sql.py test_one_mechanism.py laws/test_records.py laws/test_roads.py",
    "polars": "test_pandas.py laws/test_records.py",
    "pyarrow": "test_pandas.py laws/test_roads.py",
    "numpy": "test_solver.py laws/test_intervals.py laws/test_roads.py",
    "scipy": "test_solver.py laws/test_intervals.py",
    "packaging": "test_registry.py",
    "pluggy": "test_registry.py",
    "pydantic": "test_registry.py test_settings.py",
    "rich": "test_cli.py",
    "sqlglot": "test_lint.py",
    "threadpoolctl": "test_threads.py",
    "tomlkit": "test_settings.py",
    "typer": "test_cli.py",
}


def floors() -> dict[str, str]:
    """Return the lowest version of every dependency of the package itself."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return dict(re.findall(r"^([\w.-]+)>=([\d.]+)", "\n".join(needed), re.MULTILINE))


def older() -> list[str]:
    """Return the dependencies of which the lowest version is older than the one that all other tests use."""
    used = dict(re.findall(r"^([\w.-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    return [name for name, floor in floors().items() if _numbers(floor) < _numbers(used[name])]


def _numbers(version: str) -> list[int]:
    return [*map(int, version.split(".")), 0, 0][:3]


if __name__ == "__main__":
    if "--tests" in sys.argv:
        print(*sorted({f"tests/{file}" for name in older() for file in MEETING[name].split()}))
    else:
        print("\n".join(f"{name}=={floor}" for name, floor in floors().items()))
