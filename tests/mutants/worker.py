"""Plant faults in a copy of the project, one after the other: ``python -m tests.mutants.worker``, started inside the copy.

Everything is imported, and the registry loaded, once. Each fault is a fork of this process, in which the functions that differ
get the code of the faulty file; a fault outside functions, or in a file that is not Python, runs in a new interpreter. What the
tests start reads the faulty file itself.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType

import pytest

OPTIONS = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "--override-ini=faulthandler_timeout=550"]
IGNORED = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
MOST_SECONDS = 600
SKIPPED = 64  # the code if all tests were skipped, as those in Node are where there is none
NATIVE = ("tests/test_kernels.py", "tests/test_door.py")  # whose tests need the kernels
_EXTRAS = ("ldpsql.dbt", "ldpsql.spark", "ldpsql.__main__")
_LATER = ("pandas", "narwhals", "sqlglot", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats", "typer.testing")


def main() -> None:
    """Run the tests of each fault that is asked for, a line of JSON each, and answer with what became of it."""
    for package in ("ldpsql", "ldpsql.plugins", "ldpsql.udfs"):
        for module in pkgutil.walk_packages(import_module(package).__path__[:1], f"{package}."):
            if not module.name.startswith(_EXTRAS):
                import_module(module.name)
    for package in _LATER:
        import_module(package)
    os.environ["LDPSQL_NATIVE"] = "0"  # faults are planted in the Python that kernels take the place of
    import_module("ldpsql.functions").registry()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what a faulty file compiles to must not stay
    for line in sys.stdin:
        print(json.dumps(tried(**json.loads(line))), flush=True)


def tried(file: str | None, faulty: str, tests: list[str]) -> dict[str, object]:
    """Run tests with a faulty file, or without a fault if no file is named.

    Returns:
        The exit code of pytest, the first test that failed, the seconds, and the end of what pytest printed.

    """
    log, start = Path("mutant.log"), time.monotonic()
    if all("::" in test for test in tests):
        tests = ["-m", "", *tests]  # named ones may be slow
    if file is None:
        code = _anew(log, tests) if _of_dbt(tests) or _of_kernels(tests) else _forked(log, tests, {})
    else:
        path, source, at = Path(file), Path(file).read_text(encoding="utf-8"), os.stat(file)
        path.write_text(faulty, encoding="utf-8")
        os.utime(file, (at.st_atime, at.st_mtime + 10))  # otherwise compiled code of the same second could pass for it
        try:
            changed = _changed(path, source, faulty) if path.suffix == ".py" else {}
            code = _forked(log, tests, changed) if changed and not (_of_dbt(tests) or _of_kernels(tests)) else _anew(log, tests)
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(file, (at.st_atime, at.st_mtime))
    out = log.read_text(encoding="utf-8", errors="replace")
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", out, re.MULTILINE)  # names of cases may hold spaces
    if code == 0 and not re.search(r"\d passed", out):
        code = SKIPPED
    return {"code": code, "by": (failed or [""])[0], "seconds": time.monotonic() - start, "log": out[-3000:]}


def _changed(path: Path, source: str, faulty: str) -> dict[FunctionType, CodeType]:
    """Return the loaded functions of a file whose code differs, with their new code; none if more than functions differ."""
    old, new = ([*_codes(compile(text, str(path.resolve()), "exec"))] for text in (source, faulty))
    if len(old) != len(new) or any(_outside(a) != _outside(b) for a, b in zip(old, new, strict=True)):
        return {}
    differing = {(a.co_qualname, a.co_firstlineno): b for a, b in zip(old, new, strict=True) if a != b}
    functions = [found for found in gc.get_objects() if isinstance(found, FunctionType)]
    ours = [found for found in functions if Path(found.__code__.co_filename) == path.resolve()]
    keyed = {found: (found.__code__.co_qualname, found.__code__.co_firstlineno) for found in ours}
    return {found: differing[key] for found, key in keyed.items() if key in differing}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _outside(code: CodeType) -> object:
    """Return what runs when the file is loaded: a module, or the body of a class; None for a function."""
    if code.co_flags & CO_OPTIMIZED:
        return None
    return code.co_code, [one for one in code.co_consts if not isinstance(one, CodeType)], code.co_names


def _forked(log: Path, tests: list[str], changed: dict[FunctionType, CodeType]) -> int | None:
    """Run the tests in a fork with changed functions; None if they do not end."""
    if child := os.fork():
        end = time.monotonic() + MOST_SECONDS
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        os.killpg(child, 9)
        os.waitpid(child, 0)
        return None
    os.setpgid(0, 0)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    code = 99
    try:
        for function, replaced in changed.items():
            function.__code__ = replaced
        code = int(pytest.main([*OPTIONS, *IGNORED, *tests]))
    except BaseException:  # noqa: BLE001  # the fork must end here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _anew(log: Path, tests: list[str]) -> int | None:
    """Run the tests in a new interpreter, those of dbt in that of its own environment; None if they do not end.

    Tests of kernels run with kernels that are compiled from the files as they are now.
    """
    python = os.environ["LDPSQL_PYTHON_OF_DBT"] if _of_dbt(tests) else sys.executable
    if not Path(python).exists():
        log.write_text(f"there is no {python}: make test-dbt makes it", encoding="utf-8")
        return SKIPPED
    native = _of_kernels(tests)
    if native and not _compiled(log):
        return SKIPPED
    with log.open("w") as out:
        try:
            command, env = [python, "-m", "pytest", *OPTIONS, *tests], os.environ | {"LDPSQL_NATIVE": "1" if native else "0"}
            code = subprocess.run(command, stdout=out, stderr=out, check=False, timeout=MOST_SECONDS, env=env).returncode
            return 1 if code < 0 else code  # a fault in C may end the process
        except subprocess.TimeoutExpired:
            return None


def _compiled(log: Path) -> bool:
    """Compile the kernels of the copy; return whether there is a compiler that could."""
    compiler, folder = shlex.split(os.environ.get("CC", "cc")), Path("ldpsql/channels/native")
    if not compiler or shutil.which(compiler[0]) is None:
        log.write_text("there is no C compiler", encoding="utf-8")
        return False
    flags = ("-std=c11", "-O1", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden")
    files = (str(file) for file in sorted(folder.glob("*.c")))
    fresh = folder / "fresh.library"
    subprocess.run([*compiler, *flags, "-o", str(fresh), *files, "-lm"], check=True, stdout=subprocess.DEVNULL)
    fresh.replace(folder / "kernels.library")
    return True


def _of_kernels(tests: list[str]) -> bool:
    return any(test.startswith(NATIVE) for test in tests)


def _of_dbt(tests: list[str]) -> bool:
    return any(test.startswith("tests/test_dbt.py") for test in tests)


if __name__ == "__main__":
    main()
