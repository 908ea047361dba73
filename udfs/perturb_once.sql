-- The same person and the same value give the same report: the random bits are a keyed function of them.
-- `column_name` separates two columns with the same mechanism: with one name, equal values would give equal reports.
CREATE OR REPLACE MACRO ldp.perturb_once(x, m, user_id, column_name := '') AS
    ldp._permanent(x, user_id, column_name, m, ldp._report_kind(m));

COMMENT ON MACRO ldp.perturb_once IS 'the permanent report of a person for a value: every call returns the same report';
