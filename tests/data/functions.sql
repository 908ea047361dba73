-- What the reference says of SQL functions: arguments, the data of all examples, then an example for each function, under its task.
-- `~` after a name is a column that differs in each run.
-- @report any: the column of reports, of counts of them, of lists of several reports of a person, or of levels and reports, `{level: level, report: report}`; NULL is not counted
-- @reports name: after `FROM`, the table, view, file or frame with the column of reports; in `recommend`, `plan`, `shuffled` and `repeated_error` a whole number
-- @m mechanism: the mechanism that drew the reports, or a MAP or STRUCT with the mechanism of each level. It may be left out if the type of the reports records it, and after `FROM` also if the comment of the column or the file does; in an aggregate, `false` stands for it if other arguments follow
-- @keep BOOLEAN: a condition: only rows of reports or counts in which it holds are counted; in `perturb_rows`, a list of columns that pass through
-- @estimator VARCHAR: the estimator, with its options: `'ibu'` or `'ibu(stop := 100)'`; NULL is what fits the mechanism
-- @confidence DOUBLE: the probability of the interval, 0.95 by default
-- @of any: the values of a share, or the name of the column of a mean, of reports of several columns
-- @given STRUCT: a condition on columns of the mechanism, such as `{city: 'Lima', age: {low: 18, high: 65}}`; `margin` takes a list of names of columns
-- @versus any: the condition, or for `outcome` the value, to compare with
-- @p list: shares, or an estimate
-- @q any: in `quantile` a share between 0 and 1, or a list of such shares; in `distance_between` the other shares, or an estimate
-- @prior DOUBLE[]: a distribution over the values, a share for each
-- @by column: after `FROM`, the column of groups, or a STRUCT of several: the result begins with them, by their names
-- @grid STRUCT: a grid, as `ldp.grid` makes it
-- @outcome DOUBLE: the raw column; it is left out if sums of it, which `ldp.sums` makes, stand in place of the reports
-- @regressors STRUCT: further raw columns, such as `{age: age, hours: hours}`
-- @weight DOUBLE: the weight of each row
-- @intervals VARCHAR: `'each'`, or `'simultaneous'`: all intervals hold together with the probability `confidence`
-- @measure VARCHAR: `'mean'`, `'sum'`, `'variance'`, or `'share'`, which is weighted
-- @counts MAP: counts of reports, as `ldp.counts` returns them
-- @columns any: the names of columns; in `perturb_rows` and `plan` a STRUCT with the mechanism, or the number of values, of each; of a grid, the number of columns
-- @x any: the value to perturb
-- @level any: the level of the row, which is published as it is
-- @mechanisms STRUCT or MAP: the mechanism of each level
-- @user_id any: the person
-- @column_name VARCHAR: what separates two columns with the same mechanism
-- @t name: a table, view, file or frame
-- @format VARCHAR: how the report is written: `'bits'`, `'array'`, `'position'`, `'positions'` or `'xxhash'`
-- @most INTEGER: the number of values
-- @top INTEGER: the number of strings
-- @certain BOOLEAN: whether only strings are returned that are certainly among the top
-- @kept INTEGER: the number of prefixes that are kept at each length
-- @deadline DOUBLE: seconds after which the search ends with what it has
-- @pooled MAP: the counts of all groups, if the rows are only some of them
-- @params name: the file or table of parameters
-- @map name: the file or table of candidates and their bits
-- @rate DOUBLE: the false discovery rate
-- @shares name: a table, view or CTE with a column `estimate`
-- @rows INTEGER: the number of rows
-- @low any: the low end, included, or a list of low ends; NULL is no bound
-- @high any: the high end, included, or a list of high ends; NULL is no bound
-- @others MAP: the counts of the other group
-- @family VARCHAR: `'linear'` or `'logistic'`
-- @numbers BOOLEAN: whether the perturbed column is a number with one coefficient, instead of one for each value
-- @interactions BOOLEAN: whether to add products of the perturbed and the raw columns
-- @estimators VARCHAR[]: the estimators to compare
-- @metric VARCHAR: `'mae'`, `'mse'`, `'total_variation'` or `'wasserstein'`; for `compare_estimators` also `'mean'` or `'variance'`, for `distance` and `distance_between` also `'emd'` or `'js_divergence'`
-- @shares list: a share for each value, or rows with a value and its share, such as `(SELECT list(c) FROM census AS c)` in an aggregate
-- @runs INTEGER: the number of simulations
-- @power DOUBLE: the power of the distance, 1 or more
-- @size INTEGER: how many numbers or values there are, or cells of a grid
-- @epsilons DOUBLE[]: the epsilons to compare
-- @question VARCHAR: `'mean'`, `'distribution'`, `'ranges'`, `'quantiles'`, `'rectangles'`, `'share'`, `'outcome'` or `'regression'`
-- @error DOUBLE: an error to reach: with the smallest epsilon or, if `reports` is NULL, with the fewest reports at each epsilon
-- @width INTEGER: the cells in a row of a grid
-- @epsilon DOUBLE: the epsilon of a row
-- @tables VARCHAR[][]: the tables to plan for, each a list of columns; the table of all columns by default
-- @beta DOUBLE: how fast the probability of a report falls with its distance; in `information` the slope of the bound
-- @delta DOUBLE: the probability that the central epsilon may be exceeded
-- @name VARCHAR: the name under which the mechanism is stored
-- @replace BOOLEAN: whether another mechanism may lose its name
-- @west DOUBLE: the western bound, a longitude
-- @south DOUBLE: the southern bound, a latitude
-- @east DOUBLE: the eastern bound
-- @north DOUBLE: the northern bound
-- @lon DOUBLE: the longitude
-- @lat DOUBLE: the latitude
-- @outside VARCHAR: `'nearest'` moves what is outside to the nearest cell or value; by default it is an error
-- @cell BIGINT: the number of the cell, row by row, from 0
-- @domain list: the values
-- @iterations INTEGER: the steps of Blahut and Arimoto
-- @mixing DOUBLE: the share of the uniform distribution that is mixed in
-- @side DOUBLE: the side of a cell
-- @distances DOUBLE[][]: the distance of each pair of values, instead of a grid
-- @nulls VARCHAR: the rule for NULL, such as `'as:none'`
-- @stop any: when iterations end
-- @cycle any: the number of the cycle in a row of its counts; NULL for the reports of one cycle

