"""Sixty uses of reports as if they were the values, in SQL files and dbt models: all are found, and no alarm is false."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import ldpsql
from ldpsql.errors import InvalidParameter
from tests.commands import app, printed

ROOT = Path(__file__).parents[1]
MADE = """CREATE TABLE reports AS
SELECT id, region, ldp.perturb(city, city()) AS city, ldp.perturb(age, age()) AS age FROM people ORDER BY random();
"""
# A statement after MADE, and the kinds of use in it.
PLANTED = {
    "group": [
        "SELECT city, count(*) FROM reports GROUP BY city",
        "SELECT r.city, avg(n) FROM reports AS r GROUP BY r.city",
        "SELECT city, count(*) FROM reports GROUP BY ALL",
        "SELECT region, city, count(*) FROM reports GROUP BY 1, 2",
        "SELECT city AS town, count(*) FROM reports GROUP BY town",
        "SELECT region, count(*) FROM reports GROUP BY ROLLUP (region, city)",
        "SELECT lower(city) AS c, count(*) FROM reports GROUP BY c",
        "SELECT city, count(*) FROM main.reports GROUP BY city",
        "SELECT age // 10, count(*) FROM reports GROUP BY age // 10",
        "WITH r AS (FROM reports) SELECT city, count(*) FROM r GROUP BY city",
        "SELECT c, count(*) FROM (SELECT city AS c FROM reports) GROUP BY c",
        "CREATE VIEW v AS SELECT * EXCLUDE (age) FROM reports; SELECT city, count(*) FROM v GROUP BY city",
        "CREATE TABLE t AS SELECT * RENAME (city AS town) FROM reports; SELECT town, count(*) FROM t GROUP BY town",
        "WITH r(a, b, c) AS (SELECT id, region, city FROM reports) SELECT c, count(*) FROM r GROUP BY c",
        "FROM (FROM reports UNION ALL FROM older) SELECT city, count(*) GROUP BY city",
        "INSERT INTO log (town) SELECT city FROM reports; SELECT town, count(*) FROM log GROUP BY town",
        "COPY reports TO 'out.parquet'; SELECT city, count(*) FROM 'out.parquet' GROUP BY city",
        "SELECT city, count(*) FROM read_parquet('r.parquet') GROUP BY city; COPY reports TO 'r.parquet'",
        "CREATE TABLE p AS FROM ldp.perturb_rows(people, {home: city()}); SELECT home, count(*) FROM p GROUP BY home",
        "PIVOT reports ON city USING count(*)",
        "CREATE MACRO towns() AS TABLE SELECT city, count(*) FROM reports GROUP BY city",
        "CREATE MACRO own() AS TABLE SELECT city FROM reports; SELECT city, count(*) FROM own() GROUP BY city",
        "UPDATE people SET city = ldp.perturb(city, city()); SELECT city, count(*) FROM people GROUP BY city",
        "CREATE MACRO noisy(x) AS ldp.perturb(x, city()); SELECT c, 1 FROM (SELECT noisy(city) AS c FROM people) GROUP BY c",
        "SELECT city, ldp.sums(city, paid) AS s, count(*) FROM reports GROUP BY city",
        "SELECT city, sums(city, paid) AS s FROM reports GROUP BY city",
        "COMMENT ON COLUMN old.town IS 'ldpsql:3f krr'; SELECT town, count(*) FROM old GROUP BY town",
    ],
    "filter": [
        "SELECT count(*) FROM reports WHERE city = 'Lima'",
        "SELECT count(*) FROM reports WHERE region = 'north' AND age BETWEEN 20 AND 30",
        "SELECT count(*) FILTER (WHERE city = 'Lima') FROM reports",
        "SELECT sum(CASE WHEN city = 'Lima' THEN 1 ELSE 0 END) FROM reports",
        "SELECT sum(CASE city WHEN 'Lima' THEN 1 END) FROM reports",
        "SELECT city IN ('Lima', 'Oslo') AS south FROM reports",
        "SELECT * FROM reports WHERE starts_with(city, 'L')",
        "SELECT * FROM reports WHERE city LIKE 'L%'",
        "SELECT region FROM reports GROUP BY region HAVING bool_or(city = 'Lima')",
        "SELECT * FROM people WHERE city IN (SELECT city FROM reports)",
        "DELETE FROM reports WHERE city = 'Lima'",
        "UPDATE reports SET region = 'south' WHERE age > 30",
        "SELECT * FROM people AS p WHERE EXISTS (SELECT 1 FROM reports AS r WHERE r.city = p.city)",
        "SELECT * FROM reports WHERE NOT (age < 18)",
    ],
    "join": [
        "SELECT * FROM reports AS r JOIN cities AS c ON r.city = c.name",
        "SELECT country, count(*) FROM reports JOIN cities USING (city) GROUP BY country",
        "SELECT * FROM reports NATURAL JOIN cities",
        "MERGE INTO cities USING reports ON cities.name = reports.city WHEN MATCHED THEN UPDATE SET seen = true",
    ],
    "mean": [
        "SELECT avg(age) FROM reports",
        "SELECT region, sum(age) FROM reports GROUP BY region",
        "SELECT mean(age) FROM reports",
    ],
    "quantile": ["SELECT median(age) FROM reports", "SELECT quantile_cont(age, 0.9) FROM reports"],
    "variance": ["SELECT stddev(age) FROM reports"],
    "aggregate": ["SELECT min(age) FROM reports", "SELECT max(age) OVER (PARTITION BY region) FROM reports"],
    "distinct": [
        "SELECT DISTINCT city FROM reports",
        "SELECT count(DISTINCT city) FROM reports",
        "SELECT approx_count_distinct(city) FROM reports",
        "SELECT DISTINCT ON (city) * FROM reports",
        "SELECT city FROM reports UNION SELECT city FROM older",
    ],
    "order": ["SELECT * FROM reports ORDER BY age DESC LIMIT 10", "SELECT mode(city) FROM reports"],
    "window": [
        "SELECT row_number() OVER (PARTITION BY city) FROM reports",
        "SELECT rank() OVER (ORDER BY age) FROM reports",
    ],
}  # fmt: skip
WORDS = {
    "group": "groups by", "filter": "compares", "join": "joins on", "mean": "adds up", "quantile": "a quantile of",
    "variance": "the spread of", "aggregate": "aggregates", "distinct": "distinct", "order": "ranks or chooses",
    "window": "window",
}  # fmt: skip
CASES = [(kind, statement) for kind, listed in PLANTED.items() for statement in listed]
# Models of one dbt project after the model `reports`; each uses reports once.
MODELS = {
    "group": "{{ config(materialized='table') }}\nselect city, count(*) as n\nfrom {{ ref('reports') }}\ngroup by city",
    "filter": """select * from {{ ref('people', 'stg_reports') }}
        {% if is_incremental() %} where city = '{{ var("city") }}' {% endif %}""",
    "join": """{% set r = ref('reports') %} with r as (select * from {{ r }})
        select * from r join {{ source('raw', 'cities') }} c on r.city = c.name""",
    "mean": "select region, avg(age) as age from {{ ref('stg_reports') }} group by region",
    "distinct": "select distinct town from {{ ref('renamed') }}",
}
REPORTS = """{{ config(unique_key='id') }}
select id, ldp.perturb(city, ldp.m.city()) as city, ldp.perturb(age, ldp.m.age()) as age
from {{ ref('people') }} order by random()"""
STAGED = "select * from {{ ref('reports') }} {% if target.name == 'dev' %} where id < 9 {% else %} where id > 0 {% endif %}"
ALLOWED = [
    "SELECT region, ldp.ibu(city, city()) FROM reports GROUP BY region",
    "SELECT region, count(*) FROM reports WHERE id > 7 GROUP BY region",
    "SELECT region, ldp.mean(age, age()) AS m FROM reports GROUP BY region ORDER BY m LIMIT 3",
    "FROM ldp.estimate(reports, city, city()) WHERE value = 'Lima' ORDER BY estimate DESC LIMIT 10",
    "SELECT value, count(*) FROM (SELECT unnest(ldp.ibu(city, city()), recursive := true) FROM reports) GROUP BY value",
    "SELECT count(city) FROM reports WHERE city IS NOT NULL",
    "SELECT city AS report, count(*) AS n FROM reports GROUP BY city",
    "SELECT region, ldp.sums(city, paid) AS s FROM reports GROUP BY region, city",
    "SELECT city, ldp.sums(city, paid) AS s FROM reports GROUP BY city",
    "SELECT city, ldp.sums(city, paid) AS s FROM reports GROUP BY ALL",
    "SELECT r.city, ldp.sums(r.city, paid) AS s FROM reports AS r GROUP BY 1",
    "SELECT day, ldp.counts(city) AS counts FROM reports GROUP BY day",
    "SELECT id, arg_max(city, day) AS city, any_value(age) FROM reports GROUP BY id",
    "SELECT id, list(city) AS cities FROM reports GROUP BY id",
    "CREATE TABLE kept AS SELECT * FROM reports ORDER BY random() LIMIT 100",
    "SELECT city, count(*) FROM people GROUP BY city",
    "SELECT city FROM people WHERE city = 'Lima' UNION SELECT city FROM cities",
    "SELECT * FROM reports AS r JOIN regions AS g USING (region) JOIN people AS p ON p.id = r.id WHERE p.city = 'Lima'",
    "SELECT city, count(*) -- ldpsql: allow\nFROM reports GROUP BY city",
    "CREATE MACRO shares(x) AS ldp.ibu(x, city()); SELECT shares(city) AS s FROM reports ORDER BY s LIMIT 1",
    "SELECT * FROM people WHERE id IN (SELECT id FROM reports)",
    "SELECT DISTINCT region FROM reports",
    "SELECT 'city' AS city, 1 AS n FROM regions GROUP BY city",
]


def linted(folder: Path, **texts: str) -> list[tuple[str, int, str]]:
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
    places = [place for place in found(folder) if place["kind"] == "use of reports"]
    return [(Path(place["file"]).stem, place["line"], place["problem"]) for place in places]


def found(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads(printed("lint", str(folder), "--format", "json")))


def test_there_are_sixty_planted_uses() -> None:
    assert len(CASES) >= 60


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "statement"), CASES, ids=[statement[-60:] for _, statement in CASES])
def test_every_planted_use_is_found_in_the_line_of_the_column(kind: str, statement: str, tmp_path: Path) -> None:
    problems = linted(tmp_path, queries=f"{MADE}{statement}")
    assert [line for _, line, _ in problems] == [3] * len(problems)
    assert problems
    assert all(WORDS[kind] in problem for _, _, problem in problems), problems


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("SELECT city, avg(id) FROM reports GROUP BY city", "SELECT unnest(ldp.outcome(city, city(), id)"),
        ("SELECT region, city, sum(id) AS s FROM reports GROUP BY ALL", "ldp.outcome(city, city(), id, measure := 'sum')"),
        ("SELECT city, sum(id * w) / sum(w) FROM reports GROUP BY city", "ldp.outcome(city, city(), id, weight := w)"),
        ("SELECT region, city, avg(id) FROM reports GROUP BY region, city", "FROM reports GROUP BY region"),
        ("SELECT city, avg(age) FROM reports GROUP BY city", "FROM ldp.estimate(reports, city, city())"),
    ],
)
def test_the_remedy_for_averages_by_reports_is_the_outcome_of_the_columns(statement: str, call: str, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(f"{MADE}{statement}", encoding="utf-8")
    assert any(call in place["remedy"] for place in found(tmp_path)), found(tmp_path)


@pytest.mark.parametrize("kind", MODELS)
def test_uses_in_dbt_models_are_found_through_references(kind: str, tmp_path: Path) -> None:
    problems = linted(
        tmp_path,
        a_use=MODELS[kind],  # read before what it refers to
        reports=REPORTS,
        stg_reports=STAGED,
        renamed="select id, city as town from {{ ref('stg_reports') }}",
    )
    assert {name for name, _, _ in problems} == {"a_use"}
    assert all(WORDS[kind] in problem for _, _, problem in problems), problems


def test_the_line_of_a_use_in_a_template_is_that_of_the_file(tmp_path: Path) -> None:
    assert [line for _, line, _ in linted(tmp_path, reports=MADE, m=MODELS["group"])] == [4]
    text = "{# a\ncomment #}{% macro f() %}\nbroken{% endmacro %}select city, {{ x.y }}, '{{ var(\"d\") }}'\n"
    text += "from {{ ref('reports') }} join {{ x.z() }} using (id)\n"
    assert [line for _, line, _ in linted(tmp_path, reports=MADE, m=f"{text}where city = 'Lima'")] == [5]


@pytest.mark.parametrize("statement", ALLOWED, ids=range(len(ALLOWED)))
def test_sound_queries_give_no_alarm(statement: str, tmp_path: Path) -> None:
    assert linted(tmp_path, queries=f"{MADE}{statement}") == []


def test_the_message_says_what_to_write_instead(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(f"{MADE}SELECT avg(age),\n min(city) FROM reports", encoding="utf-8")
    first, second = found(tmp_path)
    assert first["remedy"] == "ldp.mean(age, age()); a sum is that times count(age)"
    assert (second["line"], second["remedy"]) == (
        4, "estimate the values, and compute from the estimates: FROM ldp.estimate(reports, city, city())"
    )  # fmt: skip
    ran = CliRunner().invoke(app, ["lint", str(tmp_path), "--format", "csv"])
    assert ran.exit_code == 3
    assert "ldp.mean(age, age())" in ran.stdout


def test_a_group_by_of_several_columns_of_reports_asks_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(f"{MADE}SELECT city, age, region FROM reports GROUP BY ALL", encoding="utf-8")
    remedies = [place["remedy"] for place in found(tmp_path)]
    assert remedies == [
        f"estimate the table: FROM ldp.margin(reports, {{{name}: {name}, ...}}, ldp.row({{{name}: {name}(), ...}}))"
        for name in ("city", "age")
    ]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return a database with reports of cities and two uses of them, and with a Parquet file of reports next to it."""
    people = pa.table({"city": ["Lima", "Oslo"] * 50, "region": ["north", "south"] * 50})
    with ldpsql.connect(str(tmp_path / "warehouse.duckdb")) as con:
        ldpsql.perturb_table(con, people, "reports", {"city": "krr(1, ['Lima', 'Oslo'])"}, keep=["region"])
        ldpsql.perturb_copy(con, people, tmp_path / "out.parquet", {"city": "krr(1, ['Lima', 'Oslo'])"}, keep=["region"])
        con.execute("CREATE VIEW by_city AS SELECT city, count(*) FROM reports GROUP BY city")
        con.execute("CREATE VIEW by_region AS SELECT region, count(*) FROM reports GROUP BY region")
        con.execute("CREATE VIEW shares AS FROM ldp.estimate(reports, city)")
        con.execute('CREATE MACRO "of city"(x) AS TABLE SELECT count(*) FROM reports WHERE city = x')
    return tmp_path / "warehouse.duckdb"


