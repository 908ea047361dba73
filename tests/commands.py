"""Commands and programs in processes of their own, forked from one that has imported everything: one costs 0.1 s, not 2 s."""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import typer.main
import typer.testing

import ldpsql
from ldpsql import settings
from ldpsql.cli import main
from ldpsql.cli.app import app
from ldpsql.registry import registry

__all__ = ["app", "main", "printed", "python", "quicken", "rows", "run", "serve"]
_MADE = typer.main.get_command
ROOT = Path(__file__).parents[1]
_EXTRAS = ("ldpsql.dbt", "ldpsql.spark", "ldpsql.__main__")
# What commands load when they need it; PyArrow loads pandas.
_LATER = (
    *("pandas", "narwhals", "altair", "vl_convert", "scipy.linalg", "scipy.optimize", "scipy.special"),
    *("sqlglot.dialects.duckdb", "pydantic.type_adapter", "typer._adapters"),
)


def quicken() -> None:
    """Let `CliRunner` make the commands of an app once: Typer takes 0.1 s to read the signatures of ours."""
    made = cache(lambda app, _: _MADE(app))
    vars(typer.testing)["_get_command"] = lambda app: made(app, len(app.registered_commands))


def printed(*arguments: str) -> str:
    """Return what ``ldpsql ARGUMENTS`` prints, in this process; raise what it raises."""
    return typer.testing.CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    """Return the rows that ``ldpsql ARGUMENTS --format json`` prints, in this process; raise what it raises."""
    return list(json.loads(printed(*arguments, "--format", "json")))


def run(*arguments: str, stdin: str = "", cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``ldpsql ARGUMENTS`` and return its exit code and what it wrote."""
    return _run("", arguments, stdin, cwd, environment)


def python(program: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program in Python, whose ``sys.argv[1:]`` are the arguments, and return its exit code and what it wrote."""
    return _run(program, arguments, "", cwd, {})


def _run(
    program: str, arguments: tuple[str, ...], stdin: str, cwd: Path | None, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin, encoding="utf-8")
        asked = {
            "program": program,
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "environment": {**os.environ, "NO_COLOR": "1", **environment},
            "streams": list(map(str, streams)),
        }
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        out, err = (path.read_text(encoding="utf-8") for path in streams[1:])
    return subprocess.CompletedProcess(arguments, code, out, err)


@cache
def _server() -> subprocess.Popen[str]:
    """Start the process that all commands are forked from; it ends with this one, or if its input ends."""
    command = [sys.executable, "-m", "tests.commands"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Run each command that is asked for in a fork of this process, which has no connection and no threads of ours."""
    for package in ("ldpsql", "ldpsql.plugins", "ldpsql.udfs"):
        for module in pkgutil.walk_packages(import_module(package).__path__[:1], f"{package}."):
            if not module.name.startswith(_EXTRAS):
                import_module(module.name)
    for package in _LATER:
        import_module(package)
    registry.registry()  # this and the next line take half of the time of a short command
    ldpsql.connect(config={"threads": 1}).close()
    gc.freeze()  # a collection in a child would copy the pages of all of them
    for line in requests:
        if not (child := os.fork()):
            _become(**json.loads(line))
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _become(program: str, arguments: list[str], cwd: str, environment: dict[str, str], streams: list[str]) -> None:
    """Be the program, or the command line, from here on."""
    for number, (path, mode) in enumerate(zip(streams, (os.O_RDONLY, *2 * [os.O_WRONLY | os.O_CREAT]), strict=True)):
        os.dup2(os.open(path, mode, 0o600), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # the other one has read ahead
    plugins = os.environ["LDPSQL_PLUGINS"]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    if os.environ.get("LDPSQL_PLUGINS") != plugins or _settings() != settings.of_process():
        settings.of_process.cache_clear()
        registry._of_process.cache_clear()
    sys.argv = ["ldpsql", *arguments]
    code = _exit_code(partial(exec, program, {"__name__": "__main__"}) if program else main)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _settings() -> settings.Settings | None:
    """Return the settings of the folder and the environment; None if they cannot be read, which the command then reports."""
    with suppress(Exception):
        return settings.load()
    return None


def _exit_code(work: Callable[[], object]) -> int:
    code: Any = 0
    try:
        work()
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  # as an interpreter does
        traceback.print_exc()
        return 1
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
