-- A handle that must be the same for all rows of a statement. strftime reads its format when a statement is bound, even if the
-- optimizer is off, so each expression of each statement gets its own number. now() is the start of the transaction.
CREATE OR REPLACE MACRO ldp._same(handle) AS __ldp_same(
    handle, system.main.strftime(DATE '2000-01-01', __ldp_expression(0)), system.main.epoch_us(system.main.now())
);
-- If attach was called with a ledger, _guard() is its number, and only an open release can draw. The policies of the tables that the
-- statement reads must allow what it draws: 'reports', 'permanent' ones, those of a map of 'levels', or {"column": ..., "keep": [...]}.
CREATE OR REPLACE MACRO ldp._draws_by(handle, drawn := 'reports') AS ldp._allowed(__ldp_draws(ldp._same(handle), ldp._guard()), drawn);
CREATE OR REPLACE MACRO ldp._draws(m) AS ldp._draws_by(__ldp_drawn(m));
CREATE OR REPLACE MACRO ldp._report_by(x, m) AS ldp._report(x, ldp._draws(m), (m).reports, (m).reports);
CREATE OR REPLACE MACRO ldp._report_of
    (x, m, kind VARCHAR) AS ldp._report_by(x, from_json(
        __ldp_mechanism_values(m || regexp_extract('', __ldp_mechanism_kind(ldp._name(m)))), __ldp_mechanism_type(m || ''))),
    (x, m, kind) AS ldp._report_by(x, m);
-- The condition is bound first, so that what is wrong with the mechanism is an error before DuckDB looks for an overload.
CREATE OR REPLACE MACRO ldp.perturb(x, m) AS CASE WHEN regexp_extract('', __ldp_mechanism_kind(typeof(m))) = '' THEN ldp._report_of(x, m, m) END;

CREATE OR REPLACE MACRO ldp._mixed_report(x, handle, m) AS ldp._report(x, handle, ldp._reports(m), ldp._reports(m));
-- The level must not depend on the value: it is published as it is.
CREATE OR REPLACE MACRO ldp.perturb_mixed(x, level, mechanisms) AS
    ldp._mixed_report(x, __ldp_level(level, ldp._allowed(ldp._same(__ldp_mixture(mechanisms)), 'levels'), ldp._guard()), ldp._any(mechanisms, mechanisms));

COMMENT ON MACRO ldp.perturb IS 'one report for each value; every call draws new reports';
COMMENT ON MACRO ldp.perturb_mixed IS 'one report for each value, by the mechanism of its level: a per-user epsilon';