def test_sql_lints_the_views_and_macros_of_its_database(warehouse: Path) -> None:
    with ldpsql.connect(str(warehouse)) as con:
        findings = con.execute("SELECT kind, name FROM ldp.lint() ORDER BY kind").fetchall()
        assert findings == [("macro", "main.of city"), ("view", "main.by_city")]
        con.execute("CREATE VIEW redraws AS SELECT ldp.perturb(region, ldp.krr(1, ['north', 'south'])) FROM reports")
        con.execute(
            "CREATE TABLE computed (x VARCHAR, r AS (CAST(ldp.perturb(x, ldp.krr(1, ['a', 'b'])) AS VARCHAR)), u AS (x || '!'))"
        )
        con.execute("CREATE TABLE checked (x VARCHAR, CHECK (ldp.perturb(x, ldp.krr(1, ['a', 'b'])) = 'a'), CHECK (x <> 'c'))")
        drawn = {
            ("view", "main.redraws", "read"),
            ("generated column of table", "main.computed", "read"),
            ("check constraint of table", "main.checked", "insert"),
        }
        found = con.execute("SELECT kind, name, regexp_extract(problem, 'every (\\w+) draws', 1) FROM ldp.lint()").fetchall()
        assert {one for one in found if one[2]} == drawn
    with ldpsql.connect() as con:
        assert con.execute("FROM ldp.lint()").fetchall() == []


