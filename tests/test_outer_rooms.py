"""Without any one of the outer rooms, the rest perturbs and estimates, and passes the laws of mechanisms and estimators."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTER = {
    "Spark": ["ldpsql/spark"],
    "dbt": ["ldpsql/dbt"],
    "clients": ["ldpsql/clients"],
    "exported SQL": ["ldpsql/bulk/views.py"],
    "pages": ["ldpsql/pages"],
    "key-value": ["ldpsql/pairs", "ldpsql/bulk/pairs.py", "plugins/mechanisms/pckv.py", "plugins/questions/key_value.py"],
    "strings": [
        "ldpsql/strings",
        "ldpsql/bulk/strings.py",
        "plugins/mechanisms/pem.py",
        "plugins/questions/heavy_hitters.py",
    ],
    "PRIVIC": ["ldpsql/privic", "udfs/privic.py", "udfs/privic.sql"],
    "sign-off": ["ldpsql/ledger/review.py", "ldpsql/pages/statement.py"],
}
LAWS = """
import duckdb, ldpsql, ldpsql.cli.app
from ldpsql.functions import registry
from ldpsql.testing import check_estimator, check_mechanism

assert [plugin.reason for plugin in registry().plugins if plugin.built_in and plugin.status != "ok"] == []
for mechanism in ("krr(1, ['a', 'b', 'c'])", "oue(1, [1, 2, 3])", "olh(1, [1, 2, 3])", "square_wave(1, 0, 8, bins := 8)"):
    check_mechanism(registry().mechanism(mechanism))
for name in ("ibu", "inv"):
    check_estimator(registry().estimators[name])
with ldpsql.connect() as con:
    con.execute("CREATE TABLE people AS SELECT ['a', 'b', 'c'][1 + i % 3] AS city, i % 2 AS region FROM range(3000) AS t(i)")
    ldpsql.perturb_table(con, "people", "reports", {"city": "krr(1, ['a', 'b', 'c'])"}, keep=["region"])
    assert len(con.execute("FROM ldp.estimate(reports, city, by := region)").fetchall()) == 6
print("held")
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", OUTER)
def test_the_rest_passes_its_laws_without(room: str, tmp_path: Path) -> None:
    for folder in ("ldpsql", "plugins", "udfs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (tmp_path / name for name in OUTER[room]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "LDPSQL_PLUGINS": "0"}
    command = [sys.executable, "-W", "ignore", "-c", f"import ldpsql; assert {str(tmp_path)!r} in ldpsql.__file__{LAWS}"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "held\n", done.stderr
