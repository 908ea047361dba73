-- The type of a row of an expression, which holds the name of the column. typeof() evaluates nothing: it does not draw.
CREATE OR REPLACE MACRO ldp._name(report) AS typeof((SELECT one FROM (SELECT report) AS one));
-- How the statement finds tables and files: the number of the catalog, and settings that another connection does not have.
CREATE OR REPLACE MACRO ldp._here() AS
    [ldp._catalog()::VARCHAR, current_setting('home_directory'), current_setting('file_search_path')];
-- The key of a group, or a struct of keys, as a struct of them by their own names. A key that is named like another column of the
-- result gets another name: value_1. DuckDB casts fields by name, but those of a tuple by position.
CREATE OR REPLACE MACRO ldp._keys("by", columns_of_result) AS cast_to_type(
    cast_to_type(row("by"), from_json('null', '' || __ldp_unnamed(typeof(row("by"))))),
    from_json('null', '' || __ldp_key_type(ldp._name("by"), columns_of_result))
);
-- The text of a mechanism that is text, or else NULL: the type of any other says enough.
CREATE OR REPLACE MACRO ldp._text_of
    (m VARCHAR) AS CASE WHEN from_json('null', __ldp_mechanism_kind(ldp._name(m))) IS NULL THEN m || '' END,
    (m) AS NULL::VARCHAR;
-- The type of an aggregate, such as any_value(m), is not known here, and DuckDB would assume the only type that an overload names.
CREATE OR REPLACE MACRO ldp._text
    (m MAP(VARCHAR, VARCHAR)) AS NULL::VARCHAR,
    (m) AS ldp._text_of(m);
-- A mechanism as a STRUCT. If it is text, the type of the domain is known only when DuckDB binds the statement: from_json then reads
-- it from the JSON that Python returns. Only the type of `kind` matters. || keeps CREATE MACRO from binding text that does not exist yet.
CREATE OR REPLACE MACRO ldp._read
    (m, kind VARCHAR) AS from_json(__ldp_mechanism_values(ldp._text_of(m)), __ldp_mechanism_type(m || '')),
    (m, kind) AS m;
CREATE OR REPLACE MACRO ldp._typed
    (m, kind MAP(VARCHAR, VARCHAR)) AS m,
    (m, kind) AS ldp._read(m, kind);
CREATE OR REPLACE MACRO ldp._struct(m) AS ldp._typed(m, m);
-- NULL in a type that chooses how the reports of m are drawn. CASE keeps CREATE MACRO from binding the type of what does not exist
-- yet. A subscript would, too, but DuckDB computes a constant list while it binds one.
CREATE OR REPLACE MACRO ldp._report_kind(m) AS
    from_json('null', '' || __ldp_report_kind(typeof(CASE WHEN true THEN m END), ldp._text_of(m)));
-- An empty list of the type of the values of m, or of the column of a table that is named. m may be the mechanisms of levels: a MAP
-- or a STRUCT. typeof() evaluates nothing. CASE, [1] and || keep CREATE MACRO from binding what does not exist yet.
CREATE OR REPLACE MACRO ldp._column_kind(m, of) AS
    from_json('[]', '' || __ldp_values_type(typeof(CASE WHEN true THEN m END), ldp._text(m), [of][1], NULL));
CREATE OR REPLACE MACRO ldp._kind(m) AS
    from_json('[]', '' || __ldp_values_type(typeof(CASE WHEN true THEN m END), ldp._text(m), NULL, NULL));
-- A value in the type of another. A mechanism without a domain has values of the type "NULL", which nothing can be cast to.
CREATE OR REPLACE MACRO ldp._of_kind
    (value, kind "NULL") AS value,
    (value, kind) AS cast_to_type(value, kind);
CREATE OR REPLACE MACRO ldp._domain(m) AS ldp._of_kind(__ldp_values(__ldp_source(m, NULL)), ldp._kind(m));
-- The mechanism of any level. `mechanisms` is a MAP from level to mechanism or, if their reports differ in type, a STRUCT with one
-- field per level. `kind` is `mechanisms` again: only its type matters.
CREATE OR REPLACE MACRO ldp._any
    (mechanisms, kind MAP(VARCHAR, VARCHAR)) AS map_values(mechanisms)[1],
    (mechanisms, kind) AS struct_extract_at(mechanisms, 1);

-- The first list unless it is NULL, which selects the overload for VARCHAR; the two lists may have different types.
CREATE OR REPLACE MACRO ldp._first
    (list VARCHAR, other) AS CASE WHEN list IS NULL THEN other ELSE cast_to_type('[LDP103] reports must be a list', other) END,
    (list, other) AS list;
CREATE OR REPLACE MACRO ldp._no_mechanism() AS
    error('[LDP104] the mechanism is NULL. Hint: does the subquery that returns it return a row?');
