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

typedef struct { uint64_t first, second; } wide;
#define CELLS(X) X(1, uint8_t) X(2, uint16_t) X(4, uint32_t) X(8, uint64_t) X(16, wide)

// Put cells of so many octets, at most 2^31, in random order (Durstenfeld, "Algorithm 235", CACM 1964). Random words are read in
// halves, the lower half first; `words` of them are given unless `given` is NULL.
#define SHUFFLE(WIDTH, C)                                                  \
	case WIDTH:                                                            \
		for (size_t i = 0; i < count; i++) {                               \
			if (!below(&s, (uint32_t)i + 1, &other)) return NO_RANDOMNESS; \
			C *all = cells, moved = all[other];                            \
			all[other] = all[i], all[i] = moved;                           \
		}                                                                  \
		break;
EXPORT int ldpsql_shuffle(size_t width, size_t count, size_t words, const uint64_t *given, void *cells) {
	source s = {.given = given, .end = given ? given + words : NULL, .at = 2 * BLOCK};
	uint32_t other;
	switch (width) { CELLS(SHUFFLE) }
	erase(s.halves, sizeof s.halves);
	return DRAWN;
}

// Write cells, at most 2^31, in the order of their buckets, and where the cells of each of 256 buckets end. Cells of a bucket stay
// in order.
#define SORT(WIDTH, C)                                                                    \
	case WIDTH: {                                                                         \
		const C *from = cells;                                                            \
		C *to = out;                                                                      \
		for (size_t i = 0; i < quarter; i++)                                              \
			for (size_t part = 0; part < 4; part++)                                       \
				to[next[part][buckets[part * quarter + i]]++] = from[part * quarter + i]; \
		for (size_t i = 4 * quarter; i < count; i++) to[next[3][buckets[i]]++] = from[i]; \
		break;                                                                            \
	}
EXPORT void ldpsql_by_bucket(const uint8_t *buckets, size_t width, const void *cells, size_t count, void *out, int64_t *ends) {
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
	switch (width) { CELLS(SORT) }
}
