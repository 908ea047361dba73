CREATE OR REPLACE MACRO ldp.mechanisms() AS TABLE SELECT unnest(__ldp_catalog('mechanisms'), recursive := true);
CREATE OR REPLACE MACRO ldp.estimators() AS TABLE SELECT unnest(__ldp_catalog('estimators'), recursive := true);
-- A value, not a table: DuckDB reserves the word DESCRIBE in FROM.
CREATE OR REPLACE MACRO ldp."describe"(m) AS __ldp_describe(__ldp_mechanism(m));
CREATE OR REPLACE MACRO ldp.document(m) AS __ldp_document(__ldp_mechanism(m));

COMMENT ON MACRO TABLE ldp.mechanisms IS 'all mechanisms';
COMMENT ON MACRO TABLE ldp.estimators IS 'all estimators';
COMMENT ON MACRO ldp."describe" IS 'claim, realised epsilon and exact ratio of a mechanism, the two values and the report that reach it, size and fingerprint';
COMMENT ON MACRO ldp.document IS 'a mechanism as JSON, with its exact weights: any text that names a mechanism may be such a document';

-- A mechanism that is declared once and is a constant from then on. Both functions are folded when a statement is planned.
CREATE OR REPLACE MACRO ldp.declare(name, m, replace := false) AS __ldp_declare(name, m, replace, ldp._catalog());
-- || keeps CREATE MACRO from binding the type of a name that does not exist yet.
CREATE OR REPLACE MACRO ldp.declared(name) AS
    from_json(__ldp_declared_values(name, ldp._catalog()), __ldp_declared_type(name || '', ldp._catalog()));
CREATE OR REPLACE MACRO ldp.declared() AS TABLE SELECT unnest(__ldp_declarations(ldp._catalog()), recursive := true);

COMMENT ON MACRO ldp.declare IS 'read a mechanism once, with a domain in a table, and store it under a name; returns its fingerprint. Another mechanism keeps its name unless replace := true';
COMMENT ON MACRO ldp.declared IS 'the mechanism that was declared under a name; after FROM, without a name, all declared mechanisms';
COMMENT ON MACRO TABLE ldp.declared IS 'all declared mechanisms';

-- `size` is how many numbers, dates or times in order there are, cells of a grid with `width` cells to a row, or values.
CREATE OR REPLACE MACRO ldp.recommend(reports, size, epsilons := [0.5, 1, 2, 4], question := 'mean', width := NULL, error := NULL) AS TABLE
    SELECT unnest(__ldp_recommended(question, try_cast(reports AS BIGINT), try_cast(size AS BIGINT), epsilons::VARCHAR[],
                                    try_cast(width AS DOUBLE), try_cast(error AS DOUBLE)), recursive := true);

COMMENT ON MACRO TABLE ldp.recommend IS 'mechanisms by question: their expected errors, or for an error the smallest epsilon or number of reports, and which one is recommended';

-- `columns` holds the number of values of each column; by default the table of all columns is asked for.
CREATE OR REPLACE MACRO ldp.plan("columns", reports, epsilon, tables := []::VARCHAR[][]) AS TABLE
    SELECT unnest(__ldp_plan_tables("columns", reports, epsilon::VARCHAR, tables), recursive := true);

COMMENT ON MACRO TABLE ldp.plan IS 'the expected error of tables of several columns for each way to spend one epsilon on a row, the best first';