-- # Setup
CREATE MACRO city() AS ldp.krr(1, ['Lima', 'Oslo', 'Rome']);
CREATE MACRO age() AS ldp.krr(2, [20, 30, 40, 50]);
CREATE MACRO person() AS ldp.row({city: city(), age: age()});
CREATE MACRO ratings() AS ldp.pckv_grr(2, ['film', 'song']);
CREATE TABLE reports AS SELECT * EXCLUDE (people), 100 + unnest(range(people)) % 41 + ascii(city) - 70 AS premium
FROM (VALUES
    ('north', 'Lima', 20, 122), ('north', 'Lima', 30, 104), ('north', 'Lima', 40, 93), ('north', 'Lima', 50, 75),
    ('north', 'Oslo', 20, 79), ('north', 'Oslo', 30, 73), ('north', 'Oslo', 40, 84), ('north', 'Oslo', 50, 66),
    ('north', 'Rome', 20, 79), ('north', 'Rome', 30, 73), ('north', 'Rome', 40, 73), ('north', 'Rome', 50, 79),
    ('south', 'Lima', 20, 76), ('south', 'Lima', 30, 71), ('south', 'Lima', 40, 78), ('south', 'Lima', 50, 60),
    ('south', 'Oslo', 20, 72), ('south', 'Oslo', 30, 89), ('south', 'Oslo', 40, 107), ('south', 'Oslo', 50, 89),
    ('south', 'Rome', 20, 72), ('south', 'Rome', 30, 89), ('south', 'Rome', 40, 96), ('south', 'Rome', 50, 101)
) AS t(region, city, age, people);
CREATE TABLE rated AS SELECT {key: key, sign: sign::TINYINT} AS report
FROM (VALUES ('film', -1, 145), ('film', 1, 290), ('song', -1, 265), ('song', 1, 163), (NULL, NULL, 137)) AS t(key, sign, people),
    range(people);
CREATE TABLE binned AS SELECT {key: key, bin: bin::SMALLINT} AS report
FROM (VALUES ('film', 0, 57), ('film', 1, 46), ('film', 2, 131), ('film', 3, 158), ('song', 0, 56), ('song', 1, 240),
    ('song', 2, 78), ('song', 3, 39), (NULL, NULL, 195)) AS t(key, bin, people), range(people);
