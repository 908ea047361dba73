// Uniformly random orders: every order of the numbers below `count` has exactly the same probability.
#include "kernels.h"
#include <string.h>

typedef struct {
	const uint64_t *given, *end;  // NULL for random words
	uint32_t halves[2 * BLOCK];
	size_t at;
} source;

static inline bool next_half(source *s, uint32_t *half) {
	if (s->at == 2 * BLOCK) {
		uint64_t words[BLOCK];
		if (s->given && s->end - s->given < BLOCK) return false;
		if (!take_words(&s->given, words, BLOCK)) return false;
		memcpy(s->halves, words, sizeof words);
		erase(words, sizeof words);
		s->at = 0;
	}
	*half = s->halves[s->at++];
	return true;
}

// Write a number below the bound, all equally likely: Lemire, "Fast random integer generation in an interval", TOMACS 2019.
static inline bool below(source *s, uint32_t bound, uint32_t *number) {
	uint32_t half;
	if (!next_half(s, &half)) return false;
	uint64_t product = (uint64_t)half * bound;
	if ((uint32_t)product < bound) {
		uint32_t least = -bound % bound;  // 2^32 modulo the bound: so many halves are too many
		while ((uint32_t)product < least) {
			if (!next_half(s, &half)) return false;
			product = (uint64_t)half * bound;
		}
	}
	*number = (uint32_t)(product >> 32);
	return true;
}

// Write the numbers below `count`, at most 2^31, in random order (Durstenfeld, "Algorithm 235", CACM 1964). Random words are
// read in halves, the lower half first; `words` of them are given unless `given` is NULL.
EXPORT int ldpsql_permutation(size_t count, size_t words, const uint64_t *given, uint32_t *out) {
	source s = {.given = given, .end = given ? given + words : NULL, .at = 2 * BLOCK};
	for (size_t i = 0; i < count; i++) {
		uint32_t other;
		if (!below(&s, (uint32_t)i + 1, &other)) return NO_RANDOMNESS;
		out[i] = (uint32_t)i;
		out[i] = out[other];
		out[other] = (uint32_t)i;
	}
	erase(s.halves, sizeof s.halves);
	return DRAWN;
}

// Write the rows below `count`, at most 2^31, in the order of their buckets, and where the rows of each of 256 buckets end. Rows of
// a bucket stay in order.
EXPORT void ldpsql_by_bucket(const uint8_t *buckets, size_t count, uint32_t *out, int64_t *ends) {
	uint32_t next[4][256] = {{0}}, at = 0;  // of each quarter: neighbours seldom wait for each other
	const size_t quarter = count / 4;
	for (size_t i = 0; i < quarter; i++)
		for (size_t part = 0; part < 4; part++) next[part][buckets[part * quarter + i]]++;
	for (size_t i = 4 * quarter; i < count; i++) next[3][buckets[i]]++;
	for (size_t bucket = 0; bucket < 256; bucket++) {
		for (size_t part = 0; part < 4; part++) {
			const uint32_t size = next[part][bucket];
			next[part][bucket] = at;
			at += size;
		}
		ends[bucket] = at;
	}
	for (size_t i = 0; i < quarter; i++)
		for (size_t part = 0; part < 4; part++) {
			const size_t row = part * quarter + i;
			out[next[part][buckets[row]]++] = (uint32_t)row;
		}
	for (size_t i = 4 * quarter; i < count; i++) out[next[3][buckets[i]]++] = (uint32_t)i;
}
