"""Connections: macros from a file in the user's cache folder, functions that are imported when they are called."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import pytest

import ldpsql
from ldpsql.functions import Registry
from ldpsql.sql import surface

LISTED = """SELECT * EXCLUDE (database_name, database_oid, function_oid) FROM duckdb_functions()
            WHERE database_name = 'ldp' AND function_name NOT IN ('_catalog', '_guard') ORDER BY ALL"""
DRAWN = "SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b'])), ldp.ibu(x, ldp.krr(1, ['a', 'b'])) FROM (SELECT 'a' AS x)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the files, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ldpsql"


def functions(**options: Any) -> list[tuple[Any, ...]]:
    with ldpsql.connect(**options) as con:
        assert len(con.execute(DRAWN).fetchall()) == 1
        return [tuple(map(in_order, row)) for row in con.execute(LISTED).fetchall()]


def in_order(field: Any) -> Any:
    """Sort the columns of EXCLUDE, which DuckDB prints in any order."""
    if not isinstance(field, str):
        return field
    return re.sub(r"EXCLUDE \(([^)]*)\)", lambda match: str(sorted(match[1].split(", "))), field)


def test_copied_macros_are_those_that_the_statements_create(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, copied = functions(), functions()
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr("ldpsql.system.is_safe", lambda _: False)
    assert made == copied == functions()
    assert len(copied) > 100


def test_an_instance_that_may_not_read_files_runs_the_statements() -> None:
    assert functions(config={"enable_external_access": False}) == functions()


def test_files_are_the_users_alone_and_contain_nothing_of_the_database_or_the_settings(folder: Path, tmp_path: Path) -> None:
    with ldpsql.connect(str(tmp_path / "warehouse.duckdb"), mechanisms={"secretname": "krr(1, ['secretvalue', 'b'])"}) as con:
        con.execute("CREATE TABLE people AS SELECT 'secretvalue' AS city; CREATE MACRO secretname() AS 'secretvalue'")
        ldpsql.attach(con)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.iterdir())) == 2
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"secret" not in file.read_bytes()


def fresh(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has imported nothing."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


def damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4096])


def changed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def foreign(file: Path) -> None:
    file.write_text("not ours")


def writable(file: Path) -> None:
    file.chmod(0o666)


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files, which a test copies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache := tmp_path_factory.mktemp("made")))
        surface._make("ldp")
    return cache / "ldpsql"


@pytest.mark.parametrize("suffix", ["json", "duckdb"])
def test_a_file_that_is_damaged_or_not_private_is_not_believed_and_made_again(folder: Path, made: Path, suffix: str) -> None:
    for harm in (damaged, changed, foreign, writable, linked, Path.unlink):
        shutil.copytree(made, folder)
        assert surface._saved(surface.state("ldp")) is not None
        (file,) = folder.glob(f"*.{suffix}")
        harm(file)
        assert surface._saved(surface.state("ldp")) is None, harm
        if harm is linked:
            assert len(functions()) > 100
            again = surface._saved(surface.state("ldp"))
            assert again is not None
            assert not again.macros.is_symlink()
        shutil.rmtree(folder)


def test_a_list_that_a_user_did_not_write_is_not_believed(folder: Path, made: Path) -> None:
    shutil.copytree(made, folder)
    (file,) = folder.glob("*.json")
    listed = json.loads(file.read_text().partition("\n")[2])
    for text in ("[]", "{}", json.dumps({**listed, "macros": "../x"}), '{"macros": 7}'):
        file.write_text(f"{sha256(text.encode()).hexdigest()}\n{text}")
        assert surface._saved(surface.state("ldp")) is None


def test_a_folder_that_others_may_use_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    for mode in (0o770, 0o705):
        folder.chmod(mode)
        assert len(functions()) > 100
        assert not list(folder.iterdir())


def test_a_folder_below_one_that_anybody_may_change_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o777)
    assert len(functions()) > 100
    assert not list(folder.iterdir())
    folder.parent.chmod(0o1777)  # with the sticky bit, only the owner can replace the folder, as in /tmp
    functions()
    assert len(list(folder.iterdir())) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_is_not_used(folder: Path, made: Path) -> None:
    shutil.copytree(made, folder)
    for given in (folder, *folder.iterdir()):
        assert surface._saved(surface.state("ldp")) is not None
        os.chown(given, 12345, 12345)
        assert surface._saved(surface.state("ldp")) is None, given
        os.chown(given, 0, 0)


def test_a_name_of_the_catalog_has_a_file_of_its_own(folder: Path) -> None:
    for name in ("ldp", 'odd "name"'):
        with duckdb.connect() as con:
            ldpsql.attach(con, name=name)
            catalog = '"' + name.replace('"', '""') + '"'
            assert con.execute(DRAWN.replace("ldp.", f"{catalog}.")).fetchall()
    assert len(list(folder.glob("*.duckdb"))) == 2


def test_old_files_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "_KEPT", 1)
    (folder / "making-0").mkdir(parents=True)
    os.chmod(folder, 0o700)
    os.utime(folder / "making-0", (0, 0))
    for name in ("a", "b"):
        surface._make(name)
    assert len(list(folder.iterdir())) == 2
    assert surface._saved(surface.state("b")) is not None


def test_functions_of_other_plugins_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = surface.state("ldp")
    loaded = Registry.load()
    monkeypatch.setattr(surface, "registered", lambda: loaded)
    assert surface.state("ldp") == shipped
    loaded.mechanisms["mine"] = loaded.mechanisms["krr"]
    loaded.constructors["mine"] = loaded.constructors["krr"].replace("ldp.krr", "ldp.mine")
    assert surface.state("ldp") != shipped
    with ldpsql.connect() as con:
        assert con.execute("SELECT (ldp.mine(1, ['a', 'b'])).epsilon").fetchall() == [("1",)]
    monkeypatch.undo()
    with ldpsql.connect() as con, pytest.raises(duckdb.Error, match="mine"):
        con.execute("SELECT ldp.mine(1, ['a', 'b'])")


def test_attaching_again_renews_macros_and_keeps_the_users() -> None:
    with ldpsql.connect() as con:
        con.execute("CREATE MACRO ldp.city() AS ldp.krr(1, ['a', 'b']); CREATE OR REPLACE MACRO ldp.perturb(x, m) AS x")
        con.execute("DROP MACRO TABLE ldp.mechanisms; SELECT ldp.declare('item', ldp.city())").fetchall()
        ldpsql.attach(con)
        con.execute("CREATE TABLE r AS SELECT ldp.perturb('a', ldp.declared('item')) AS x FROM range(100)")
        assert con.execute("SELECT count(DISTINCT x) FROM r").fetchall() == [(2,)]
        assert con.execute("SELECT count(*) > 10 FROM ldp.mechanisms()").fetchall() == [(True,)]


@pytest.mark.slow
def test_several_processes_make_the_files_at_the_same_time(folder: Path) -> None:
    program = f"import ldpsql; assert ldpsql.connect().execute({DRAWN!r}).fetchall()"
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0] * 3
    assert surface._saved(surface.state("ldp")) is not None
    assert not list(folder.glob("making-*"))


def test_to_connect_loads_only_duckdb_and_numpy_and_draws_of_a_fork_and_of_threads_neither_scipy_nor_a_parser_of_sql(
    folder: Path, made: Path
) -> None:
    shutil.copytree(made, folder)
    slow = ["pyarrow", "polars", "pandas", "sqlglot", "typer", "pydantic", "scipy", "rich"]
    program = f"""
import os, sys, threading, ldpsql
con = ldpsql.connect()
assert not [module for module in {slow} if module in sys.modules]
if not (child := os.fork()):
    os._exit(len(con.execute({DRAWN!r}).fetchall()) - 1)
assert os.waitpid(child, 0)[1] == 0
found = []
work = lambda: found.append(con.cursor().execute({DRAWN!r}).fetchall())
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 4, found
assert "scipy" not in sys.modules and "sqlglot" not in sys.modules
"""
    process = fresh(program)
    assert process.returncode == 0, process.stderr
