"""A server that collects reports: browsers draw them, it appends them to a file, and DuckDB estimates.

python examples/collect/server.py            http://localhost:8000 has the form; reports go to reports.ndjson
python examples/collect/server.py estimate   writes the shares
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

import ldpsql
from ldpsql.clients.module import module
from ldpsql.registry.registry import registry

MECHANISM = registry().mechanism("krr(epsilon=1, domain=['walk', 'bike', 'bus', 'car'])")
FINGERPRINT = ldpsql.document(MECHANISM)["fingerprint"]
REPORTS = Path("reports.ndjson")
PAGES = {
    "/": ("text/html; charset=utf-8", Path(__file__).with_name("index.html").read_text(encoding="utf-8")),
    "/commute.mjs": ("text/javascript", module(MECHANISM)),
}
LONGEST = 10_000  # bytes of a report
_ONE_AT_A_TIME = Lock()


class Collector(BaseHTTPRequestHandler):
    """Serves the form and the module, and keeps reports and nothing about who sent them."""

    def do_GET(self) -> None:
        """Send the form or the module."""
        kind, text = PAGES.get(self.path, ("text/plain", ""))
        self._answer(200 if text else 404, kind, text)

    def do_POST(self) -> None:
        """Append a report to the file, unless it cannot be one of this mechanism."""
        sent = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), LONGEST))
        report = accepted(sent) if self.path == "/reports" else None
        if report is not None:
            with _ONE_AT_A_TIME, REPORTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"report": report}) + "\n")
        self._answer(204 if report is not None else 400)

    def _answer(self, code: int, kind: str = "text/plain", text: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: addresses and times would say who reported."""


def accepted(sent: bytes) -> str | None:
    """Return the report that was sent; None if it is not one of this mechanism."""
    try:
        message = json.loads(sent)
        report = message["report"] if message["fingerprint"] == FINGERPRINT else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return report if isinstance(report, str) and report in MECHANISM.values().listed.texts else None


def estimate() -> None:
    """Write the estimated shares of the reports that were collected."""
    with ldpsql.connect() as con:
        con.sql(f"FROM ldp.estimate('{REPORTS}', report, '{str(MECHANISM).replace(chr(39), chr(39) * 2)}')").show()


if __name__ == "__main__":
    if sys.argv[1:] == ["estimate"]:
        estimate()
    else:
        ThreadingHTTPServer(("localhost", 8000), Collector).serve_forever()
