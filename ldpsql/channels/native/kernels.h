// What the kernels share: exported names, and where random words come from.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

// Loops are compiled for several kinds of processors, of which one is chosen when the library is loaded.
#if !defined(__x86_64__) || !defined(__GLIBC__) || defined(__clang__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CLONES
#elif __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CLONES __attribute__((target_clones("avx2", "default")))
#endif

enum { BLOCK = 512 };  // words at a time: a kernel keeps them on its stack, in the cache of the core
typedef enum { DRAWN, NO_RANDOMNESS, OUTSIDE } status;

// Write this many random words; returns false if the operating system gives no key.
bool random_words(uint64_t *out, size_t count);

// Return where the next random words are, and how many of up to `count` follow each other; NULL if the operating system gives
// no key. Whoever uses them erases them.
uint64_t *some_words(size_t *count);

// Write this many words: the next of the given ones, which tests pass, or random ones if `given` points to NULL.
bool take_words(const uint64_t **given, uint64_t *out, size_t count);

// Overwrite memory with zeros even if it is not read again.
void erase(void *memory, size_t octets);

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// Constant, xor, multiply: the finaliser of SplitMix64, as `splitmix` in ../hashed.py.
static inline uint64_t splitmix(uint64_t z) {
	z += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

// The words of a report of independent bits.
static inline size_t words_of(uint64_t size) { return (size_t)((size + 63) / 64); }

// How reports are hashed: under seeds of 64 bits, or under one of `seeds` seeds that a table of all hashes has; see draws.c.
typedef struct { uint64_t size, symbols, spread, seeds, step; const uint8_t *table; } hashing;
int hash_block(const hashing *h, const uint32_t *values, size_t count, const uint64_t **given, uint64_t *seeds, uint32_t *y);

// How reports of levels are drawn: see `LevelDraws` in ../levels.py. After the levels there are `words` masks for each node.
typedef struct { uint64_t functions, step, spread, symbols, length, node, direct; } level;  // direct: 1 if nodes are not hashed
typedef struct { uint64_t count, surely, words, factor, offsets[64]; level levels[]; } tree;
EXPORT int ldpsql_levels(const uint32_t *values, size_t count, uint64_t size, const tree *t, const uint64_t *given, uint8_t *levels,
                         uint32_t *seeds, uint16_t *symbols);

// Counts of hashed reports: see counts.c. A table begins with zeros, and its slots are freed by whoever has it. The functions
// return false or NULL without memory.
typedef struct { uint64_t seed, rest, n; } counted;  // rest: the symbol, and what is missing of a report that cannot occur
#define NO_SEED ((uint64_t)1 << 32)
#define NO_SYMBOL ((uint64_t)1 << 33)
typedef struct { uint64_t used, mask, salt; counted *slots; } tally;
typedef struct { const uint64_t *valid, *seeds, *seeds_valid; const uint32_t *symbols; const uint64_t *symbols_valid; } hashed_column;
bool tally_rows(tally **tallies, const hashed_column *column, size_t count);  // each row into its table; NULL is left out
bool tally_merge(tally *t, const tally *other);
counted *tally_sorted(const tally *t);  // `used` ones, by seed and rest

// Draw a report for each position: see draws.c.
EXPORT int ldpsql_keep_or_spread(const uint32_t *values, size_t count, uint64_t size, uint64_t spread, const uint64_t *given, uint32_t *out);
EXPORT int ldpsql_alias(const uint32_t *values, size_t count, uint64_t size, unsigned bits, const uint64_t *table, const uint64_t *given,
                        uint32_t *out);
EXPORT int ldpsql_bits(const uint32_t *values, size_t count, uint64_t size, uint64_t own, uint64_t other, const uint64_t *given,
                       uint64_t *out);