def test_the_columns_of_a_database_and_of_parquet_files_are_known_by_their_records(warehouse: Path, tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    file = tmp_path / "out.parquet"
    text = f"SELECT avg(city) FROM '{file}';\nSELECT DISTINCT city FROM reports;\nSELECT region FROM reports GROUP BY region"
    (folder / "q.sql").write_text(text, encoding="utf-8")
    ran = CliRunner().invoke(app, ["lint", str(folder), "--database", str(warehouse), "--format", "json"])
    rows = json.loads(ran.stdout)
    assert [(row["line"], row["kind"]) for row in rows] == [
        (1, "use of reports"), (2, "use of reports"), (0, "macro main.of city"), (0, "view main.by_city")
    ]  # fmt: skip
    assert rows[0]["remedy"] == f"ldp.mean(city, ldp.mechanism('{file}', 'city')); a sum is that times count(city)"
    assert rows[1]["remedy"] == "estimate which values occur: FROM ldp.estimate(reports, city)"
    assert isinstance(CliRunner().invoke(app, ["lint"]).exception, InvalidParameter)


def blocks(page: Path) -> str:
    return ";\n".join(re.findall(r"^```sql\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


@pytest.mark.slow
def test_the_documentation_and_the_examples_give_no_alarm(tmp_path: Path) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for place, page in enumerate(pages):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert linted(folder, page=blocks(page)) == [], page
    places = found(ROOT / "examples")
    assert [place for place in places if place["kind"] == "use of reports"] == []
