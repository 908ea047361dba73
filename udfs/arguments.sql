-- A mechanism as a STRUCT. For a text the type of the domain is known only when DuckDB binds the statement: from_json then reads
-- it from what Python returns. Only the type of `kind` is looked at; || keeps CREATE MACRO from binding the text, which it lacks.
CREATE OR REPLACE MACRO ldp._read
    (m, kind VARCHAR) AS from_json(__ldp_mechanism_values(m), __ldp_mechanism_type(m || '')),
    (m, kind) AS m;
-- Of an aggregate, such as any_value(m), DuckDB does not know the type here, and would take it for the only type that is named.
CREATE OR REPLACE MACRO ldp._typed
    (m, kind MAP(VARCHAR, VARCHAR)) AS m,
    (m, kind) AS ldp._read(m, kind);
CREATE OR REPLACE MACRO ldp._struct(m) AS ldp._typed(m, m);
CREATE OR REPLACE MACRO ldp._domain(m) AS (ldp._struct(m))."domain";
CREATE OR REPLACE MACRO ldp._reports(m) AS (ldp._struct(m)).reports;

-- The first list unless it is NULL, which fits the overload for text; the two may have different types.
CREATE OR REPLACE MACRO ldp._first
    (list VARCHAR, other) AS CASE WHEN list IS NULL THEN other ELSE error('[LDP103] reports must be a list') END,
    (list, other) AS list;
CREATE OR REPLACE MACRO ldp._no_mechanism() AS
    error('[LDP104] the mechanism is NULL. Hint: is there a row in the subquery that gives it?');