CREATE TABLE people AS FROM (VALUES (1, 'Lima', 'low'), (2, 'Oslo', 'high')) AS t(id, city, level);
CREATE TABLE recorded AS FROM ldp.perturb_rows(people, {city: city()});
CREATE TABLE words AS SELECT ldp.perturb(['ab', 'cd'][1 + i % 2], ldp.pem(8, 2)) AS word FROM range(4000) AS t(i);
CREATE TABLE params AS SELECT 8 AS k, 2 AS h, 2 AS m, 0.25::DOUBLE AS p, 0.75::DOUBLE AS q, 0.0::DOUBLE AS f;
CREATE TABLE bits AS FROM (VALUES (1000, 550, 440, 560, 255, 450, 245, 250, 240), (1000, 245, 560, 550, 250, 240, 450, 440, 260));
CREATE TABLE candidates AS FROM (VALUES ('chrome', 1, 3, 10, 11), ('safari', 2, 5, 14, 15), ('opera', 4, 8, 9, 13));
COMMENT ON COLUMN reports.city IS 'ldpsql:f43dd700a0b54a92199d4e54466ccdec.7f7725f2d005cd66 krr(epsilon=''1'', domain=[''Lima'', ''Oslo'', ''Rome''])';
CREATE VIEW again AS SELECT ldp.perturb(city, city()) AS city FROM people;

-- # Perturb
-- perturb ~report
SELECT id, ldp.perturb(city, city()) AS report FROM people;
-- perturb_rows ~city
FROM ldp.perturb_rows(people, {city: city()}, keep := [level]) ORDER BY level;
-- perturb_once ~report
SELECT id, ldp.perturb_once(city, city(), id) AS report FROM people;
-- read
SELECT ldp.read('010', ldp.encoding(1, ['Lima', 'Oslo', 'Rome'], 'oue')) AS report;
-- budget
FROM ldp.budget();

-- # Shares of values
-- estimate
FROM ldp.estimate(reports, city, city(), by := region);
-- people
FROM ldp.people(reports, city, city());
-- share
SELECT unnest(ldp.share(city, city(), of := ['Oslo', 'Rome'])) FROM reports;
-- top
FROM ldp.top(reports, city, city(), 2);
-- margin
FROM ldp.margin(reports, {city: city, age: age}, person(), columns := ['city']);
-- heavy_hitters ~estimate ~std_error ~low ~high ~reports
FROM ldp.heavy_hitters(words, word, ldp.pem(8, 2), top := 2) ORDER BY value;
-- prior
SELECT unnest(ldp.prior(counts, city())) FROM (SELECT ldp.counts(city) AS counts FROM reports GROUP BY region);
-- rappor_shares
SELECT candidate, estimate, std_error, low, high, detected FROM ldp.rappor_shares('params', 'bits', 'candidates') WHERE detected;
-- synthesize ~city ~age
WITH shares AS (FROM ldp.margin(reports, {city: city, age: age}, person())) FROM ldp.synthesize(shares, 2);

-- # Means, quantiles and ranges
-- mean
FROM ldp.mean(reports, age, age(), by := region) ORDER BY region;
-- variance
SELECT unnest(ldp.variance(age, age())) FROM reports;
-- median
SELECT unnest(ldp.median(age, age())) FROM reports;
-- quantile
FROM ldp.quantile(reports, age, age(), [0.25, 0.75]);
-- range_share
FROM ldp.range_share(reports, age, age(), [20, 40], [30, 50]);

-- # Compare groups and columns
-- compare
SELECT unnest(ldp.compare(ldp.counts(city, keep := region = 'north'), ldp.counts(city, keep := region = 'south'), city(), of := 'Oslo'))
FROM reports;
-- difference
SELECT unnest(ldp.difference({city: city, age: age}, person(), of := {age: 50}, given := {city: 'Oslo'}, versus := {city: 'Rome'}))
FROM reports;
-- independence
SELECT unnest(ldp.independence({city: city, age: age}, person())) FROM reports;

-- # A raw column next to a perturbed one
-- outcome
SELECT unnest(ldp.outcome(city, city(), premium), recursive := true) FROM reports;
-- sums
SELECT city, ldp.sums(city, premium) AS sums FROM reports GROUP BY city ORDER BY city;
-- regression
SELECT unnest(ldp.regression(city, city(), premium), recursive := true) FROM reports;
-- unbiased
SELECT ldp.unbiased(city, ldp.krr(1, [1, 2, 3])) AS number FROM (VALUES (1), (2), (3)) AS reports(city);
-- weights
SELECT unnest(ldp.weights('Lima', city()), recursive := true);

