CREATE OR REPLACE MACRO ldp.mechanisms() AS TABLE SELECT unnest(__ldp_catalog('mechanisms'), recursive := true);
CREATE OR REPLACE MACRO ldp.estimators() AS TABLE SELECT unnest(__ldp_catalog('estimators'), recursive := true);
-- A value, not a table: DuckDB keeps the word DESCRIBE for itself in FROM.
CREATE OR REPLACE MACRO ldp."describe"(m) AS __ldp_describe(__ldp_mechanism(m));

COMMENT ON MACRO TABLE ldp.mechanisms IS 'the mechanisms there are';
COMMENT ON MACRO TABLE ldp.estimators IS 'the estimators there are';
COMMENT ON MACRO ldp."describe" IS 'claim, realised epsilon, exact ratio, size and fingerprint of a mechanism';
