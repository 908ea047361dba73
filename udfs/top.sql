-- Some values of the domain, in their own type, next to their rows; see `ldp._beside`.
CREATE OR REPLACE MACRO ldp._ranked(vals, result) AS list_transform(
    list_transform([{'vals': vals, 'result': result}], lambda r: CASE WHEN r['result'] IS NOT NULL THEN
        list_zip(list_select(r['vals'], r['result']['positions']), r['result']['rows'])
    END)[1],
    lambda p: struct_concat({'rank': p[2]['rank'], 'value': p[1]}, struct_pack(
        estimate := p[2]['estimate'], std_error := p[2]['std_error'], low := p[2]['low'], high := p[2]['high'],
        best_rank := p[2]['best_rank'], worst_rank := p[2]['worst_rank']
    ))
);
