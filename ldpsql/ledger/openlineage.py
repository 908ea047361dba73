"""An event of OpenLineage for each release, sent to an address or appended to a file that the settings name.

The event is written after the ledger has recorded the release as published, at most once. If it cannot be written, a warning is
logged and the release stands: the ledger, not the catalogue, says what was released. The event holds names of data, columns and
mechanisms, and their epsilon; no value, and no domain.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener
from uuid import UUID

from ldpsql import settings
from ldpsql.engine.identity import without_secrets
from ldpsql.ledger.file import reading, snapshot
from ldpsql.ledger.policy import PERMANENT, delta_text, epsilon_text

_LOG = logging.getLogger("ldpsql")
_SECONDS = 5.0  # to connect, and between two answers
_SPEC = "https://openlineage.io/spec"
_NAMESPACE = "ldpsql"
_NETWORK = re.compile(r"([a-z0-9]+://[^/]+)/(.+)", re.IGNORECASE)
_TABLE = re.compile(r"(.+\.(?:duckdb|ddb|db)) ([^/\\]+)", re.IGNORECASE)
_MEMORY = "memory"


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect: the key would go to another host."""


def announce(ledger: Path, token: str) -> None:
    """Write the event of a release that was just published, if the settings name an address or a file; never raise."""
    try:
        section = settings.load().lineage
        if section:
            with reading(ledger) as db, snapshot(db):
                content = event(db, token, section.get("namespace", _NAMESPACE))
            _write(content, section)
    except HTTPError as error:  # its text may come from the other side
        with error:
            _lost(token, f"the address answered {error.code}")
    except Exception as error:  # noqa: BLE001  # the release is published, whatever happens here
        _lost(token, type(error).__name__)


def _lost(token: str, reason: str) -> None:
    _LOG.warning("the OpenLineage event of release %s was not written (%s); the release is published", token, reason)


def event(db: sqlite3.Connection, token: str, namespace: str) -> dict[str, Any]:
    """Return the event of a release of a ledger."""
    release = """SELECT id, dataset, destination, coalesce(reports, users), published_at, identity
        FROM release NOT INDEXED WHERE token = ?"""
    number, dataset, destination, charged, at, identity = db.execute(release, [token]).fetchone()
    rows = None if identity.startswith(f"{PERMANENT} ") else charged  # people pay for new permanent reports, not for each row
    charges = """SELECT DISTINCT c.column_name, c.mechanism, c.claim, a.currency, c.epsilon, c.delta
        FROM charge c JOIN account a ON a.id = c.account WHERE c.release = ? AND a.currency <> ?"""
    columns = db.execute(charges, [number, PERMANENT]).fetchall()
    dataset, destination = map(without_secrets, (dataset, destination))
    source = _named(dataset, namespace)
    output = _named(destination, namespace) | {"facets": _facets(source, columns)}
    if rows is not None:
        output["outputFacets"] = {"outputStatistics": _facet("1-0-2/OutputStatisticsOutputDatasetFacet") | {"rowCount": rows}}
    job_type = {"processingType": "BATCH", "integration": "LDPSQL", "jobType": "RELEASE"}
    return {
        "eventType": "COMPLETE",
        "eventTime": datetime.fromtimestamp(at / 10**6, UTC).isoformat(timespec="milliseconds"),
        "producer": _producer(),
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(UUID(hex=token))},
        "job": {
            "namespace": namespace,
            "name": f"release of {dataset}",
            "facets": {"jobType": _facet("2-0-3/JobTypeJobFacet") | job_type},
        },
        "inputs": [source],
        "outputs": [] if destination == _MEMORY else [output],
    }


def _facets(source: Mapping[str, str], columns: list[tuple[str, str, str, str, int, int]]) -> dict[str, Any]:
    """Return where the columns of reports come from, and as tags their epsilon, or that per unit of distance, and delta."""
    fields = {
        column: {
            "inputFields": [
                {**source, "field": column, "transformations": [_transformation(f"{mechanism}, {claim}")]},
            ]
        }
        for column, mechanism, claim, *_ in columns
    }
    tags = [
        {"key": key, "value": value, "source": "LDPSQL", "field": column}
        for column, _, _, currency, epsilon, delta in columns
        for key, value in ((currency.replace(" ", "_"), epsilon_text(epsilon)), ("delta", delta_text(delta)))
    ]
    return {
        "columnLineage": _facet("1-2-0/ColumnLineageDatasetFacet") | {"fields": fields},
        "tags": _facet("1-0-0/TagsDatasetFacet") | {"tags": tags},
    }


def _transformation(description: str) -> dict[str, Any]:
    return {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": description, "masking": True}


def _facet(name: str) -> dict[str, Any]:
    return {"_producer": _producer(), "_schemaURL": f"{_SPEC}/facets/{name}.json"}


def _producer() -> str:
    from ldpsql import __version__  # noqa: PLC0415  # the package imports this module

    return f"urn:ldpsql:{__version__}"


def _named(name: str, namespace: str) -> dict[str, str]:
    """Return the namespace and the name of a dataset: of a file or an object on the network as OpenLineage names them."""
    for pattern, prefix in ((_NETWORK, ""), (_TABLE, "duckdb://")):
        if match := pattern.fullmatch(name):
            return {"namespace": f"{prefix}{match[1]}", "name": match[2]}
    return {"namespace": "file" if os.path.isabs(name) else namespace, "name": name}


def _write(content: dict[str, Any], section: Mapping[str, str]) -> None:
    text = json.dumps(content)
    if "file" in section:
        with Path(section["file"]).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    if "url" in section:
        _send(text, section["url"])


def _send(text: str, url: str) -> None:
    headers = {"Content-Type": "application/json"}
    key, trusted = os.environ.get("OPENLINEAGE_API_KEY"), os.environ.get("OPENLINEAGE_URL")
    if key and trusted and _host(url) == _host(trusted):  # a project's settings could name anybody's address
        headers["Authorization"] = f"Bearer {key}"
    request = Request(url, text.encode(), headers, method="POST")  # noqa: S310  # the settings allow http and https only
    with build_opener(_NoRedirects).open(request, timeout=_SECONDS):
        pass


def _host(url: str) -> tuple[str, str | None, int | None]:
    """Return the scheme, the host and the port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
