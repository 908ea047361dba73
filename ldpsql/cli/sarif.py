"""Findings of the lint as SARIF 2.1.0, which code review tools show next to the lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as a SARIF log: one rule for each kind, and a result for each finding."""
    from ldpsql import __version__

    kinds = sorted({_rule(finding) for finding in findings})
    rules = [{"id": kind, "shortDescription": {"text": f"A {kind} that gives values away"}} for kind in kinds]
    driver = {"name": "ldpsql", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(finding) for finding in findings]}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(finding: Mapping[str, Any]) -> str:
    """Return the kind of a finding without the name of an object."""
    return str(finding["kind"]).split(" ", 1)[0]


def _uri(path: PurePath) -> str:
    """Return the address of a file, relative to the folder of the review if the path is."""
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _result(finding: Mapping[str, Any]) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(PurePath(str(finding["file"])))}}
    if finding["line"]:  # an object of a database has none
        location["region"] = {"startLine": finding["line"]}
    text = f"{finding['kind']}: {finding['problem']}. {finding['remedy']}"
    return {
        "ruleId": _rule(finding),
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }
