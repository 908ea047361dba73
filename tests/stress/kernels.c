// Calls every kernel with random shapes and values, from four threads and a forked process, for the sanitizers: make sanitize.
#include "kernels.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct list list;
int ldpsql_column(int64_t, int, int, const void *, size_t, const uint64_t *, void *, uint32_t *, uint16_t *);
int ldpsql_rows(const int64_t *, int, int, const void *, size_t, const uint64_t *, void *);
list *ldpsql_list_whole(int, uint64_t, const int64_t *);
list *ldpsql_list_text(uint64_t, const char *, const int32_t *);
list *ldpsql_list_interval(uint64_t, const double *, bool);
bool ldpsql_learn(int64_t, int, const list *, const list *, const uint64_t *, const void *, size_t);
int ldpsql_hashes(const uint32_t *, size_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, const uint8_t *, const uint64_t *, void *);
int ldpsql_shuffle(size_t, size_t, size_t, const uint64_t *, void *);
void ldpsql_by_bucket(const uint8_t *, size_t, const void *, size_t, void *, int64_t *);
int ldpsql_random_words(size_t, uint64_t *);
void ldpsql_expand(const uint8_t *, int, uint64_t *, size_t);
void ldpsql_hash_sets(const uint64_t *, const uint64_t *, size_t, uint64_t, uint64_t, uint8_t *);

static void check(bool condition, const char *what) {
	if (condition) return;
	fprintf(stderr, "failed: %s\n", what);
	exit(1);
}

static uint64_t any(uint64_t bound) {
	uint64_t word;
	check(!ldpsql_random_words(1, &word), "random words");
	return word % bound;
}

// Memory of exactly this size, so that the sanitizer sees each octet beyond it.
static void *room(size_t items, size_t octets) {
	void *memory = malloc(items * octets + !items);
	check(memory != NULL, "memory");
	return memory;
}

enum { RECIPES = 1 << 14, WHOLE = 5, TEXT = 17, WORDS = 24, HASHED, PREFIXED, TYPES = 14 };
enum { KEEP_OR_SPREAD, ALIAS, NOISE, BITS, HASH, LEVELS };
static const size_t WIDTHS[TYPES] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 4};  // of DuckDB's types of numbers, times and dates

// Keep a list where the sanitizer sees it: nobody frees lists, since vectors point to their text.
static list *kept(list *made) {
	static _Atomic(list *) all[1 << 20];
	static _Atomic size_t count;
	check(made != NULL, "list");
	return all[count++ % (1 << 20)] = made;
}

// Return a number of a recipe of this structure, over values and reports that other threads use as well.
static int64_t learnt(int structure, list *values, uint64_t size, list *reports) {
	int64_t number = (int64_t)any(RECIPES);
	uint64_t numbers[4] = {UINT64_MAX / (size + 1 + any(9)), 0, 0, 0}, table[4 * 64];
	uint8_t hashes[64 * 7];
	size_t octets = 0;
	if (structure == ALIAS || structure == NOISE) {  // 4 reports, each its own alias
		numbers[0] = 2, numbers[1] = 4, octets = 8 * 4 * (structure == ALIAS ? size : 1);
		for (int i = 0; i < 4 * 64; i++) table[i] = (any(UINT64_MAX) & ~(uint64_t)3) | (uint64_t)(i % 4);
	} else if (structure == BITS) {
		numbers[1] = (1 + any(1 << 12)) << any(52);
	} else if (structure == HASH) {
		numbers[0] = 2 + any(9), numbers[1] = UINT64_MAX / (numbers[0] + 1);
		for (size_t i = 0; i < sizeof hashes; i++) hashes[i] = (uint8_t)any(numbers[0]);
		if (any(2)) numbers[2] = 7, numbers[3] = UINT64_MAX / 7, octets = size * 7;
	} else if (structure == LEVELS) {  // 64 nodes of each of two levels
		const uint64_t head[4] = {2, UINT32_MAX - any(1 << 30), 1, 3};
		const level levels[2] = {{3, UINT64_MAX / 3, UINT64_MAX / 5, 4, 1 + any(4), 0, 0}, {1, UINT64_MAX, UINT64_MAX / 70, 64, 1, 64, 1}};
		memset(table, 0, sizeof table);
		memcpy(table, head, sizeof head), memcpy((uint64_t *)table + 68, levels, sizeof levels);
		for (int i = 0; i < 64; i++) table[82 + i] = any(UINT64_MAX);
		octets = 8 * (82 + 128);
	}
	const bool listed = structure <= NOISE;
	ldpsql_learn(number, structure, values, listed ? reports : NULL, numbers, structure == HASH ? (void *)hashes : table, octets);
	return number;
}

// Columns of numbers of any width, of mechanisms that several threads describe at the same time.
static void number_columns(void) {
	int64_t low = any(2) ? 0 : -(int64_t)any(200), listed[64], few[4] = {-1, 0, 3, 100};
	uint64_t size = 4 + any(60), count = any(3 * BLOCK), gap = any(9) ? 1 + any(3) : (uint64_t)1 << 40;
	for (uint64_t i = 0; i < size; i++) listed[i] = low + (int64_t)(i * gap);
	double bins = (double)size * (double)any(2), placing[] = {(double)low, (double)low + (double)size, 1, any(2) ? 1e-6 : 0, (double)size - 1, 1, bins};
	int kind = any(2) ? WHOLE : (int[]){1, 12, 13}[any(3)], structure = (int)any(6);
	list *values = any(2) ? kept(ldpsql_list_interval(size, placing, any(2))) : kept(ldpsql_list_whole(kind, size, listed));
	list *reports = structure == KEEP_OR_SPREAD ? kept(ldpsql_list_whole(kind, size, listed)) : kept(ldpsql_list_whole(WHOLE, 4, few));
	int64_t number = learnt(structure, values, size, reports), other = any(2) ? learnt(structure, values, size, reports) : (int64_t)any(RECIPES);
	int64_t *numbers = room(count, 8);
	for (uint64_t i = 0; i < count; i++) numbers[i] = any(2) ? number : other;
	if (count && !any(4)) numbers[any(count)] = (int64_t)any(UINT64_MAX);
	int type = 1 + (int)any(TYPES - 1), out = structure < BITS ? 1 + (int)any(TYPES - 1) : structure == BITS ? WORDS : structure == HASH ? HASHED : PREFIXED;
	if (out == 10 || out == 11) out = WHOLE;
	uint8_t *column = room(count, WIDTHS[type]);
	for (uint64_t i = 0; i < count * WIDTHS[type]; i++) column[i] = any(4) ? 0 : (uint8_t)any(256);
	uint64_t *to = room(count, 8);
	uint32_t *second = room(count, 4);
	uint16_t *third = room(count, 2);
	ldpsql_column(number, type, out, column, count, NULL, to, second, third);
	ldpsql_column((int64_t)any(UINT64_MAX), type, out, column, count, NULL, to, second, third);
	ldpsql_rows(numbers, type, out, column, count, NULL, to);
	check(ldpsql_column(number, type, TEXT, column, count, NULL, to, second, third) == OUTSIDE, "numbers as text");
	free(numbers), free(column), free(to), free(second), free(third);
}

// A text of DuckDB: of up to 12 octets it is in it, of more behind an address.
typedef struct { uint32_t length; char start[4]; union { char rest[8]; char *octets; } end; } text;

static void text_columns(void) {
	uint64_t size = 2 + any(30), count = any(3 * BLOCK);
	int32_t *ends = room(size, 4);
	char *octets = room(30 * size, 1);
	for (uint64_t i = 0, at = 0; i < size; i++) {  // text i is 'a' i times: all are distinct
		memset(octets + at, 'a', i);
		ends[i] = (int32_t)(at += i);
	}
	list *values = kept(ldpsql_list_text(size, octets, ends));
	int64_t number = learnt(KEEP_OR_SPREAD, values, size, values), other = learnt(KEEP_OR_SPREAD, values, size, values);
	text *column = room(count, sizeof *column), *reports = room(count, sizeof *reports);
	bool strange = count && !any(4);
	for (uint64_t i = 0; i < count; i++) {
		uint32_t length = strange && any(2) ? 100 : (uint32_t)any(size);
		column[i] = (text){.length = length};
		if (length > 12) memset(column[i].end.octets = room(length, 1), 'a', length);
		else memset(column[i].start, 'a', length);
	}
	if (ldpsql_column(number, TEXT, TEXT, column, count, NULL, reports, NULL, NULL) == DRAWN)
		for (uint64_t i = 0; i < count; i++) check(reports[i].length < 32, "texts");
	int64_t *numbers = room(count, 8);
	for (uint64_t i = 0; i < count; i++) numbers[i] = any(2) ? number : other;
	if (ldpsql_rows(numbers, TEXT, TEXT, column, count, NULL, reports) == DRAWN)
		for (uint64_t i = 0; i < count; i++) check(reports[i].length < 32, "texts of levels");
	check(ldpsql_column(number, TEXT, WHOLE, column, count, NULL, reports, NULL, NULL) == OUTSIDE, "text as whole numbers");
	for (uint64_t i = 0; i < count; i++) if (column[i].length > 12) free(column[i].end.octets);
	free(ends), free(octets), free(numbers), free(column), free(reports);
}

// Counts of reports of few seeds, whose sum over all is the number of rows.
static void counts(void) {
	enum { TABLES = 3 };
	uint64_t count = any(8 * BLOCK), seeds_of = 1 + any(any(2) ? 9 : 1 << 20), rows = 0, *seeds = room(count, 8);
	uint32_t *symbols = room(count, 4);
	uint64_t *valid[3], words = words_of(count);
	tally tables[TABLES] = {{0}}, **own = room(count, sizeof *own);
	for (int i = 0; i < 3; i++) {
		valid[i] = any(2) ? room(words, 8) : NULL;
		for (uint64_t j = 0; valid[i] && j < words; j++) valid[i][j] = any(UINT64_MAX);
	}
	for (uint64_t i = 0; i < count; i++) {
		seeds[i] = any(seeds_of), symbols[i] = (uint32_t)any(3), own[i] = tables + any(TABLES);
		rows += !valid[0] || valid[0][i / 64] >> i % 64 & 1;
	}
	const hashed_column column = {valid[0], seeds, valid[1], symbols, valid[2]};
	check(tally_rows(own, &column, count), "counts");
	for (int i = 1; i < TABLES; i++) check(tally_merge(tables, tables + i), "merged counts");
	counted *sorted = tally_sorted(tables);
	check(sorted != NULL, "sorted counts");
	for (uint64_t i = 0; i < tables->used; i++) {
		rows -= sorted[i].n;
		check(!i || sorted[i - 1].seed < sorted[i].seed || sorted[i - 1].rest < sorted[i].rest, "order of counts");
	}
	check(!rows, "all rows counted");
	for (int i = 0; i < TABLES; i++) free(tables[i].slots), free(valid[i]);
	free(sorted), free(seeds), free(symbols), free(own);
}

static void one_round(void) {
	number_columns();
	text_columns();
	counts();
	size_t count = any(3) ? any(3 * BLOCK) : any(4);
	uint64_t size = 2 + any(any(2) ? 300 : 70000), symbols = 2 + any(30), table_rows = 2 + any(20), width = (size + 63) / 64;
	uint64_t most = UINT64_MAX / (size + any(1000)), own = 1 + any(UINT64_MAX - 1), other = (1 + any(1 << 12)) << any(52);
	unsigned bits = 1 + (unsigned)any(6);
	int outside = !any(4) && count;
	uint32_t *values = room(count, 4), *reports = room(count, 4);
	uint64_t *words = room(count * (width > 2 ? width : 2), 8), *table = room(table_rows << bits, 8), *given = room(3 * count, 8);
	uint8_t *octets = room((size + 7) / 8 * count, 1), key[32] = {1};
	for (size_t i = 0; i < count; i++) values[i] = (uint32_t)any(smaller(size, table_rows));
	if (outside) values[any(count)] = (uint32_t)(UINT32_MAX - any(1000));
	check(!ldpsql_random_words(table_rows << bits, table), "table");
	check(!ldpsql_random_words(3 * count, given), "given words");
	const uint64_t *source = any(2) ? given : NULL;
	check(ldpsql_keep_or_spread(values, count, size, 1 + any(most), source, reports) == (outside ? OUTSIDE : DRAWN), "k-RR");
	for (size_t i = 0; i < count && !outside; i++) check(reports[i] < size, "k-RR");
	check(ldpsql_alias(values, count, table_rows, bits, table, source, reports) == (outside ? OUTSIDE : DRAWN), "alias tables");
	size_t few = size > 300 && !outside ? smaller(count, 3) : count;  // a report of many values takes many words
	check(ldpsql_bits(values, few, size > 300 && outside ? 300 : size, own, other, NULL, words) == (outside ? OUTSIDE : DRAWN), "bits");
	check(ldpsql_hashes(values, count, size, symbols, 1 + any(UINT64_MAX / (symbols + 1)), 0, 0, NULL, source, words) ==
	          (outside ? OUTSIDE : DRAWN), "hashes");
	for (size_t i = 0; i < count && !outside; i++) check(words[2 * i + 1] < symbols, "hashes");
	uint8_t *hashes = room(3 * size, 1);
	for (size_t i = 0; i < 3 * size; i++) hashes[i] = (uint8_t)(i % symbols);
	check(ldpsql_hashes(values, count, size, symbols, UINT64_MAX / (symbols + 1), 3, UINT64_MAX / 3, hashes, source, reports) ==
	          (outside ? OUTSIDE : DRAWN), "listed hashes");
	for (size_t i = 0; i < count && !outside; i++) check(reports[i] < 3 * symbols, "listed hashes");
	free(hashes);
	uint64_t *y = room(count, 8);
	for (size_t i = 0; i < count; i++) y[i] = any(symbols);
	ldpsql_hash_sets(given, y, count, size, symbols, octets);
	for (size_t i = 0; i < count; i++) reports[i] = (uint32_t)i;
	check(ldpsql_shuffle(4, count, 0, NULL, reports) == DRAWN, "order");
	ldpsql_shuffle(16, count / 4, 3 * count, given, values);
	uint8_t *buckets = room(count, 1);
	int64_t ends[256];
	for (size_t i = 0; i < count; i++) buckets[i] = (uint8_t)any(256);
	ldpsql_by_bucket(buckets, 4, reports, count, values, ends);
	check(ends[255] == (int64_t)count, "buckets");
	for (size_t i = 0; i < count; i++) octets[reports[i]] = buckets[i];
	for (size_t i = 1; i < count; i++) check(octets[values[i - 1]] <= octets[values[i]], "buckets");
	free(buckets);
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++) sum += reports[i];
	check(sum == (count ? (uint64_t)count * (count - 1) / 2 : 0), "order");
	ldpsql_expand(key, (int)any(3), given, count);
	free(values), free(reports), free(words), free(table), free(given), free(octets), free(y);
}

static void *rounds(void *number) {
	for (long i = 0; i < *(long *)number; i++) one_round();
	return NULL;
}

int main(int arguments, char **argument) {
	long number = arguments > 1 ? atol(argument[1]) : 300;
	one_round();
	int status = 0;
	pid_t child = fork();
	if (!child) exit(rounds(&number) != NULL);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++) check(!pthread_create(&threads[i], NULL, rounds, &number), "thread");
	for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
	waitpid(child, &status, 0);
	check(!status, "forked process");
	puts("kernels: no complaint");
	return 0;
}
