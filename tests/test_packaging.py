"""What is installed: one name, with plugins and SQL inside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import lowest, reference, release
from tests.commands import python
from tests.laws.subjects import SMALL

PAGE = ("pages/page.html", "pages/page.css", "pages/page.js")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    return out


def installed(wheel: Path, folder: Path, code: str, **environment: str) -> str:
    """Return what a program prints in a process that sees a wheel instead of the checkout."""
    zipfile.ZipFile(wheel).extractall(folder / "site")
    own = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.meta_path = [f for f in sys.meta_path if 'ditable' not in repr(f)]\n"
    )
    own += "import ldpsql; assert ldpsql.__file__.startswith(sys.argv[1]), ldpsql.__file__\n"
    command = [sys.executable, "-c", own + code, str(folder / "site")]
    env = environment or None
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60, env=env).stdout


@pytest.mark.slow
def test_the_wheel_holds_only_ldpsql_with_plugins_sql_and_data(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"ldpsql", next(n for n in names if "dist-info" in n).split("/")[0]}
    for needed in ("plugins/mechanisms/krr.py", "udfs/perturb.sql", "data/flights.parquet", "py.typed", *PAGE):
        assert f"ldpsql/{needed}" in names


@pytest.mark.slow
def test_the_source_archive_holds_what_the_package_is_built_from(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "plugins/mechanisms/krr.py", "udfs/perturb.sql", "tests/conftest.py"} <= names


@pytest.mark.slow
def test_an_installed_wheel_works_away_from_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    printed = installed(
        wheel,
        tmp_path,
        "import ldpsql; assert str(ldpsql.flights_file()).startswith(sys.argv[1])\n"
        "from ldpsql.pages.statement import code_digest; print(code_digest())\n"
        'con = ldpsql.connect(); print(con.sql("FROM ldp.mechanisms()").fetchall())',
    )
    assert "krr" in printed
    of_the_checkout = python("from ldpsql.pages.statement import code_digest; print(code_digest())").stdout
    assert printed.split()[0] == of_the_checkout.strip()


@pytest.mark.slow
def test_the_directory_of_plugins_has_the_digest_of_each_wheel(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "conforms", lambda _: "conforms")  # a law checks that
    wheels = [(next(built.glob("*.whl")).name, "a1" * 32), ("ldpsql_coin-0.1.0-py3-none-any.whl", "b2" * 32)]
    directory = release.plugins(dict(wheels), "2026-11-30")
    assert re.findall(r"`(.*)`, SHA-256 `(\w+)`, checked on 2026-11-30\.", directory) == wheels
    assert len(re.findall(r"\| yes: .* \| conforms \|", directory)) == len(SMALL) + 1


def test_the_bill_of_materials_holds_what_an_installation_needs_and_no_tool() -> None:
    bill = release.sbom({"ldpsql-1.0-py3-none-any.whl": "0" * 64})
    names = {component["name"] for component in bill["components"]}
    direct = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {canonicalize_name(Requirement(text).name) for text in direct} | {"pydantic-core"} <= names
    assert not names & {"pytest", "build", "ldpsql"}
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [None, "no-such-compiler", "false"])
def test_a_wheel_has_the_kernels_if_there_is_a_compiler_and_works_without(
    built: Path, compiler: str | None, tmp_path: Path
) -> None:
    if compiler is None and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    environment = {name: text for name, text in os.environ.items() if name not in {"CC", "LDPSQL_NATIVE"}}
    if compiler:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
        subprocess.run(build, check=True, capture_output=True, timeout=120, env={**environment, "CC": compiler})
    (wheel,) = (tmp_path if compiler else built).glob("*.whl")
    printed = installed(
        wheel,
        tmp_path,
        "from ldpsql.channels import PrivateHash, KeepOrSpread, native; from fractions import Fraction; import numpy as np\n"
        "channel = PrivateHash(11, KeepOrSpread.within(3, Fraction(4)))\n"
        "n = np.arange(99, dtype=np.uint64)\n"
        "drawn = np.stack([n * np.uint64(0x9E3779B97F4A7C15), n % np.uint64(3)], 1)\n"
        "expected = np.packbits(channel.supports(drawn), axis=1, bitorder='little').T\n"
        "assert (channel.octets(drawn) == expected).all(); print(native.description())",
        **environment,
    )
    assert wheel.name.endswith("-py3-none-any.whl") == bool(compiler)
    assert printed.startswith("draws and inner loops run in Python" if compiler else "draws and inner loops run in C")


def test_the_oldest_version_of_every_dependency_meets_tests() -> None:
    assert lowest.floors().keys() == lowest.MEETING.keys()
    assert all((ROOT / "tests" / file).is_file() for files in lowest.MEETING.values() for file in files.split())
    assert {"numpy", "pluggy"} <= {*lowest.older()} <= lowest.floors().keys()
