-- The value appears exactly once: a second mention would draw twice.
CREATE OR REPLACE MACRO ldp.perturb(x, m) AS (m).reports[__ldp_perturb(x, __ldp_mechanism(m))];

COMMENT ON MACRO ldp.perturb IS 'one report for each value, drawn anew at every call';
