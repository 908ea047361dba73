// Calls every kernel with random shapes and values, from four threads and a forked process, for the sanitizers: make sanitize.
#include "kernels.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int ldpsql_alias(const uint32_t *, size_t, uint64_t, unsigned, const uint64_t *, const uint64_t *, uint32_t *);
int ldpsql_bits(const uint32_t *, size_t, uint64_t, uint64_t, uint64_t, const uint64_t *, uint64_t *);
int ldpsql_column(int64_t, int, int, const void *, size_t, const uint64_t *, void *);
int ldpsql_rows(const int64_t *, int, int, const void *, size_t, const uint64_t *, void *);
bool ldpsql_learn_text(int64_t, uint64_t, uint64_t, const char *, const int32_t *);
bool ldpsql_learn_whole(int64_t, uint64_t, uint64_t, const int64_t *);
int ldpsql_permutation(size_t, size_t, const uint64_t *, uint32_t *);
int ldpsql_private_hash(const uint32_t *, size_t, uint64_t, uint64_t, uint64_t, const uint64_t *, uint64_t *);
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

enum { RECIPES = 1 << 14, TEXT = 17 };
static const size_t WIDTHS[] = {[2] = 1, 2, 4, 8, 1, 2, 4, 8};  // of DuckDB's types of whole numbers

// Columns of whole numbers of any width, of mechanisms that several threads describe at the same time.
static void whole_columns(void) {
	int64_t number = (int64_t)any(RECIPES / 2), low = any(2) ? 0 : -(int64_t)any(200);
	uint64_t size = 2 + any(30), count = any(3 * BLOCK), gap = 1 + any(3);
	int64_t *listed = room(size, 8);
	for (uint64_t i = 0; i < size; i++) listed[i] = low + (int64_t)(i * gap);
	ldpsql_learn_whole(number, size, UINT64_MAX / (size + 1), listed);
	int64_t other = (int64_t)any(RECIPES / 2), *numbers = room(count, 8);  // a mechanism of another level
	ldpsql_learn_whole(other, size, UINT64_MAX / (size + 9), listed);
	for (uint64_t i = 0; i < count; i++) numbers[i] = any(2) ? number : other;
	if (count && !any(4)) numbers[any(count)] = (int64_t)any(UINT64_MAX);
	int type = 2 + (int)any(8), out = 2 + (int)any(8);
	uint8_t *column = room(count, WIDTHS[type]), *reports = room(count, WIDTHS[out]);
	for (uint64_t i = 0; i < count * WIDTHS[type]; i++) column[i] = any(4) ? 0 : (uint8_t)any(256);
	ldpsql_column(number, type, out, column, count, NULL, reports);
	ldpsql_column((int64_t)any(UINT64_MAX), type, out, column, count, NULL, reports);
	ldpsql_rows(numbers, type, out, column, count, NULL, reports);
	check(ldpsql_column(number, type, TEXT, column, count, NULL, reports) == OUTSIDE, "whole numbers as text");
	free(listed), free(numbers), free(column), free(reports);
}

// A text of DuckDB: of up to 12 octets it is in it, of more behind an address.
typedef struct { uint32_t length; char start[4]; union { char rest[8]; char *octets; } end; } text;

static void text_columns(void) {
	int64_t number = RECIPES / 2 + (int64_t)any(RECIPES / 2);
	uint64_t size = 2 + any(30), count = any(3 * BLOCK);
	int32_t *ends = room(size, 4);
	char *octets = room(30 * size, 1);
	for (uint64_t i = 0, at = 0; i < size; i++) {  // text i is 'a' i times: all are distinct
		memset(octets + at, 'a', i);
		ends[i] = (int32_t)(at += i);
	}
	ldpsql_learn_text(number, size, UINT64_MAX / (size + 1), octets, ends);
	text *column = room(count, sizeof *column), *reports = room(count, sizeof *reports);
	bool strange = count && !any(4);
	for (uint64_t i = 0; i < count; i++) {
		uint32_t length = strange && any(2) ? 100 : (uint32_t)any(size);
		column[i] = (text){.length = length};
		if (length > 12) memset(column[i].end.octets = room(length, 1), 'a', length);
		else memset(column[i].start, 'a', length);
	}
	if (ldpsql_column(number, TEXT, TEXT, column, count, NULL, reports) == DRAWN)
		for (uint64_t i = 0; i < count; i++) check(reports[i].length < 32, "texts");
	int64_t other = RECIPES / 2 + (int64_t)any(RECIPES / 2), *numbers = room(count, 8);
	ldpsql_learn_text(other, size, UINT64_MAX / (size + 9), octets, ends);
	for (uint64_t i = 0; i < count; i++) numbers[i] = any(2) ? number : other;
	if (ldpsql_rows(numbers, TEXT, TEXT, column, count, NULL, reports) == DRAWN)
		for (uint64_t i = 0; i < count; i++) check(reports[i].length < 32, "texts of levels");
	check(ldpsql_column(number, TEXT, 5, column, count, NULL, reports) == OUTSIDE, "text as whole numbers");
	for (uint64_t i = 0; i < count; i++) if (column[i].length > 12) free(column[i].end.octets);
	free(ends), free(octets), free(numbers), free(column), free(reports);
}

static void one_round(void) {
	whole_columns();
	text_columns();
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
	check(ldpsql_private_hash(values, count, size, symbols, 1 + any(UINT64_MAX / (symbols + 1)), source, words) ==
	          (outside ? OUTSIDE : DRAWN), "hashes");
	for (size_t i = 0; i < count && !outside; i++) check(words[2 * i + 1] < symbols, "hashes");
	uint64_t *y = room(count, 8);
	for (size_t i = 0; i < count; i++) y[i] = any(symbols);
	ldpsql_hash_sets(given, y, count, size, symbols, octets);
	check(ldpsql_permutation(count, 0, NULL, reports) == DRAWN, "order");
	ldpsql_permutation(count, 3 * count, given, values);
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
