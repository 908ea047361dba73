CREATE OR REPLACE MACRO ldp.mechanisms() AS TABLE SELECT unnest(__ldp_catalog('mechanisms'), recursive := true);
CREATE OR REPLACE MACRO ldp.estimators() AS TABLE SELECT unnest(__ldp_catalog('estimators'), recursive := true);
-- A value, not a table: DuckDB reserves the word DESCRIBE in FROM.
CREATE OR REPLACE MACRO ldp."describe"(m) AS __ldp_describe(__ldp_mechanism(m));
CREATE OR REPLACE MACRO ldp.document(m) AS __ldp_document(__ldp_mechanism(m));

COMMENT ON MACRO TABLE ldp.mechanisms IS 'all mechanisms';
COMMENT ON MACRO TABLE ldp.estimators IS 'all estimators';
COMMENT ON MACRO ldp."describe" IS 'claim, realised epsilon and exact ratio of a mechanism, the two values and the report that reach it, size and fingerprint';
COMMENT ON MACRO ldp.document IS 'a mechanism as JSON, with its exact weights: any text that names a mechanism may be such a document';
