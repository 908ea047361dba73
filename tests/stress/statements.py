"""Statements that call the functions of SQL with arguments that nobody would pass: all of them, public and internal."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from inspect import unwrap

from duckdb import DuckDBPyConnection

from ldpsql.engine.arguments import Arguments
from ldpsql.engine.functions import Scalar
from ldpsql.functions import registry

CANARY = "canary-7f3a"  # in the columns of the tables, never in an argument that the caller writes
NAMES = """
    SELECT function_name, function_type, max_by(parameters, len(parameters)) FROM duckdb_functions()
    WHERE database_name = 'ldp' OR (database_name = 'system' AND starts_with(function_name, '__ldp_'))
    GROUP BY ALL ORDER BY ALL"""


def _listed(text: str) -> list[str]:
    """Return the expressions of a text, between bars or lines."""
    return [one for line in text.strip().splitlines() for one in line.strip().split(" | ")]


ODD = _listed("""
    NULL | true | 0 | -1 | 1e308 | 9223372036854775807 | 170141183460469231731687303715884105727::HUGEINT | 1e12::BIGINT
    0.5 | 1.5::DECIMAL(18, 3) | 1e-400 | 'nan'::DOUBLE | '-infinity'::DOUBLE | 12345678901234567890.1::DECIMAL(38, 10)
    '' | 'it''s "quoted"; --' | chr(0) | '\xe9\u202e\U0001f600' | 'a' || chr(0) || 'b' | repeat('[', 300) | '\\xFF'::BLOB
    INTERVAL 1 DAY | [INTERVAL 1 DAY, NULL] | {'a': INTERVAL 1 MONTH} | MAP {'a': INTERVAL 1 DAY} | [[INTERVAL 1 DAY]]
    DATE '0001-01-01' | 'infinity'::DATE | TIME '24:00:00' | TIMESTAMPTZ '2020-02-28 00:00:00+14' | TIMETZ '12:00:00+15'
    TIMESTAMP_NS '2020-01-01 00:00:00.123456789' | uuid() | '1011'::BIT | 'a'::ENUM('a', 'b') | union_value(a := 1)
    '{"a": [1, null]}'::JSON | [1, 2, 3]::INTEGER[3] | [] | [NULL] | [[]] | [[1, NULL], NULL, []] | [0.1, 0.2, 0.7]
    ['a', 'b', 'a'] | [{'a': 1}, NULL] | [union_value(a := 1)] | MAP {} | MAP {'a': NULL} | MAP {'a': -1} | MAP {1: 1.5}
    MAP {[1]: 2} | MAP {{'a': 1}: 3} | MAP {'a': MAP {'b': 1}} | {'a': NULL} | {'mechanism': 'krr'} | {'mechanism': NULL}
    {'seed': -1, 'y': 300} | {'words': 1} | row(1, 'a') | range(100000) | range(3000)::VARCHAR[] | [range(300)]
    repeat('a', 100000) | lambda x: x | list_transform(range(40), lambda i: range(40))
""")
MECHANISMS = _listed("""
    ldp.krr(1, ['a', 'b', 'c']) | ldp.oue(0.5, [1, 2, 3]) | ldp.olh(2, range(50)) | ldp.geometric(1, 0, 20)
    ldp.laplace(1, 0, 10) | ldp.hierarchy(1, 0, 40) | ldp.planar_geometric(1, 4, 4) | ldp.grid_hierarchy(1, 8, 8)
    ldp.subset_selection(1, ['a', 'b', 'c']) | ldp.pem(3) | ldp.pckv_grr(2, ['x', 'y']) | ldp.pckv_ue(2, ['x', 'y'])
    ldp.square_wave(1, 0, 1) | ldp.piecewise(1, -1, 1)
    ldp.row({city: ldp.krr(1, ['a', 'b']), age: ldp.geometric(1, 0, 9)})
    ldp.joint_krr(1, {city: ['a', 'b'], old: [true, false]}) | ldp.joint_olh(1, {city: ['a', 'b'], old: [true, false]})
    ldp.krr(1, [DATE '2020-01-01', DATE '2020-01-02']) | ldp.gaussian(1, 0, 5, delta := 0.01) | ldp.rappor(1, ['a', 'b'])
    ldp.loloha(2, 1, ['a', 'b']) | ldp.encoding(1, ['a', 'b']) | ldp.hadamard_response(1, range(20))
    ldp.krr(1, range(3000)) | ldp.krr(32, [1.5, 2.5]::DECIMAL(4, 1)[]) | 'krr(1, [''a'', ''b''])' | 'oue(1, range(100))'
    'city' | '' | ldp.matrix(2, ['a', 'b'], [[0.7, 0.3], [0.3, 0.7]]) | ldp.stochastic_rounding(1, 0, 1)
    ldp.olh(3, range(1000000)) | ldp.krr(1, range(20000)) | ldp.oue(1, range(100000))
    ldp.subset_selection(.5, range(100000)) | ldp.hierarchy(1, 0, 1023, step := 1) | ldp.planar_geometric(1, 64, 64)
    ldp.grid_hierarchy(1, 64, 64)
