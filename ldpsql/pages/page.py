"""Estimates as pages: one page that works offline, or one picture (extra ``report``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter, NoReports, UsageError
from ldpsql.estimates.estimate import Estimate, estimated
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import CertifiedRow, CertifiedValues, Mechanism, certify_values
from ldpsql.mechanisms.region import Region
from ldpsql.pages.charts import Places
from ldpsql.pages.groups import ordered
from ldpsql.pages.report import report_page

if TYPE_CHECKING:
    from ldpsql.pages.figures import AnyChart

MAX_GROUPS = 400
MAX_BARS = 200


def needs_extra() -> None:
    """Refuse pictures if the extra that draws them is not installed."""
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        raise UsageError("pictures need the extra report", "pip install 'ldpsql[report]'")


def check(path: Path) -> None:
    """Refuse a file that is neither a page nor a picture, and pictures if the extra that draws them is missing.

    Raises:
        InvalidParameter, UsageError: if the file has another ending, or the extra is missing.

    """
    if path.suffix in (".svg", ".png"):
        needs_extra()
    elif path.suffix != ".html":
        raise InvalidParameter("pages and pictures are written as .html, .svg or .png", "choose by the ending of the file")


def estimates(counted: pa.Table, mechanism: Mechanism, estimator: Estimator, *, recorded: bool = True) -> dict[str, Estimate]:
    """Estimate every group of a table with columns report, n and the keys of the groups; return them by title.

    If the mechanism is not ``recorded`` for the reports, the estimates say so.

    Raises:
        NoReports: if the table is empty.
        InvalidParameter: if there are more groups than a page can show, or the reports are of sets of pairs.

    """
    titles, counts = titled(counted)
    parts = ((groups, replace(some, recorded=recorded)) for groups, some in estimated(mechanism, counts, estimator))
    return {titles[row]: part[place] for groups, part in parts for place, row in enumerate(groups)}


def titled(counted: pa.Table) -> tuple[list[str], GroupedCounts]:
    """Return the titles of the groups of a table, and the counts of its reports."""
    if not len(counted):
        raise NoReports()
    titles, group = _groups(counted)
    return titles, GroupedCounts.of(counted["report"].combine_chunks(), counted["n"].combine_chunks(), group)


def truths(counted: pa.Table, mechanism: Mechanism) -> dict[str, Floats]:
    """Return the true shares of every group, from a table like that of `estimates` with values in place of reports.

    The rules of the mechanism for NULL and for other values hold; without a rule for NULL, it is left out.
    """
    certified = certify_values(mechanism)
    counted = counted if mechanism.nulls else counted.filter(counted["report"].is_valid())
    if not len(counted):
        raise NoReports("there is not a single true value to compare with", "is the column of the truth empty?")
    titles, group = _groups(counted)
    size = len(certified.values)
    cells = group * size + certified.codes(counted["report"])
    counts = np.bincount(cells, weights=counted["n"].to_numpy(), minlength=len(titles) * size).reshape(len(titles), -1)
    return dict(zip(titles, counts / counts.sum(axis=1, keepdims=True), strict=True))


def _groups(counted: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
    """Return the titles of the groups, in the order of their keys, and the number of each row's group."""
    keys = [name for name in counted.column_names if name not in ("report", "n")]
    if not keys:
        return ["All reports"], np.zeros(len(counted), dtype=np.int64)
    rows = [tuple(str(value) for value in row) for row in zip(*(counted[key].to_pylist() for key in keys), strict=True)]
    groups = sorted(set(rows))
    if len(groups) > MAX_GROUPS:
        raise InvalidParameter(f"a page shows at most {MAX_GROUPS} groups, and there are {len(groups)}", "use ldpsql estimate")
    titles = [", ".join(f"{key} {value}" for key, value in zip(keys, group, strict=True)) for group in groups]
    return titles, np.array([groups.index(row) for row in rows])


def write(
    path: Path, by_title: Mapping[str, Estimate], truth: Mapping[str, Floats], sql: str = "", region: Region | None = None
) -> None:
    """Write a page (.html), or the pictures of the estimates alone (.svg, .png).

    Raises:
        InvalidParameter: if the file has another ending, or the region is not that of the mechanism's cells.

    """
    mechanism = _mechanism_of(next(iter(by_title.values())))

    def chart() -> AnyChart:
        from ldpsql.pages import figures  # noqa: PLC0415  # an extra

        charts: dict[str, AnyChart] = {}
        for title, one in by_title.items():
            true, places = truth.get(title), Places.of(one, region)
            if places and len(one.values) > MAX_BARS:
                both = {"Estimate": one.estimate} | ({} if true is None else {"Truth": true})
                charts[title] = figures.map_chart(places, both)
            else:
                charts[title] = figures.estimate_chart(_rows(one, true))
        return figures.stacked(charts)

    write_as(path, lambda: report_page(by_title, truth, mechanism, sql, region), chart)


def write_as(path: Path, page: Callable[[], str], chart: Callable[[], AnyChart]) -> None:
    """Write a page (.html) or a picture (.svg, .png); only what is written is made."""
    check(path)
    if path.suffix == ".html":
        path.write_text(page(), encoding="utf-8")
        return
    from ldpsql.pages import figures  # noqa: PLC0415  # an extra

    path.write_bytes(figures.to_svg(chart()).encode() if path.suffix == ".svg" else figures.to_png(chart()))


def _mechanism_of(one: Estimate) -> CertifiedValues:
    """Return the mechanism of an estimate; a page is about a single mechanism."""
    if isinstance(one.of.source, CertifiedRow):
        raise InvalidParameter(
            f"a report shows the reports of one column, and these are of {CertifiedRow.over}", CertifiedRow.remedy
        )
    if not isinstance(one.of.source, CertifiedValues):
        raise InvalidParameter(
            "a report shows the reports of one mechanism",
            "estimate mixed reports in SQL: ldp.ibu({level: level, report: report}, mechanisms)",
        )
    return one.of.source


def _rows(one: Estimate, truth: Floats | None) -> pl.DataFrame:
    """Return at most `MAX_BARS` rows of an estimate: values on a line in their order, others by falling share."""
    columns = {"value": one.values.texts, "estimate": one.estimate, "low": one.low, "high": one.high}
    rows = pl.DataFrame(columns | ({"truth": truth} if truth is not None else {})).with_row_index("place")
    largest = rows.sort("estimate", descending=True, maintain_order=True).head(MAX_BARS)
    return largest.sort("place") if ordered(one) else largest