-- An empty list of the type of the values between two ends, of which this is one: numbers are in double precision. An argument
-- whose type is not known when a macro is created would fit several overloads, hence one at a time.
CREATE OR REPLACE MACRO ldp._written
    (low VARCHAR) AS CAST([] AS VARCHAR[]),
    (low) AS CAST([] AS DOUBLE[]);
CREATE OR REPLACE MACRO ldp._zoned
    (low TIMESTAMPTZ) AS CAST([] AS TIMESTAMPTZ[]),
    (low) AS ldp._written(low);
CREATE OR REPLACE MACRO ldp._timed
    (low TIMESTAMP) AS CAST([] AS TIMESTAMP[]),
    (low) AS ldp._zoned(low);
CREATE OR REPLACE MACRO ldp._moments
    (low DATE) AS CAST([] AS DATE[]),
    (low) AS ldp._timed(low);

-- The answers to a question that a list asks, or the only one. typeof() evaluates nothing.
CREATE OR REPLACE MACRO ldp._listed(argument) AS
    from_json('null', CASE WHEN ends_with(typeof([argument][1]), ']') THEN '"BOOLEAN"' ELSE '"TINYINT"' END);
CREATE OR REPLACE MACRO ldp._one_or_each
    (answers, listed BOOLEAN) AS answers,
    (answers, listed) AS answers[1];

-- Whether a row is counted. Anything else than a condition, such as a mechanism or the name of an estimator in the wrong place, would
-- be a NULL that counts no row.
CREATE OR REPLACE MACRO ldp._kept(keep) AS CASE WHEN regexp_full_match(typeof(keep), 'BOOLEAN|"NULL"|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?')
    THEN try_cast(keep AS BOOLEAN)
    ELSE error('[LDP103] keep must be a condition. Hint: write keep := n > 1; an estimator is named by estimator := ''best''.')
END;

-- The mechanism m, or if it is false, the default, what the type of reports or of counts records. typeof() is computed when a
-- statement is bound: any_value reads no report. The type of an aggregate, such as any_value(m), is not known here, and DuckDB would
-- assume the only type that an overload names: hence MAP comes first.
-- Of plain reports, nothing: next to any other aggregate, DuckDB groups the rows twice for a histogram, and joins the results.
CREATE OR REPLACE MACRO ldp._record_if
    (report, recorded BOOLEAN) AS typeof(any_value(report)),
    (report, recorded) AS '';
CREATE OR REPLACE MACRO ldp._record_of
    (report, kind MAP(VARCHAR, VARCHAR)) AS typeof(report),
    (report, kind) AS ldp._record_if(
        report, from_json('null', CASE WHEN contains(typeof([report][1]), 'ldpsql:') THEN '"BOOLEAN"' ELSE '"VARCHAR"' END));
CREATE OR REPLACE MACRO ldp._recorded_in
    (report, kind MAP(VARCHAR, VARCHAR)) AS from_json(
        __ldp_typed_values('' || typeof(report)), __ldp_typed_type('' || typeof([report][1]))
    ),
    (report, kind) AS from_json(
        __ldp_typed_values('' || typeof(any_value(report))), __ldp_typed_type('' || typeof(any_value(report)))
    );
CREATE OR REPLACE MACRO ldp._recorded_if_false
    (report, m BOOLEAN) AS ldp._recorded_in(report, report),
    (report, m) AS m;
CREATE OR REPLACE MACRO ldp._recorded
    (report, m, kind MAP(VARCHAR, VARCHAR)) AS m,
    (report, m, kind) AS ldp._recorded_if_false(report, m);
CREATE OR REPLACE MACRO ldp._drew_if_false
    (record, m BOOLEAN) AS true,
    (record, m) AS __ldp_drew(record, __ldp_source(m, NULL));
CREATE OR REPLACE MACRO ldp._drew
    (record, m, kind MAP(VARCHAR, VARCHAR)) AS __ldp_drew(record, __ldp_source(m, NULL)),
    (record, m, kind) AS ldp._drew_if_false(record, m);
CREATE OR REPLACE MACRO ldp._compared(counts, m) AS CASE WHEN ldp._drew(typeof(counts), m, m) THEN counts END;

-- A handle that must be the same for all rows of a statement. strftime reads its format when a statement is bound, even if the
-- optimizer is off, so each expression of each statement gets its own number. now() is the start of the transaction.
CREATE OR REPLACE MACRO ldp._same(handle) AS __ldp_same(
    handle, system.main.strftime(DATE '2000-01-01', __ldp_expression(0)), system.main.epoch_us(system.main.now())
);
-- If attach was called with a ledger, _guard() is its number, and only an open release can draw. The policies of the tables that the
-- statement reads must allow what it draws: 'reports', 'permanent' ones, those of a map of 'levels', or {"column": ..., "keep": [...]}.
CREATE OR REPLACE MACRO ldp._draws_by(handle, drawn := 'reports') AS ldp._allowed(__ldp_draws(ldp._same(handle), ldp._guard()), drawn);
CREATE OR REPLACE MACRO ldp._draws(m) AS ldp._draws_by(__ldp_drawn(m));
