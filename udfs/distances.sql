-- p and q are lists of shares, or estimates as ldp.ibu and the other estimators return them.
CREATE OR REPLACE MACRO ldp.total_variation(p, q) AS __ldp_distance('total_variation', p, q);
CREATE OR REPLACE MACRO ldp.js_divergence(p, q) AS __ldp_distance('js_divergence', p, q);
CREATE OR REPLACE MACRO ldp.mse(p, q) AS __ldp_distance('mse', p, q);
CREATE OR REPLACE MACRO ldp.mae(p, q) AS __ldp_distance('mae', p, q);
-- Values are one unit apart unless a mechanism defines their distances.
CREATE OR REPLACE MACRO ldp._maybe(m) AS CASE WHEN m IS NULL THEN NULL ELSE __ldp_mechanism(m) END;
CREATE OR REPLACE MACRO ldp.emd(p, q, m := NULL) AS __ldp_distance('emd', p, q, ldp._maybe(m));
CREATE OR REPLACE MACRO ldp.wasserstein(p, q, m := NULL, power := 1) AS
    __ldp_distance('wasserstein', p, q, ldp._maybe(m), power);

COMMENT ON MACRO ldp.total_variation IS 'largest difference between the probabilities of an event under two distributions';
COMMENT ON MACRO ldp.js_divergence IS 'Jensen-Shannon divergence of two distributions, in nats';
COMMENT ON MACRO ldp.mse IS 'mean squared difference of two lists of numbers';
COMMENT ON MACRO ldp.mae IS 'mean absolute difference of two lists of numbers';
COMMENT ON MACRO ldp.emd IS 'earth mover''s distance: in positions, or in the metric of a mechanism, also on a grid';
COMMENT ON MACRO ldp.wasserstein IS 'Wasserstein distance of any power on a line: in positions, or in the unit of a mechanism''s values';