""")
HANDLES = ["system.main.__ldp_mechanism({})", "system.main.__ldp_plan('ibu', system.main.__ldp_mechanism({}), NULL)"]
COUNTS = _listed("""
    MAP {'a': 10, 'b': 4} | MAP {1: 7, 2: 3, 3: 1} | MAP {true: 4, false: 2} | map(range(50), range(50))
    map(range(20000), range(20000)) | MAP {[1, 0, 1]: 4} | MAP {{'seed': 1, 'y': 0}: 4} | MAP {{'level': 1, 'y': 3}: 4}
    MAP {{'city': 'a', 'age': 3}: 9} | MAP {['a', 'c']: 3} | MAP {{'key': 'x', 'sign': 1}: 4} | MAP {0.5: 3}
    MAP {'a': 9007199254740993}
""")
TEXTS = _listed("""
    'ibu' | 'inv' | 'best' | 'em_mr' | 'tree' | 'shared' | 'pool' | 'corrected_em(simulate=9)' | 'held_out' | 'odd' | 'city'
    'reports' | 'none' | 'total_variation' | 'mean' | 'ignore' | 'refuse' | 'as:a' | 'drop' | 'wasserstein' | 'quantiles'
""")
_ARGUMENTS = """
    reports = 'odd' | reports | 'planted' | 100000 | 1e12::BIGINT | ['a', 'b']
    t = odd | planted | reports
    report = x | city | 'a' | 1 | [1, 0, 1] | {'seed': 1, 'y': 0}
    x = 'a' | 1 | true | [1]
    domain = ['a', 'b'] | range(9) | range(50000)
    epsilon = 1 | 0.5 | '1' | 32
    epsilons = [1, 2]
    q = 0.5
    qs = [0.25, 0.5]
    low = 0
    high = 10 | 1000000
    lows = [0, 2]
    highs = [1, 9]
    columns = {city: ldp.krr(1, ['a', 'b'])} | ['city', 'age'] | ['city']
    keys = 'city' | ['x', 'y']
    grid = ldp.grid(-1, 1, -1, 1, 4, 4)
    stop = 'held_out' | 'maximum' | 100
    p = [0.5, 0.5] | [1.0]
    level = 'low'
    given = {city: 'a'}
    of = 'city' | {city: 'a'}
    prior = [0.5, 0.5] | NULL
    delta = 1e-6 | 1e-12
    deadline = 1 | 0.001
    keep = true | ['city']
    distances = [[0, 1], [1, 0]] | list_transform(range(300), lambda i: range(300))
    size = 10 | 1000000
    width = 10
    rows = 10 | 1e9::BIGINT
    runs = 3 | 1e9::BIGINT
    user_id = 1 | 'u'
    estimators = ['ibu', 'inv']
