"""What the four reproductions share: data, pictures, and the table that states for each figure whether it agrees."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any, Literal, TypeAlias
from warnings import simplefilter

import altair as alt
import duckdb
import numpy as np
import polars as pl
from page_tables import html_table, markdown

import ldpsql
from ldpsql.errors import PrivacyLeakWarning
from ldpsql.pages import figures
from ldpsql.pages.document import Markup, code, document, folded, joined, tag

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"  # data that may not be shipped; --data names another folder
ABSENT = "its data are not here"


COLUMNS = ("figure", "paper", "here", "verdict", "why")
WITHIN = 3.0  # standard deviations of one run


Verdict: TypeAlias = Literal[
    "agrees", "agrees after tuning", "does not tell", "differs", "cannot decide", "not run", "beyond the paper"
]


class Missing(Exception):
    """A file that may not be shipped is missing."""


@dataclass(frozen=True)
class Finding:
    """One figure of the paper next to ours; ``why`` says why they differ, or what ours shows."""

    figure: str
    paper: str
    ours: str
    verdict: Verdict
    why: str = ""

    @classmethod
    def checked(cls, figure: str, paper: str, ours: str, agrees: bool, why: str = "", note: str = "") -> Finding:
        """Return whether a claim of the paper holds here, with ``why`` if it does not, and a ``note`` if it does."""
        return cls(figure, paper, ours, "agrees" if agrees else "differs", note if agrees else why or note)

    def against(self, mutants: Mapping[str, Finding], rival: str = "") -> Finding:
        """Return the finding, "does not tell" if its claim also holds with every mutant in place of the method.

        Args:
            mutants: the finding with each of them.
            rival: the mutant that the method is claimed to improve: if the claim holds with it, it does not tell either.

        """
        if self.verdict != "agrees":
            return self
        passed = [name for name, own in mutants.items() if own.verdict == "agrees"]
        turned = [name for name in mutants if name not in passed]
        notes = [
            f"it {how} with {', '.join(names)}" for how, names in (("also holds", passed), ("does not hold", turned)) if names
        ]
        verdict: Verdict = "does not tell" if rival in passed or not turned else "agrees"
        return replace(self, verdict=verdict, why="; ".join(filter(None, (self.why, *notes))))

    @classmethod
    def of_one_run(
        cls, figure: str, published: float, ours: np.ndarray, others: Sequence[np.ndarray], tuned: str = ""
    ) -> Finding:
        """Return whether the figure of the paper's one run is a likely one here.

        Args:
            figure: which figure of the paper.
            published: the paper's number.
            ours: that number in many runs.
            others: the same at other epsilons. If one of these would agree as well, the number cannot decide anything.
            tuned: what was chosen with the truth, if anything was.

        """
        away, *far = (float((published - runs.mean()) / runs.std(ddof=1)) for runs in (ours, *others))
        verdict, why = cls._of_deviations(away, far, tuned)
        text = (f"{ours.mean():.4f}, {ours.min():.4f} to {ours.max():.4f} in {len(ours)} runs: the paper's run is {away:+.1f} standard "
                f"deviations from the mean, at other epsilons {', '.join(f'{deviations:+.1f}' for deviations in far)}")  # fmt: skip
        return cls(figure, f"{published}", text, verdict, why)

    @staticmethod
    def _of_deviations(away: float, far: Sequence[float], tuned: str) -> tuple[Verdict, str]:
        """Return a verdict and its reason, from the standard deviations between the paper's run and ours, and other epsilons."""
        if abs(away) > WITHIN:
            return "differs", tuned
        if min(map(abs, far)) <= WITHIN:
            return "cannot decide", "; ".join(filter(None, (tuned, "runs at another epsilon would agree as well")))
        return ("agrees after tuning", tuned) if tuned else ("agrees", "")


Frames: TypeAlias = tuple[pl.DataFrame, ...]


def mutants_of(frames: Frames, replaced: Mapping[str, Mapping[str, str]], column: str) -> dict[str, Frames]:
    """Return frames with each mutant: other methods, which ``column`` names, in place of some."""

    def in_place(rows: pl.DataFrame, methods: Mapping[str, str]) -> pl.DataFrame:
        others = [
            rows.filter(pl.col(column) == other).with_columns(pl.lit(name).alias(column)) for name, other in methods.items()
        ]
        return pl.concat([rows.filter(~pl.col(column).is_in(list(methods))), *others])

    return {name: tuple(in_place(rows, methods) for rows in frames) for name, methods in replaced.items()}


