"""A PostgreSQL server of the tests: needs initdb, pg_ctl and psql."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSIONS = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
PATH = os.pathsep.join([*_VERSIONS, os.environ.get("PATH", "")])


def call(*command: str) -> str:
    """Run a command; a server does not run as root, so then as the user postgres."""
    found = shutil.which(command[0], path=PATH)
    assert found is not None, f"there is no {command[0]}"
    as_user = ["runuser", "-u", "postgres", "--"] if getpass.getuser() == "root" else []
    done = subprocess.run([*as_user, found, *command[1:]], capture_output=True, text=True, timeout=120, check=False, cwd="/tmp")
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(name: str = "postgres") -> Iterator[str]:
    """Run a server that listens on a socket in its folder only, within a ``with`` block, and yield the folder."""
    folder = Path("/tmp") / f"ldpsql-{name}-{os.getpid()}"  # a socket needs a short path
    folder.mkdir(mode=0o700)
    if getpass.getuser() == "root":
        shutil.chown(folder, "postgres")
    try:
        call("initdb", "-D", f"{folder}/data", "--auth=trust", "--username=test", "--no-sync")
        call(
            "pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "-o", f"-k {folder} -c listen_addresses=''", "start"
        )
        try:
            yield str(folder)
        finally:
            call("pg_ctl", "-D", f"{folder}/data", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
