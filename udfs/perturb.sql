CREATE OR REPLACE MACRO ldp._in_parts() AS
    error('[LDP103] perturb takes a value and a mechanism. Hint: write ldp.perturb(city, ldp.krr(1, [''Lima'', ''Oslo''])).');
-- The level must not depend on the value: it is published as it is.
CREATE OR REPLACE MACRO ldp._report_of_level
    (x, mechanisms VARCHAR, level) AS ldp._in_parts(),
    (x, mechanisms, level) AS ldp._mixed_report(x, level, mechanisms, ldp._report_kind(ldp._any(mechanisms, mechanisms)));
-- A parameter with a type would let DuckDB bind all arguments once more.
CREATE OR REPLACE MACRO ldp.perturb(x, m) AS ldp._report(x, m, ldp._report_kind(m)),
    (x) AS error('[LDP103] perturb needs a mechanism. Hint: write ldp.perturb(city, ldp.krr(1, [''Lima'', ''Oslo''])).'),
    (x, mechanisms, level) AS ldp._report_of_level(x, mechanisms, level),
    (x, name, epsilon, "domain") AS ldp._in_parts();

COMMENT ON MACRO ldp.perturb IS 'one report for each value; every call draws new reports. ldp.perturb(x, mechanisms, level) draws by the mechanism of the level: a per-user epsilon';

-- The same person and the same value give the same report: the random bits are a keyed function of them.
-- `column_name` separates two columns with the same mechanism: with one name, equal values would give equal reports.
CREATE OR REPLACE MACRO ldp.perturb_once(x, m, user_id, column_name := '') AS
    ldp._permanent(x, user_id, column_name, m, ldp._report_kind(m));

COMMENT ON MACRO ldp.perturb_once IS 'the permanent report of a person for a value: every call returns the same report';
