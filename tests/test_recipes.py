"""The page about orchestrators: the script of each section runs as it stands if its tool is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "orchestrators.md"
SCRIPTS = {
    tool.lower(): script
    for tool, script in re.findall(
        r"^## ([\w ]+)\n.*?^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
}
MODULES = {
    "a daily run that retries safely": "duckdb",
    "dagster": "dagster",
    "dlt": "dlt",
    "ibis": "ibis",
    "sqlmesh": "sqlmesh",
    "airflow": "airflow.sdk",
}


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
