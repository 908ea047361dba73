"""New plugins: what is generated conforms, installs with real pip, and is a built-in mechanism but for its name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ldpsql.cli import managing
from ldpsql.errors import InvalidParameter, PluginError
from tests import commands

KRR = Path(__file__).parents[1] / "plugins" / "mechanisms" / "krr.py"


def code(path: Path, name: str) -> list[str]:
    """Return the code of a mechanism's file without documentation, with its name put back to krr."""
    tree = ast.parse(path.read_text(encoding="utf-8").replace(name.capitalize(), "Krr").replace(name, "krr"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.unparse(tree).splitlines()


def generated(name: str, folder: Path) -> Path:
    commands.printed("plugins", "new", name, "--directory", str(folder))
    return folder / f"ldpsql-{name}"


def test_a_generated_mechanism_differs_from_a_built_in_one_by_its_name_and_words_only(tmp_path: Path) -> None:
    folder = generated("spinner", tmp_path)
    assert code(folder / "ldpsql_spinner.py", "spinner") == code(KRR, "krr")


def test_a_generated_plugin_is_checked_where_it_lies(tmp_path: Path) -> None:
    assert commands.run("plugins", "new", "spinner", cwd=tmp_path).returncode == 0
    done = commands.run("plugins", "check", "ldpsql-spinner", cwd=tmp_path)
    assert (done.returncode, "3 checked, none failed" in done.stderr) == (0, True)


@pytest.mark.slow
def test_the_tests_of_a_generated_plugin_pass(tmp_path: Path) -> None:
    folder = generated("spinner", tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_generated_plugin_is_installed_used_and_removed(tmp_path: Path) -> None:
    """In an environment of its own that borrows this one's packages, with real pip and nothing from a network."""
    generated("spinner", tmp_path)
    python = borrowing_environment(tmp_path)
    borrowed = {**os.environ, "PIP_NO_BUILD_ISOLATION": "false", "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    borrowed["PATH"] = os.pathsep.join(["/usr/bin", "/bin"])  # no uv

    def run(*arguments: str, plugins: str = "") -> str:
        done = subprocess.run(
            [str(python), "-m", "ldpsql", *arguments],
            cwd=tmp_path,
            env={**borrowed, "LDPSQL_PLUGINS": plugins},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "none failed" in run("plugins", "install", "ldpsql-spinner")
    query = "SELECT ldp.perturb('yes', ldp.spinner(1, ['no', 'yes'])) AS report"
    drawn = run("sql", "--format", "csv", "-c", query, plugins="spinner").split()
    assert drawn in (["report", "no"], ["report", "yes"])
    run("plugins", "uninstall", "spinner")
    assert not list(python.parents[1].rglob("ldpsql_spinner*"))


def borrowing_environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=60)
    python = folder / "venv" / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    Path(site, "borrowed.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python


def test_a_plugin_that_does_not_conform_is_reported_with_the_reason(tmp_path: Path) -> None:
    folder = generated("liar", tmp_path)
    module = folder / "ldpsql_liar.py"
    text = module.read_text(encoding="utf-8").replace("self.epsilon.exp_below())", "2 * self.epsilon.exp_below())")
    module.write_text(text, encoding="utf-8")
    done = commands.run("plugins", "check", str(module))
    assert done.returncode == 4
    assert "does not keep its claim" in done.stdout
    assert "3 of 3 checks failed" in done.stderr


@pytest.mark.parametrize("name", ["Krr", "krr", "ibu", "class", "a-b", "", "ä"])
def test_names_that_sql_or_python_could_not_use_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter):
        generated(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_uv_and_pip_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(managing, "find_spec", lambda _: None)
    with pytest.raises(PluginError) as refusal:
        managing.install("ldpsql-spinner")
    assert refusal.value.hint == f"run: uv pip install --python {sys.executable} ldpsql-spinner"
