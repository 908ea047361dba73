"""The commands of the page "Your warehouse" run as printed against PostgreSQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ldpsql
from tests.postgres.servers import PATH
from tests.postgres.test_postgres import psql

ibis: Any = pytest.importorskip("ibis")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "warehouse.md"


def test_the_commands_of_the_page_run_as_printed(server: str, tmp_path: Path) -> None:
    psql(server, "DROP DATABASE IF EXISTS shop")
    psql(server, "CREATE DATABASE shop")
    (block,) = re.findall(r"```text\n(ldpsql perturb \"postgresql.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "ldpsql").write_text(f'#!/bin/sh\nexec {sys.executable} -m ldpsql "$@"\n', encoding="utf-8")
    (bin_folder / "ldpsql").chmod(0o755)
    environment = {**os.environ, "PATH": os.pathsep.join([str(bin_folder), PATH]), "PGHOST": server, "PGUSER": "test"}
    cities = "(ARRAY['Lima', 'Oslo', 'Rome'])[1 + i % 3] AS city"
    prepared = f"CREATE TABLE people AS SELECT i AS id, {cities} FROM generate_series(1, 3000) AS t(i)"
    commands = [f'psql -d shop -c "{prepared}"', *block.strip().splitlines()]
    for command in commands:
        done = subprocess.run(["sh", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert [line.split("|")[0].strip() for line in done.stdout.splitlines()[2:5]] == ["Lima", "Oslo", "Rome"]
    backend = ibis.postgres.connect(host=server, user="test", database="shop")
    assert ldpsql.estimate(backend.table("answers"), column="city").diagnosis.reports == 3000
    backend.disconnect()
    psql(server, "DROP DATABASE shop")
