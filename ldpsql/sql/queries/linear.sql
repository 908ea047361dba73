-- The inverse of the channel, its chances, and what the rows of the inverse sum to beyond one.
links AS (SELECT * FROM (VALUES {links}) AS t(link_place, link_report, weight, chance, excess)),
numbered AS (SELECT *, {group_number} AS group_number, n / total AS s FROM shares WHERE NOT place IS NULL AND total > 0),
groups_of_reports AS (
    SELECT {keys}group_number AS number, MAX(total) AS total, MAX(impossible) AS impossible FROM numbered GROUP BY {keys}group_number
),
solved AS (
    SELECT group_number, link_place, SUM(s * weight) AS v FROM numbered JOIN links ON place = link_report
    GROUP BY group_number, link_place
),
falling AS (
    SELECT group_number, link_place AS value_place, v{scaled} AS inverted,
        CAST(ROW_NUMBER() OVER (PARTITION BY group_number ORDER BY v DESC, link_place) AS DOUBLE) AS m
    FROM solved
),
sums AS (
    SELECT *, (SUM(inverted) OVER (PARTITION BY group_number ORDER BY m ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - 1) / m
        AS shift_here
    FROM falling
),
levels AS (
    SELECT *, MAX(CASE WHEN inverted > shift_here THEN m END) OVER (PARTITION BY group_number) AS last_near FROM sums
),
shifted AS (
    SELECT *, inverted - MAX(CASE WHEN m = last_near THEN shift_here END) OVER (PARTITION BY group_number) AS above FROM levels
),
unscaled AS (SELECT *, CASE WHEN m <= last_near THEN above ELSE 0 END AS near FROM shifted),
estimates AS (SELECT *, near / SUM(near) OVER (PARTITION BY group_number) AS inside FROM unscaled),
expected AS (
    SELECT group_number AS expected_group, link_report AS expected_report, SUM(inside * chance) AS p
    FROM estimates JOIN links ON value_place = link_place GROUP BY group_number, link_report
),
moments AS (
    SELECT group_number, value_place, inverted, inside,
        SUM(p * (weight - inside * excess) * (weight - inside * excess)) AS second,
        SUM(chance * (weight - inside * excess) * (weight - inside * excess)) AS own
    FROM estimates JOIN links ON value_place = link_place
    JOIN expected ON expected_group = group_number AND expected_report = link_report
    GROUP BY group_number, value_place, inverted, inside
),
errors AS (
    SELECT {keys}value_place, inverted, inside, total, impossible, own, {z} * {z} / total AS shrink,
        (second - inside * own) / GREATEST(1 - inside, 1e-12) AS other,
        SQRT(GREATEST(second - inside * inside, 0) / total) AS inverted_error
    FROM moments JOIN groups_of_reports ON number = group_number
),
halves AS (SELECT *, inverted + shrink * (own - other) / 2 AS half FROM errors),
reaches AS (
    SELECT *, SQRT(GREATEST(half * half - (1 + shrink) * (inverted * inverted - shrink * other), 0)) AS reach FROM halves
),
kept AS (
    SELECT *, GREATEST(2 * reach / (1 + shrink), 2 * {z} * inverted_error) / 4 AS inverted_kept,
        (half - reach) / (1 + shrink) AS begins, (half + reach) / (1 + shrink) AS ends
    FROM reaches
),
named AS (
    SELECT {keys}value_name AS value, name_place AS place, inverted, inverted_error, inverted_kept, begins, ends, total, impossible
    FROM kept JOIN (SELECT * FROM (VALUES {names}) AS t(name_place, value_name)) AS all_names ON name_place = value_place
)
SELECT {keys}value,
