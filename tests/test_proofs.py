"""Every structure has a proof beside its code; a change of code that is proved, also in C, asks for a new look at the proof."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from ldpsql.channels import STRUCTURES

PACKAGE = Path(__file__).parents[1] / "ldpsql"
PROOFS = PACKAGE / "channels" / "PROOFS.md"
SECTION = re.compile(r"^## (\w+)(?: `([0-9a-f]{12})`)?\n((?:`[\w.]+`(?:, )?)+)\n", re.MULTILINE)


def sections() -> dict[str, tuple[str, list[str]]]:
    """Return the digest and the names of the code of each section, by the name of the structure."""
    found = SECTION.findall(PROOFS.read_text(encoding="utf-8"))
    return {title: (digest, re.findall(r"`([\w.]+)`", names)) for title, digest, names in found}


def definitions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of channels and privacy, methods as Class.method."""
    for file in sorted([*(PACKAGE / "channels").glob("*.py"), *(PACKAGE / "privacy").glob("*.py")]):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{one.name}", one) for one in node.body if isinstance(one, ast.FunctionDef))


def code() -> dict[str, str]:
    """Return the code of each function, and of each file in C, without comments and docstring."""
    out: dict[str, str] = {}
    for name, node in definitions():
        node.body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
        assert name not in out or "." not in name, f"there are two of {name}"
        out[name] = out.get(name, "") + ast.unparse(node)
    kernels = [*(PACKAGE / "channels" / "native").glob("*.[ch]")]
    return out | {file.name: re.sub(r"//.*|\s+", " ", file.read_text(encoding="utf-8")) for file in kernels}


CODE, SECTIONS = code(), sections()


def digest(names: list[str], code: dict[str, str]) -> str:
    return sha256("\n".join(code[name] for name in names).encode()).hexdigest()[:12]


def test_every_structure_has_a_proof() -> None:
    text = PROOFS.read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)", text, re.MULTILINE) == [*SECTIONS]  # each title is followed by names
    assert {structure.__name__ for structure in STRUCTURES} <= SECTIONS.keys()
    assert set(SECTIONS["Kernels"][1]) == {name for name in CODE if name.endswith((".c", ".h"))} - {
        "door.c",
        "hashes.c",
        "counts.c",
    }


@pytest.mark.parametrize("title", SECTIONS)
def test_the_code_of_a_proof_is_the_code_that_was_proved(title: str) -> None:
    written, names = SECTIONS[title]
    current = digest(names, CODE)
    assert written == current, f"the code of {title} has changed: read its proof in {PROOFS.name} again, then write `{current}`"


@pytest.mark.parametrize("title", SECTIONS)
def test_a_change_of_any_function_of_a_proof_changes_the_digest(title: str) -> None:
    written, names = SECTIONS[title]
    for name in names:
        assert digest(names, CODE | {name: CODE[name] + "\n    pass"}) != written
