// The sets of hashed reports as bits: the same numbers as `hashed` in ../hashed.py, value by value.
#include "kernels.h"

enum { VERSION = 13, REPORTS = 256 };  // so many reports at a time stay in the cache of the core

// The least upper half of a word that hashes to y: y * 2^32 / symbols, rounded up.
static inline uint64_t least(uint64_t y, uint64_t symbols) { return ((y << 32) + symbols - 1) / symbols; }

// Which of the values low .. low + bits - 1 hash into the range. Below it the difference wraps to a very large number.
static inline uint8_t octet_of(uint64_t begun, uint64_t first, uint64_t width, uint64_t low, int bits) {
	unsigned octet = 0;
	for (int i = 0; i < bits; i++) octet |= (unsigned)((splitmix(begun ^ (low + (uint64_t)i)) >> 32) - first < width) << i;
	return (uint8_t)octet;
}

EXPORT uint32_t ldpsql_version(void) { return VERSION; }

// Write bit i of out[b * reports + r] = whether value 8 b + i, below size, hashes to y[r] under seeds[r]. There are
// (size + 7) / 8 rows of octets; symbols is at least 1.
EXPORT CLONES void ldpsql_hash_sets(const uint64_t *seeds, const uint64_t *y, size_t reports, uint64_t size, uint64_t symbols, uint8_t *out) {
	uint64_t begun[REPORTS], first[REPORTS], width[REPORTS];
	for (size_t start = 0; start < reports; start += REPORTS) {
		size_t rows = smaller(REPORTS, reports - start);
		for (size_t r = 0; r < rows; r++) {
			begun[r] = splitmix(seeds[start + r]);
			first[r] = least(y[start + r], symbols);
			width[r] = least(y[start + r] + 1, symbols) - first[r];
		}
		for (uint64_t low = 0; low < size; low += 8) {
			uint8_t *octets = out + low / 8 * reports + start;
			if (size - low >= 8) for (size_t r = 0; r < rows; r++) octets[r] = octet_of(begun[r], first[r], width[r], low, 8);
			else for (size_t r = 0; r < rows; r++) octets[r] = octet_of(begun[r], first[r], width[r], low, (int)(size - low));
		}
	}
}
