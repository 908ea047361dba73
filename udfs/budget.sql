CREATE OR REPLACE MACRO ldp.budget() AS TABLE SELECT unnest(__ldp_budget(ldp._guard()), recursive := true);

COMMENT ON MACRO TABLE ldp.budget IS 'the budget that the ledger of this connection has spent, and what is left';
