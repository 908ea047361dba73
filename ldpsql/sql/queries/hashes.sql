-- The same of hashes: the symbol of each value under each seed is a part of a text.
WITH alphabet AS (SELECT * FROM (VALUES {values}) AS t(place, value)),
hashes AS (SELECT * FROM (VALUES {hashes}) AS t(number, symbols)),
counts AS (
    SELECT {keys}{seed} AS seed, {symbol} AS y, CAST({count} AS DOUBLE) AS n FROM {table} WHERE NOT {seed} IS NULL
    GROUP BY {keys}{seed}, {symbol}
),
checked AS (
    SELECT *, CASE WHEN NOT symbols IS NULL AND y BETWEEN 0 AND {last_symbol} THEN n ELSE 0 END AS counted
    FROM counts LEFT JOIN hashes ON seed = number
),
shares AS (
    SELECT {keys}value, place, SUM(n - counted) AS impossible, SUM(counted) AS total,
        SUM(CASE WHEN CAST(SUBSTRING(symbols, place * {width} + 1, {width}) AS INT) = y THEN counted ELSE 0 END) AS n
    FROM checked CROSS JOIN alphabet GROUP BY {keys}value, place
),