def against_each(findings: Sequence[Finding], mutants: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Return each finding against those of the mutants that move its measurement, or of all if none does."""
    tried = []
    for at, finding in enumerate(findings):
        own = {name: each[at] for name, each in mutants.items()}
        tried.append(finding.against({name: each for name, each in own.items() if each.ours != finding.ours} or own))
    return tried


def tested(decide: Callable[..., Sequence[Finding]], frames: Frames, mutants: Mapping[str, Frames]) -> list[Finding]:
    """Return what frames decide, each finding against what the frames of mutants decide."""
    return against_each(decide(*frames), {name: decide(*own) for name, own in mutants.items()})


@dataclass
class Reproduction:
    """One paper: what was run, its pictures and its findings.

    ``contents`` lists every figure and table of the paper, with the reason if it is not reproduced.
    """

    title: str
    source: str
    sql: str = ""
    contents: dict[str, str] = field(default_factory=dict)
    sections: list[Markup] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def picture(self, title: str, text: str, chart: Any) -> None:
        """Add a picture."""
        self.sections.append(_section(title, text, figures.to_svg(chart)))

    def table(self, title: str, text: str, rows: pl.DataFrame) -> None:
        """Add a table."""
        self.sections.append(_section(title, text, html_table(rows.columns, rows.rows())))

    def every(self) -> list[tuple[str, str, str]]:
        """Return each figure and table of the paper, its verdicts, and the reason if it has none."""
        rows = []
        for label, reason in self.contents.items():
            own = re.compile(rf"{re.escape(label)}(?![\dIVX])")
            verdicts = Counter(f.verdict for f in self.findings if own.search(f.figure) and f.verdict != "beyond the paper")
            text = ", ".join(f"{verdict} ({n})" for verdict, n in verdicts.items())
            rows.append((label, text or "not reproduced", "" if text else reason or ABSENT))
        return rows

    def write(self, folder: Path) -> Path:
        """Write the page, the tables of agreement first, and these tables alone as Markdown."""
        rows = [(f.figure, f.paper, f.ours, f.verdict, f.why) for f in self.findings]
        agreement, every = (COLUMNS, rows), (("figure or table", "verdicts of its claims", "why not"), self.every())
        first = [
            _section("Figure by figure", "What the paper reports and what was found here.", html_table(*agreement)),
            _section("All figures and tables", "Each claim has a verdict of its own below.", html_table(*every)),
        ]
        page = folder / f"{self.title.lower().replace(' ', '_')}.html"
        sql = folded("The SQL", code(self.sql)) if self.sql else None
        page.write_text(document(self.title, self.source, [], joined(sql, *first, *self.sections)), "utf-8")
        page.with_suffix(".md").write_text(markdown(self.title, self.source, every, agreement), "utf-8")
        return page


def _section(title: str, text: str, inside: str) -> Markup:
    """Return a picture or a table, as HTML, with its title and one sentence."""
    return tag("section", tag("h2", title), tag("p", text), tag("div", Markup(inside), class_="picture"))


def shared(name: str) -> Path:
    """Return a file that may not be shipped.

    Raises:
        Missing: if it does not exist.

    """
    path = SHARED / name
    if not path.is_file():
        raise Missing(f"{name} is missing: this part is skipped")
    return path


def connect() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection with the functions on it."""
    con = ldpsql.connect()
    con.execute("CREATE MACRO name_of(i) AS format('v{:04d}', i)")
    return con


def frame(con: duckdb.DuckDBPyConnection, sql: str) -> pl.DataFrame:
    """Return the rows of a query."""
    return con.sql(sql).pl()


def people(con: duckdb.DuckDBPyConnection, counts: list[int], named: bool = False) -> None:
    """Make the tables ``people`` (value 0, 1, ... or, named, v0000, v0001, ...) and ``truth`` (one row: p, the shares).

    Numbers in rising order are neighbours to an estimator; names are categories in no order.
    """
    con.execute(f"CREATE OR REPLACE TABLE people AS SELECT {'name_of(i - 1)' if named else 'i - 1'} AS value FROM "
                "(SELECT unnest(?::BIGINT[]) AS n, generate_subscripts(?::BIGINT[], 1) AS i), LATERAL range(n)", [counts, counts])  # fmt: skip
    con.execute("CREATE OR REPLACE TABLE truth AS SELECT ?::DOUBLE[] AS p", [(np.array(counts) / sum(counts)).tolist()])


def names(size: int) -> str:
    """Return the SQL list of this many names."""
    return f"list_transform(range({size}), lambda i: name_of(i))"


def perturbed(con: duckdb.DuckDBPyConnection, mechanism: str, runs: int) -> None:
    """Perturb everybody ``runs`` times with the mechanism m(); keep the counts of each run in the table ``counted``."""
    con.execute(f"CREATE OR REPLACE MACRO m() AS {mechanism}")
    con.execute(
        "CREATE OR REPLACE TABLE counted AS SELECT run, ldp.counts(report) AS counts FROM "
        f"(SELECT run, ldp.perturb(value, m()) AS report FROM people, range({runs}) t(run)) GROUP BY run"
    )


def certificate(con: duckdb.DuckDBPyConnection, paper: Reproduction, figure: str, prefix: str = "") -> None:
    """Add what ldp.diagnose certifies for the first run of ``counted``: about the maximum, and about 100 steps of IBU."""
    gaps = [
        frame(con, "SELECT unnest(ldp.diagnose(counts, m(), estimator := "
                   f"'{estimator}')), list_sum(map_values(counts))::DOUBLE AS n FROM counted WHERE run = 0").row(0, named=True)
        for estimator in ("ibu", "ibu(stop=100)")
    ]  # fmt: skip
    best, early = (diagnosis["gap"] * diagnosis["n"] for diagnosis in gaps)
    paper.findings.append(
        Finding(figure, "none", f"{prefix}at most {best:.1e} of log-likelihood missing, unique: {gaps[0]['unique']}; after 100 steps "
                f"at most {early:.1e}", "beyond the paper", "n times the gap bounds what any distribution could still gain")
    )  # fmt: skip


def away(differences: np.ndarray) -> float:
    """Return by how many standard errors the mean of paired differences is above zero; 0 if they are all alike."""
    spread = differences.std(ddof=1) / sqrt(len(differences))
    return float(differences.mean() / spread) if spread else 0.0


def refusal(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the message with which a query is refused."""
    try:
        con.execute(sql).fetchall()
    except duckdb.InvalidInputException as error:
        message = str(error)
        return message[message.index("[LDP") :].splitlines()[0] if "[LDP" in message else message
    return "not refused"


def boxes(rows: pl.DataFrame, x: str, y: str, colour: str, title: str = "") -> alt.Chart:
    """Draw one box for each ``colour`` at each ``x``: whiskers from the smallest to the largest."""
    return (
        alt.Chart(rows)
        .mark_boxplot(extent="min-max", size=9)
        .encode(
            x=alt.X(f"{x}:O", title=x),
            xOffset=alt.XOffset(f"{colour}:N"),
            y=alt.Y(f"{y}:Q", title=y),
            color=alt.Color(f"{colour}:N", title=None),
        )
        .properties(width=460, height=220, title=title)
    )


def lines(rows: pl.DataFrame, x: str, y: str, colour: str, log: bool = False) -> alt.Chart:
    """Draw one line for each ``colour``, the mean over the repeats."""
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    return (
        alt.Chart(rows)
        .mark_line(point=True)
        .encode(x=f"{x}:Q", y=alt.Y(f"mean({y}):Q", title=y, scale=scale), color=alt.Color(f"{colour}:N", title=None))
        .properties(width=460, height=220)
    )


def bars(rows: pl.DataFrame) -> alt.FacetChart:
    """Draw ``share`` over ``value`` (numbers), one panel for each ``panel``."""
    return (
        alt.Chart(rows)
        .mark_bar(width=3)
        .encode(x=alt.X("value:Q", title=None), y=alt.Y("share:Q", title=None))
        .properties(width=210, height=110)
        .facet(facet=alt.Facet("panel:N", title=None, sort=None), columns=2)
    )


def maps(rows: pl.DataFrame, columns: int) -> alt.FacetChart:
    """Draw ``share`` over the cells of a grid, ``value`` = row * columns + column, one map for each ``panel``."""
    placed = rows.with_columns(column=pl.col("value") % columns, row=pl.col("value") // columns)
    return (
        alt.Chart(placed)
        .mark_rect()
        .encode(
            x=alt.X("column:O", axis=None),
            y=alt.Y("row:O", axis=None, sort="descending"),
            color=alt.Color("share:Q", scale=alt.Scale(scheme="viridis", type="sqrt"), legend=None),
        )
        .properties(width=216, height=144)
        .facet(facet=alt.Facet("panel:N", title=None, sort=None), columns=2)
    )


Part = Callable[[duckdb.DuckDBPyConnection, Reproduction, bool], None]


def run(reproduction: Reproduction, parts: Sequence[Part], full: bool) -> Reproduction:
    """Run the parts of a paper, each in a process, and print what each found; one whose data are missing is left out."""
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_begin, initargs=(SHARED,)) as processes:
        alone = [processes.submit(_found, part, replace(reproduction, findings=[], sections=[]), full) for part in parts]
        for part, future in zip(parts, alone, strict=True):
            own, missing, used = future.result()
            for finding in own.findings:
                print(f"{own.title}, {finding.verdict}, {finding.figure}: {finding.paper} | {finding.ours}  {finding.why}")
            name = getattr(part, "func", part).__name__
            print(
                f"{own.title}: {missing}\n" if missing else "",
                f"{own.title}, {name}: {used:.0f} CPU seconds",
                sep="",
                flush=True,
            )
            reproduction.findings += own.findings
            reproduction.sections += own.sections
            reproduction.seconds += used
    return reproduction


def _begin(shared: Path) -> None:
    """Let a process see the data of its parent; the papers go up to an epsilon that protects very little."""
    global SHARED  # noqa: PLW0603  # before the module of a part is imported
    SHARED = shared
    simplefilter("ignore", PrivacyLeakWarning)


def _found(part: Part, reproduction: Reproduction, full: bool) -> tuple[Reproduction, str, float]:
    """Return what a part found, which file it misses, and the processor time that it took."""
    missing, start = "", process_time()
    with connect() as con:
        try:
            part(con, reproduction, full)
        except Missing as error:
            missing = str(error)
    return reproduction, missing, process_time() - start
