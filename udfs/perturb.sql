-- The value appears exactly once: a second mention would draw twice. The type of `reports` says what comes back.
CREATE OR REPLACE MACRO ldp._report
    (x, handle, vals, reports STRUCT(words INTEGER)) AS __ldp_perturb_words(x, handle),
    (x, handle, vals, reports STRUCT(hashed INTEGER)) AS __ldp_perturb_hashed(x, handle),
    (x, handle, vals, reports STRUCT(signs INTEGER)) AS
        list_transform([__ldp_perturb_pair(x, handle)], lambda p: {'key': vals[p."position"], 'sign': p.told})[1],
    (x, handle, vals, reports STRUCT(bins INTEGER)) AS
        list_transform([__ldp_perturb_pair(x, handle)], lambda p: {'key': vals[p."position"], 'bin': p.told})[1],
    (x, handle, vals, reports) AS reports[__ldp_perturb(x, handle)];
CREATE OR REPLACE MACRO ldp.perturb(x, m) AS ldp._report(x, __ldp_mechanism(m), (m)."domain", (m).reports);

COMMENT ON MACRO ldp.perturb IS 'one report for each value, drawn anew at every call';
