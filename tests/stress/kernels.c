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
int ldpsql_keep_or_spread(const uint32_t *, size_t, uint64_t, uint64_t, const uint64_t *, uint32_t *);
int ldpsql_permutation(size_t, size_t, const uint64_t *, uint32_t *);
int ldpsql_private_hash(const uint32_t *, size_t, uint64_t, uint64_t, uint64_t, const uint64_t *, uint64_t *);
int ldpsql_random_words(size_t, uint64_t *);
void ldpsql_expand(const uint8_t *, uint64_t *, size_t);
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

static void one_round(void) {
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
	ldpsql_expand(key, given, count);
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