"""
PLAIN: Mapping[str, Sequence[str]] = {
    "m": MECHANISMS,
    "mechanisms": [f"MAP {{'low': {m}, 'high': {m}}}" for m in MECHANISMS[:6]],
    "counts": COUNTS,
    "others": COUNTS,
    "estimator": TEXTS,
    "question": TEXTS,
    **{name: _listed(texts) for name, texts in (line.strip().split(" = ", 1) for line in _ARGUMENTS.strip().splitlines())},
}
TABLES = f"""
    CREATE TABLE planted AS SELECT unnest([
        {{'x': '{CANARY}', 'city': '{CANARY} é', 'n': 1}}, NULL, {{'x': 'a', 'city': chr(0) || '{CANARY}', 'n': NULL}}
    ], recursive := true);
    ALTER TABLE planted ADD COLUMN l VARCHAR[] DEFAULT ['{CANARY}', NULL];
    ALTER TABLE planted ADD COLUMN s STRUCT(city VARCHAR, age BIGINT) DEFAULT {{'city': '{CANARY}', 'age': 1}};
    ALTER TABLE planted ADD COLUMN b BLOB DEFAULT '{CANARY}'::BLOB;
    ALTER TABLE planted ADD COLUMN j JSON DEFAULT '{{"{CANARY}": "{CANARY}"}}';
    ALTER TABLE planted ADD COLUMN counts MAP(VARCHAR, BIGINT) DEFAULT MAP {{'{CANARY}': 3}};
    CREATE TABLE reports AS SELECT ['a', 'b', 'c', NULL][i % 4 + 1] AS x, i % 20 AS city, (i % 7)::DOUBLE AS n
        FROM range(2000) t(i);
    CREATE MACRO city() AS ldp.krr(1, ['a', 'b']);
"""


def odd_table(con: DuckDBPyConnection) -> int:
    """Create the tables, one of them with a column of each odd type, and return how many columns that one has."""
    con.execute(TABLES)
    columns = [text for text in ODD if not text.startswith(("lambda", "NULL"))]
    listed = ", ".join(f"({text}) AS c{i}" for i, text in enumerate(columns))
    nulls = ", ".join("NULL" for _ in columns)
    con.execute(f"CREATE TABLE odd AS SELECT {listed} UNION ALL SELECT {nulls} UNION ALL SELECT {listed}")
    return len(columns)


class Statements:
    """Makes statements that call functions; `functions` lists all that a connection has, so new ones are called, too."""

    def __init__(self, con: DuckDBPyConnection) -> None:
        self.columns = odd_table(con)
        scalars = (one for _, offered in registry().functions() for one in offered if isinstance(one, Scalar))
        taken = ((one.name, Arguments.of(unwrap(one.function))) for one in scalars)
        self.counts = {name: len(arguments.kinds) for name, arguments in taken if arguments}
        self.functions: list[tuple[str, str, list[str]]] = con.execute(NAMES).fetchall()

    def one(self, chance: random.Random) -> str:
        """Return a statement that calls one function."""
        name, kind, parameters = chance.choice(self.functions)
        source = chance.choice(("", "", "", " FROM odd", " FROM planted", " FROM reports"))
        if kind == "scalar":
            count = self.counts.get(name, 1) + chance.choice((0, 0, 0, 0, 0, 0, -1, 1))
            arguments = [self._argument(chance, None, source) for _ in range(count)]
            return f"SELECT system.main.{name}({', '.join(arguments)}){source}"
        arguments = list(self._named(chance, parameters, source if kind == "macro" else ""))
        call = f'ldp."{name}"({", ".join(arguments)})'
        return f"FROM {call} LIMIT 5" if kind == "table_macro" else f"SELECT {call}{source}"

    def _named(self, chance: random.Random, parameters: Sequence[str], source: str) -> Iterator[str]:
        """Yield the first arguments by place, and some of the others by name."""
        first = chance.choice((1, 2, 2, 3, 3, 3, 4, len(parameters)))
        for place, parameter in enumerate(parameters):
            if place < first:
                yield self._argument(chance, parameter, source)
            elif chance.random() < 0.1:
                yield f"{parameter} := {self._argument(chance, parameter, source)}"

    def _argument(self, chance: random.Random, parameter: str | None, source: str) -> str:
        """Return an argument: often one that fits the name of its parameter, else anything."""
        if parameter is not None and parameter in PLAIN and chance.random() < 0.75:
            return chance.choice(PLAIN[parameter])
        if source and chance.random() < 0.6:
            columns = {" FROM odd": [f"c{i}" for i in range(self.columns)], " FROM reports": ["x", "city", "n"]}
            return chance.choice(columns.get(source, ["x", "city", "n", "l", "s", "b", "j", "counts"]))
        if parameter is None and chance.random() < 0.6:
            handle = chance.choice(HANDLES).format(chance.choice(MECHANISMS))
            return chance.choice(
                (handle, handle, str(chance.randrange(30)), chance.choice(COUNTS), chance.choice(TEXTS), "NULL")
            )
        return chance.choice((chance.choice(ODD), chance.choice(ODD), chance.choice(chance.choice(list(PLAIN.values())))))
