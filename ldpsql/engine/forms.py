"""What SQL does with each form of reports: overloads of macros, one for each form that declares something of its own."""

from __future__ import annotations

from ldpsql.engine.functions import Macros
from ldpsql.reports import FORMS
from ldpsql.reports.base import FormedReports


def counted_by_form() -> Macros:
    """Return ``ldp._counted(report, keep)``: the counts of a column of reports, as its form declares."""
    own = [f"(report {form.sql_type}, keep) AS {form.counted}" for form in FORMS if form.counted != FormedReports.counted]
    overloads = [*own, f"(report, keep) AS {FormedReports.counted}"]
    return Macros(f"CREATE OR REPLACE MACRO ldp._counted {', '.join(overloads)};")
