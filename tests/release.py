"""What a release needs: the same bytes from two builds, and a list of all that it depends on (CycloneDX).

``python -m tests.release dist`` writes wheels, source archive, ``sbom.json``, the directory of plugins as ``plugins.md``, and
``SHA256SUMS``, or says what is missing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

import ldpsql
from tests import reference

ROOT = Path(__file__).parents[1]


def build(folder: Path) -> dict[str, str]:
    """Build the committed files in a copy of their own; return the SHA-256 of what was built, by name."""
    epoch = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as copy:
        files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", copy], input=files, check=True)
        environment = os.environ | {"SOURCE_DATE_EPOCH": epoch.strip()}
        for old in folder.glob("ldpsql*"):
            old.unlink()
        for project in ([copy], ["--wheel", f"{copy}/examples/ldpsql-coin"]):
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *project]
            subprocess.run(command, check=True, capture_output=True, timeout=300, env=environment)
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("ldpsql*"))}


def plugins(built: dict[str, str], today: str) -> str:
    """Return the directory of plugins with the digest of each wheel, and the answers of the programs that check mechanisms."""
    wheels = {name: parse_wheel_filename(name) for name in built if name.endswith(".whl")}
    return reference.directory(
        {f"{of[0]} {of[1]}": f"`{name}`, SHA-256 `{built[name]}`, checked on {today}." for name, of in wheels.items()}
    )


def needed(name: str, found: dict[str, dict[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Return the components that a distribution depends on, with theirs, without extras, by name."""
    found = {} if found is None else found
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        key = canonicalize_name(wanted.name)
        if key not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            version = distribution(key).version
            found[key] = {"type": "library", "name": key, "version": version, "purl": f"pkg:pypi/{key}@{version}"}
            needed(key, found)
    return found


def sbom(built: dict[str, str]) -> dict[str, Any]:
    """Return the bill of materials of a release as CycloneDX."""
    version, components = ldpsql.__version__, needed("ldpsql")
    hashes = [{"alg": "SHA-256", "content": digest} for name, digest in built.items() if re.match(r"ldpsql-.*whl$", name)]
    own = {"type": "library", "name": "ldpsql", "version": version, "purl": f"pkg:pypi/ldpsql@{version}", "hashes": hashes}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [components[name] for name in sorted(components)],
    }


def problems(today: str) -> Iterator[str]:
    """Yield what keeps this commit from being released."""
    version, changes = ldpsql.__version__, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (.*)$", changes, re.MULTILINE)
    if newest is None or newest[1] not in {version, f"{version} ({today})"}:
        yield f"CHANGELOG.md does not begin with the section {version}"
    pinned = set((ROOT / "constraints.txt").read_text(encoding="utf-8").lower().split())
    yield from (f"{one['purl']} is not in constraints.txt" for one in needed("ldpsql").values() if not pinned & spelt(one))
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        yield "there are changes that are not committed"


def spelt(component: dict[str, Any]) -> set[str]:
    """Return how constraints may write a component."""
    return {f"{name}=={component['version']}" for name in (component["name"], component["name"].replace("-", "_"))}


def main(folder: Path) -> int:
    """Build twice, compare, and write what belongs to a release; return the exit status."""
    missing = [*problems(today := datetime.now(UTC).date().isoformat())]
    folder.mkdir(parents=True, exist_ok=True)
    built = build(folder)
    with tempfile.TemporaryDirectory() as again:
        missing += ["two builds have different bytes"] * (len(built) != 3 or build(Path(again)) != built)
    (folder / "plugins.md").write_text(directory := plugins(built, today), encoding="utf-8")
    missing += ["a mechanism fails its checks: see plugins.md"] * ("| no: " in directory)
    (folder / "sbom.json").write_text(json.dumps(sbom(built), indent=2) + "\n", encoding="utf-8")
    others = {name: sha256((folder / name).read_bytes()).hexdigest() for name in ("plugins.md", "sbom.json")}
    sums = "".join(f"{digest}  {name}\n" for name, digest in (built | others).items())
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    sys.stdout.write(sums + "".join(f"NOT READY: {one}\n" for one in missing))
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
