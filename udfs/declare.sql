-- A mechanism that is declared once and is a constant from then on. Both functions are folded when a statement is planned.
CREATE OR REPLACE MACRO ldp.declare(name, m, replace := false) AS __ldp_declare(name, m, replace, ldp._catalog());
-- || keeps CREATE MACRO from binding the type of a name that does not exist yet.
CREATE OR REPLACE MACRO ldp.declared(name) AS
    from_json(__ldp_declared_values(name, ldp._catalog()), __ldp_declared_type(name || '', ldp._catalog()));
CREATE OR REPLACE MACRO ldp.declared() AS TABLE SELECT unnest(__ldp_declarations(ldp._catalog()), recursive := true);

COMMENT ON MACRO ldp.declare IS 'read a mechanism once, with a domain in a table, and store it under a name; returns its fingerprint. Another mechanism keeps its name unless replace := true';
COMMENT ON MACRO ldp.declared IS 'the mechanism that was declared under a name; after FROM, without a name, all declared mechanisms';
COMMENT ON MACRO TABLE ldp.declared IS 'all declared mechanisms';
