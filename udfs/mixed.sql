-- The mechanism of any level. `mechanisms` is a MAP from level to mechanism or, if their reports differ in type, a STRUCT with one
-- field per level. `kind` is `mechanisms` again: only its type matters.
CREATE OR REPLACE MACRO ldp._any
    (mechanisms, kind MAP(VARCHAR, VARCHAR)) AS map_values(mechanisms)[1],
    (mechanisms, kind) AS struct_extract_at(mechanisms, 1);
