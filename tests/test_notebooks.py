"""In a notebook, an error of ldpsql is one sentence; this needs IPython and JupySQL, and runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext sql\\n%load_ext ldpsql\\nimport ldpsql\\ncon = ldpsql.connect()\\n%sql con")
failed = [shell.run_cell(cell).error_in_exec for cell in sys.argv[1:]]
print("failed:", *(type(error).__name__ for error in failed))
"""
OUTSIDE = "SELECT ldp.perturb('Lyon', ldp.krr(1, ['Lima', 'Oslo']))"


def shown(*cells: str) -> tuple[str, str]:
    """Return what a notebook with JupySQL writes to stdout and stderr for some cells."""
    pytest.importorskip("sql.magic", reason="JupySQL is not installed")
    done = subprocess.run([sys.executable, "-c", SHELL, *cells], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize("cell", [f"%sql {OUTSIDE}", f"%%sql\n{OUTSIDE}\nFROM range(3)", f'con.sql("{OUTSIDE}").fetchall()'])
def test_an_error_of_ldpsql_is_one_sentence(cell: str) -> None:
    out, err = shown(cell)
    assert "Traceback" not in out
    assert "failed: InvalidInputException" in out  # a tool that runs the notebook still sees that the cell failed
    (sentence,) = (line for line in err.splitlines() if "LDP" in line)
    assert sentence.startswith("[LDP302] a value to be perturbed is outside the declared domain")
    assert sentence.endswith("Hint: add it, or write outside := 'as:VALUE' in the mechanism.")


def test_other_errors_are_shown_as_before() -> None:
    out, err = shown("con.sql(\"SELECT 'x'::INTEGER\").fetchall()")
    assert "Conversion Error" in out
    assert "LDP" not in out + err
