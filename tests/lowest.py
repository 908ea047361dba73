"""Write the lowest versions that pyproject.toml allows, as constraints for pip: ``make test-lowest``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_FLOOR = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)")


def constraints(project: str) -> list[str]:
    """Return ``name==floor`` for every dependency of the package itself."""
    needed = tomllib.loads(project)["project"]["dependencies"]
    return [f"{floor[1]}=={floor[2]}" for dependency in needed if (floor := _FLOOR.match(dependency))]


if __name__ == "__main__":
    print("\n".join(constraints(Path("pyproject.toml").read_text(encoding="utf-8"))))