-- # Pairs of keys and values
-- key_value
FROM ldp.key_value(rated, report, ratings());
-- key_value_diagnose
SELECT * EXCLUDE (gap) FROM (SELECT unnest(ldp.key_value_diagnose(report, ratings())) FROM rated);
-- key_value_density
FROM ldp.key_value_density(binned, report, ldp.pckv_pm(2, ['film', 'song'], bins := 4)) WHERE key = 'film';

-- # Counts of reports
-- counts
WITH regions AS (SELECT region, ldp.counts(city) AS counts FROM reports GROUP BY region)
SELECT ldp.counts(counts) AS counts FROM regions;

-- # How far to trust an estimate
-- diagnose
SELECT unnest(ldp.diagnose(city, city())) FROM reports;
-- compare_estimators ~error ~std_error
SELECT estimator, error, std_error FROM ldp.compare_estimators(reports, city, city(), ['ibu', 'inv'], runs := 20);
-- distance
FROM ldp.distance(reports, city, city(), [0.5, 0.25, 0.25], by := region);
-- distance_between
SELECT ldp.distance_between([0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0], 'emd', age()) AS years;

-- # Plan
-- recommend
FROM ldp.recommend(1000, 10, [1]) LIMIT 3;
-- plan
FROM ldp.plan({city: 3, age: 4}, 10000, 2) LIMIT 3;

-- # Mechanisms
-- describe
SELECT unnest(ldp.describe(city()));
-- document
SELECT left(ldp.document(city()), 60) AS json;
-- channel
FROM ldp.channel(ldp.krr(1, ['yes', 'no']));
-- information
SELECT unnest(ldp.information(ldp.truncated_geometric(1, 0, 4), [0.2, 0.2, 0.2, 0.2, 0.2], beta := 1));
-- repeated_error
SELECT unnest(ldp.repeated_error(city(), 30));
-- shuffled
SELECT unnest(ldp.shuffled(city(), 100000, 1e-6));
-- declare
SELECT ldp.declare('town', city()) AS fingerprint;
-- declared
SELECT name, ldp.describe(ldp.declared('town')).claim AS claim FROM ldp.declared();
-- mechanism
SELECT ldp.describe(ldp.mechanism('recorded', 'city')).claim AS claim;
-- mechanisms
FROM ldp.mechanisms() WHERE name = 'krr';
-- estimators
FROM ldp.estimators() WHERE name = 'ibu';

-- # Places and PRIVIC
-- grid
SELECT ldp.grid(-77.2, -12.2, -76.9, -11.9, 3, 3) AS lima;
-- cell
SELECT ldp.cell(-77.04, -12.05, ldp.grid(-77.2, -12.2, -76.9, -11.9, 3, 3)) AS cell;
-- cells
SELECT ldp.cells(ldp.grid(-77.2, -12.2, -76.9, -11.9, 3, 1)) AS cells;
-- cell_centre
SELECT ldp.cell_centre(4, ldp.grid(-77.2, -12.2, -76.9, -11.9, 3, 3)) AS centre;
-- privic_start
SELECT ldp.describe(ldp.privic_start(1, [0, 1, 2], columns := 3)).claim AS claim;
-- privic_step
SELECT unnest(step.theta, recursive := true)
FROM (SELECT ldp.privic_step(visits, ldp.privic_start(1, [0, 1, 2], columns := 3)) AS step FROM (VALUES (0), (1), (1), (2)) AS t(visits));

-- # Reviews
-- lint
FROM ldp.lint();

-- # Errors
SELECT ldp.krr(1, ['Lima', 'Lima']);
SELECT ldp.perturb('Paris', city());
SELECT ldp.mean(city, city()) FROM reports;
SELECT ldp.estimate(age, city()) FROM reports;
SELECT ldp.estimate('Paris', city());
SELECT ldp.estimate('Lima', city(), estimator := 'bestt');
SELECT ldp.estimate('Lima', city(), confidence := 2);
SELECT ldp.estimate('Lima', city(), keep := 'north');
SELECT ldp.quantile(age, age(), 50) FROM reports;
SELECT ldp.estimate(city, ldp.krr(2, ['Lima', 'Oslo', 'Rome'])) FROM recorded;
SELECT ldp.estimate('Lima', NULL);
