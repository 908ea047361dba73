-- The same person and the same value give the same report: the random bits are a keyed function of them.
CREATE OR REPLACE MACRO ldp._permanent
    (x, person, named, handle, reports STRUCT(words INTEGER)) AS __ldp_once_words(x, person, named, handle, ldp._guard()),
    (x, person, named, handle, reports STRUCT(hashed INTEGER)) AS __ldp_once_hashed(x, person, named, handle, ldp._guard()),
    (x, person, named, handle, reports) AS CASE
        WHEN reports IS NULL THEN ldp._no_mechanism()
        ELSE reports[__ldp_once(x, person, named, handle, ldp._guard())]
    END;
-- `column_name` keeps two columns apart that share a mechanism: with one name, equal values would give equal reports.
CREATE OR REPLACE MACRO ldp.perturb_once(x, m, user_id, column_name := '') AS
    ldp._permanent(x, user_id, column_name, ldp._draws(m), ldp._reports(m));

COMMENT ON MACRO ldp.perturb_once IS 'the permanent report of a person for a value: asked again, it is the same';
