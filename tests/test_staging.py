"""What is replaced and what is left of a run: nothing of others' is deleted, and a broken disk or state is refused in words."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from ldpsql import Charge, perturb_copy
from ldpsql.errors import DestinationRefused, UnfinishedRun
from ldpsql.ledger import Ledger, Policy

CITY = "krr(epsilon=1, domain=['Lima', 'Oslo'])"
ROWS = 1_000


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBPyConnection]:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE people AS SELECT i % 2 AS day, ['Lima', 'Oslo'][1 + i % 2] AS city FROM range({ROWS}) t(i)")
        yield con


def rows(db: DuckDBPyConnection, files: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM '{files}'").fetchall()[0][0])


@pytest.mark.parametrize(
    "name", ["notes.txt", "people.parquet", "deeper/part-00000.parquet", ".hidden", "day=1/data_0.parquet", "part-00000.csv"]
)
def test_a_folder_with_the_files_of_others_is_not_replaced(db: DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    perturb_copy(db, "people", "out", {"city": CITY}, keep=["day"], partition_by=["day"])
    mine = Path("out", name)
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    ledger = Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget="2", privacy_unit="row"))
    with pytest.raises(DestinationRefused, match="did not write"):
        perturb_copy(db, "people", "out", {"city": CITY}, replace=True, charge=Charge(ledger, "people"))
    assert mine.read_text() == "mine"
    assert ledger.history() == []
    assert not (tmp_path / ".out.ldpsql").exists()
    mine.unlink()
    if name.startswith("deeper"):
        mine.parent.rmdir()
    perturb_copy(db, "people", "out", {"city": CITY}, replace=True)
    assert rows(db, "out/*.parquet") == ROWS


def test_a_file_that_comes_while_a_run_draws_is_not_deleted(db: DuckDBPyConnection) -> None:
    perturb_copy(db, "people", "out", {"city": CITY})

    def progress(done: int, total: int | None) -> None:
        Path("out", "mine.txt").write_text("mine")

    with pytest.raises(DestinationRefused):
        perturb_copy(db, "people", "out", {"city": CITY}, replace=True, progress=progress)
    assert Path("out", "mine.txt").read_text() == "mine"
    Path("out", "mine.txt").unlink()
    run = perturb_copy(db, "people", "out", {"city": CITY}, replace=True, resume=True)
    assert (run.rows, run.resumed) == (0, 1)  # drawn before, published now


@pytest.mark.parametrize("name", ["mine.txt", "part-1", "drawn-00000.parquet"])
def test_the_files_of_others_in_the_staging_folder_stay(db: DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    staged = tmp_path / ".out.ldpsql"
    staged.mkdir()
    (staged / name).write_text("mine")
    for replace in (False, True):
        with pytest.raises(DestinationRefused, match="did not write"):
            perturb_copy(db, "people", "out", {"city": CITY}, replace=replace)
    assert (staged / name).read_text() == "mine"


def test_a_link_in_the_place_of_the_staging_folder_is_not_followed(db: DuckDBPyConnection, tmp_path: Path) -> None:
    Path("mine").mkdir()
    Path("mine", "state.json").write_text("mine")
    for target in ("mine", "nowhere", "mine/state.json"):
        (tmp_path / ".out.ldpsql").symlink_to(tmp_path / target)
        with pytest.raises(DestinationRefused, match="link"):
            perturb_copy(db, "people", "out", {"city": CITY}, replace=True)
        (tmp_path / ".out.ldpsql").unlink()
    assert Path("mine", "state.json").read_text() == "mine"
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("state", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"task": 1}', None])
def test_a_state_that_cannot_be_read_is_refused_and_can_be_replaced(
    db: DuckDBPyConnection, tmp_path: Path, state: bytes | None
) -> None:
    staged = tmp_path / ".out.ldpsql"
    (staged / "part-00000").mkdir(parents=True)
    if state is None:
        (staged / "state.json").mkdir()
    else:
        (staged / "state.json").write_bytes(state)
    for resume in (False, True):
        with pytest.raises(UnfinishedRun, match="replace"):
            perturb_copy(db, "people", "out", {"city": CITY}, resume=resume)
    perturb_copy(db, "people", "out", {"city": CITY}, replace=True)
    assert rows(db, "out/*.parquet") == ROWS
    assert not staged.exists()


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("at", range(12))
def test_a_disk_that_fails_is_refused_in_words_and_publishes_nothing_or_all(
    db: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, at: int, call: str
) -> None:
    calls, real = [0], getattr(os, call)

    def failing(*arguments: object, **options: object) -> object:
        calls[0] += 1
        if calls[0] == at + 1:
            raise OSError(errno.EIO, "Input/output error", "city=Canary")
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        try:
            perturb_copy(db, "people", "out", {"city": CITY})
        except (DestinationRefused, UnfinishedRun) as error:
            refusal: Exception | None = error
        else:
            refusal = None
    assert (refusal is None) == (calls[0] <= at), "an error of the disk was not reported"
    assert refusal is None or "Canary" not in "".join(traceback.format_exception(refusal))
    assert not Path("out").exists() or rows(db, "out/*.parquet") == ROWS
    perturb_copy(db, "people", "out", {"city": CITY}, resume=True, replace=True)
    assert rows(db, "out/*.parquet") == ROWS


def test_what_a_killed_run_left_half_written_is_removed(db: DuckDBPyConnection, tmp_path: Path) -> None:
    left = (tmp_path / ".out.ldpsql") / "drawn-00000.tmp"
    left.mkdir(parents=True)
    (left / "part-00000").write_bytes(b"half")
    perturb_copy(db, "people", "out", {"city": CITY})
    assert rows(db, "out/*.parquet") == ROWS
    assert sorted(os.listdir()) == ["out"]


WITHOUT_FCNTL = """
import os, sys, types
import duckdb, fcntl, numpy, polars, pyarrow, pydantic, scipy.optimize, typer
import ldpsql.errors, ldpsql.hooks

def locking(handle, mode, length):
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
sys.modules["fcntl"], sys.platform, os.O_TEMPORARY = None, "win32", 0
import ldpsql.system
sys.platform = "linux"
import ldpsql
from ldpsql.bulk.staging import Staging, staging_folder
from pathlib import Path

con = duckdb.connect()
con.execute("CREATE TABLE people AS SELECT ['Lima', 'Oslo'][1 + i % 2] AS city FROM range(100) t(i)")
ldpsql.perturb_copy(con, "people", "out.parquet", {"city": "krr(epsilon=1, domain=['Lima', 'Oslo'])"})
assert con.execute("SELECT count(*) FROM 'out.parquet'").fetchall() == [(100,)]
assert not staging_folder(Path("out.parquet")).exists()
with Staging.at(Path("out.parquet"), ".parquet"):
    try:
        ldpsql.perturb_copy(con, "people", "out.parquet", {"city": "krr(epsilon=1, domain=['Lima', 'Oslo'])"}, replace=True)
    except ldpsql.errors.UnfinishedRun:
        print("refused")
"""


@pytest.mark.slow
def test_without_flock_a_file_next_to_the_folder_is_locked(tmp_path: Path) -> None:
    script = [sys.executable, "-c", WITHOUT_FCNTL]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"out.parquet", ".out.parquet.ldpsql.lock"}  # Windows deletes the lock
