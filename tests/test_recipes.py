"""The pages of docs/guides/tools: the script of each runs as it stands if its tool is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = (Path(__file__).parents[1] / "docs" / "guides" / "tools").glob("*.md")
SCRIPTS = {
    page.stem: "".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
    for page in PAGES
}
MODULES = {"dagster": "dagster", "dlt": "dlt", "ibis": "ibis", "sqlmesh": "sqlmesh", "airflow": "airflow.sdk"}


def test_there_is_a_recipe_for_every_tool_and_it_is_python() -> None:
    assert SCRIPTS.keys() == MODULES.keys()
    for tool, script in SCRIPTS.items():
        compile(script, tool, "exec")
        assert "ldp" in script


@pytest.mark.parametrize("tool", MODULES)
def test_the_recipe_runs_where_its_tool_is_installed(tool: str, tmp_path: Path) -> None:
    pytest.importorskip(MODULES[tool], reason=f"{tool} is not installed")
    environment = {**os.environ, "DAGSTER_HOME": "", "LDPSQL_PLUGINS": "0", "DO_NOT_TRACK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPTS[tool]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert tool == "airflow" or "Lima" in done.stdout
