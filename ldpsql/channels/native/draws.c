// Draws from whole-number weights, word for word equal to the samplers in Python: KeepOrSpread, AliasTables, IndependentBits,
// PrivateHash, OrthogonalHash and Levels in the folder above. Each returns OUTSIDE if a value is not a position of the channel.
#include "kernels.h"
#include <string.h>

enum { SHORT_SIZE = 1024 };  // below so many other values, 16 bits decide nearly always

typedef struct {
	uint64_t size, spread, factor;
	int shift;
	uint32_t part, decided, reciprocal;  // of short words, for which `part` is not 0
} responses;

// Division by the same number many times: Granlund, Montgomery, "Division by invariant integers using multiplication", 1994.
// A word of 16 bits that is below `decided` decides a draw alone, as in ShortWords.
static responses responses_of(uint64_t size, uint64_t spread) {
	responses r = {.size = size, .spread = spread, .shift = 63 - __builtin_clzll(spread)};
	if (spread & (spread - 1)) {
		unsigned __int128 power = (unsigned __int128)1 << (64 + r.shift);
		uint64_t quotient = (uint64_t)(power / spread), rest = (uint64_t)(power % spread);
		r.factor = 2 * quotient + (rest >= spread - rest) + 1;
	}
	if (size - 1 < SHORT_SIZE && spread >> 48 > 1) {
		r.part = (uint32_t)(spread >> 48);
		r.decided = (uint32_t)((size - 1) * r.part + (-((size - 1) * spread) >> 48));
		r.reciprocal = UINT32_MAX / r.part + 1;
	}
	return r;
}

static inline uint32_t step_of(const responses *r, uint64_t word) {
	uint64_t step = word >> r->shift;
	if (r->factor) {
		uint64_t high = (uint64_t)((unsigned __int128)r->factor * word >> 64);
		step = (((word - high) >> 1) + high) >> r->shift;
	}
	return (uint32_t)(step < r->size - 1 ? step : r->size - 1);
}

// Write how far each of up to BLOCK reports moves on from its value: min(word / spread, size - 1).
CLONES static bool steps_of(const responses *r, const uint64_t **given, uint32_t *steps, size_t count) {
	uint64_t words[BLOCK], further;
	uint16_t shorts[BLOCK];
	if (!r->part) {
		if (!take_words(given, words, count)) return false;
		for (size_t i = 0; i < count; i++) steps[i] = step_of(r, words[i]);
		erase(words, sizeof words);
		return true;
	}
	if (!take_words(given, words, (count + 3) / 4)) return false;
	memcpy(shorts, words, 2 * count);
	const uint32_t last = (uint32_t)r->size - 1;
	uint32_t undecided = 0;
	for (size_t i = 0; i < count; i++) {
		uint32_t step = (uint32_t)((uint64_t)shorts[i] * r->reciprocal >> 32);
		steps[i] = step < last ? step : last;
		undecided |= shorts[i] >= r->decided;
	}
	for (size_t i = 0; undecided && i < count; i++) {
		if (shorts[i] < r->decided) continue;
		if (!take_words(given, &further, 1)) return false;
		uint64_t step = ((uint64_t)(shorts[i] - r->decided) << 48 | further >> 16) / (r->spread & (((uint64_t)1 << 48) - 1));
		steps[i] = step < last ? (uint32_t)step : last;
	}
	erase(words, sizeof words);
	erase(shorts, sizeof shorts);
	erase(&further, sizeof further);
	return true;
}

// The value that many places further on; from `size` on, start again at 0.
static inline uint32_t moved(uint32_t value, uint32_t step, uint64_t size) {
	uint64_t to = (uint64_t)value + step + 1;
	return (uint32_t)(to < size ? to : to - size);
}

// KeepOrSpread: a short word or a word for each value of a block, then a word for each that a short one does not decide.
EXPORT CLONES int ldpsql_keep_or_spread(const uint32_t *values, size_t count, uint64_t size, uint64_t spread, const uint64_t *given,
                                 uint32_t *out) {
	const responses r = responses_of(size, spread);
	uint32_t steps[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		if (!steps_of(&r, &given, steps, rows)) return NO_RANDOMNESS;
		uint32_t most = 0;
		for (size_t i = 0; i < rows; i++) {
			uint32_t value = values[start + i];
			most = value > most ? value : most;
			out[start + i] = moved(value, steps[i], size);
		}
		if (most >= size) return OUTSIDE;
	}
	erase(steps, sizeof steps);
	return DRAWN;
}

// AliasTables: the table has `size` rows of 2^bits columns; one word a value.
EXPORT CLONES int ldpsql_alias(const uint32_t *values, size_t count, uint64_t size, unsigned bits, const uint64_t *table,
                        const uint64_t *given, uint32_t *out) {
	const uint64_t low = ((uint64_t)1 << bits) - 1;
	uint64_t words[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		if (!take_words(&given, words, rows)) return NO_RANDOMNESS;
		for (size_t i = 0; i < rows; i++) {
			if (values[start + i] >= size) return OUTSIDE;
			uint64_t column = words[i] >> (64 - bits), entry = table[(uint64_t)values[start + i] << bits | column];
			out[start + i] = (uint32_t)((words[i] << bits) < (entry & ~low) ? column : entry & low);
		}
	}
	erase(words, sizeof words);
	return DRAWN;
}

// Join words with coins where they are made: OR for a digit 1 of the weight, AND for a digit 0.
CLONES static bool join(const uint64_t **given, uint64_t *coins, size_t count, bool digit) {
	for (size_t some; count; coins += some, count -= some) {
		some = count;
		uint64_t *own = *given ? NULL : some_words(&some);
		const uint64_t *words = *given ? *given : own;
		if (!words) return false;
		if (digit) for (size_t i = 0; i < some; i++) coins[i] |= words[i];
		else for (size_t i = 0; i < some; i++) coins[i] &= words[i];
		if (own) memset(own, 0, 8 * some);
		else *given += some;
	}
	return true;
}

// IndependentBits: all bits with the weight `other`, from its last nonzero binary digit to the first; then those of the values.
EXPORT CLONES int ldpsql_bits(const uint32_t *values, size_t count, uint64_t size, uint64_t own, uint64_t other, const uint64_t *given,
                       uint64_t *out) {
	const size_t width = words_of(size);
	uint64_t words[BLOCK];
	for (size_t start = 0, cells; start < count * width; start += cells) {
		cells = smaller(BLOCK, count * width - start);
		memset(out + start, 0, 8 * cells);
		for (int place = __builtin_ctzll(other); place < 64; place++)
			if (!join(&given, out + start, cells, other >> place & 1)) return NO_RANDOMNESS;
	}
	const uint64_t last = size % 64 ? ((uint64_t)1 << size % 64) - 1 : ~(uint64_t)0;
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		if (!take_words(&given, words, rows)) return NO_RANDOMNESS;
		for (size_t i = 0; i < rows; i++) {
			uint32_t value = values[start + i];
			if (value >= size) return OUTSIDE;
			uint64_t *report = out + (start + i) * width, place = value % 64;
			report[width - 1] &= last;
			report[value / 64] = (report[value / 64] & ~((uint64_t)1 << place)) | (uint64_t)(words[i] < own) << place;
		}
	}
	erase(words, sizeof words);
	return DRAWN;
}

// PrivateHash and OrthogonalHash: a seed, and the response to the hash of the value under it. Of a block, the seeds come first.
CLONES int hash_block(const hashing *h, const uint32_t *values, size_t count, const uint64_t **given, uint64_t *seeds, uint32_t *y) {
	const responses r = responses_of(h->symbols, h->spread);
	uint32_t steps[BLOCK], most = 0;
	for (size_t i = 0; i < count; i++) most = values[i] > most ? values[i] : most;
	if (most >= h->size) return OUTSIDE;
	if (!take_words(given, seeds, count)) return NO_RANDOMNESS;
	if (h->table) {
		const responses s = responses_of(h->seeds, h->step);
		for (size_t i = 0; i < count; i++) seeds[i] = step_of(&s, seeds[i]);
	}
	if (!steps_of(&r, given, steps, count)) return NO_RANDOMNESS;
	if (h->table) for (size_t i = 0; i < count; i++) y[i] = h->table[seeds[i] * h->size + values[i]];
	else for (size_t i = 0; i < count; i++) y[i] = (uint32_t)((splitmix(splitmix(seeds[i]) ^ values[i]) >> 32) * h->symbols >> 32);
	for (size_t i = 0; i < count; i++) y[i] = moved(y[i], steps[i], h->symbols);
	erase(steps, sizeof steps);
	return DRAWN;
}

// PrivateHash: seeds and symbols in turn. OrthogonalHash: seed * symbols + y as 32 bits, from a table of the hashes of all values
// under each of the seeds, at most 256 symbols.
EXPORT int ldpsql_hashes(const uint32_t *values, size_t count, uint64_t size, uint64_t symbols, uint64_t spread, uint64_t seed_count,
                         uint64_t step, const uint8_t *table, const uint64_t *given, void *out) {
	const hashing h = {size, symbols, spread, seed_count, step, table};
	uint64_t seeds[BLOCK], *pairs = out;
	uint32_t y[BLOCK], *positions = out;
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		int failure = hash_block(&h, values + start, rows, &given, seeds, y);
		if (failure) return failure;
		if (table) for (size_t i = 0; i < rows; i++) positions[start + i] = (uint32_t)(seeds[i] * symbols + y[i]);
		else for (size_t i = 0; i < rows; i++) pairs[2 * (start + i)] = seeds[i], pairs[2 * (start + i) + 1] = y[i];
	}
	return DRAWN;
}

static inline uint64_t parity(uint64_t bits) { return (uint64_t)__builtin_parityll(bits); }

// Levels: a level and a function from a word, the few that it does not decide from a further one, then the response from another.
// A function of the node of a value is a number whose bits, under each mask of the node, have the parity of a bit of the hash.
EXPORT CLONES int ldpsql_levels(const uint32_t *values, size_t count, uint64_t size, const tree *t, const uint64_t *given, uint8_t *levels,
                                uint32_t *seeds, uint16_t *symbols) {
	const uint64_t *masks = (const uint64_t *)(t->levels + t->count);
	uint64_t words[BLOCK], further;
	uint32_t nodes[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		if (!take_words(&given, words, rows)) return NO_RANDOMNESS;
		for (size_t i = 0; i < rows; i++) {
			const uint64_t half = words[i] >> 32, number = (words[i] & UINT32_MAX) * t->count >> 32;
			const level *own = t->levels + number;
			if (values[start + i] >= size) return OUTSIDE;
			uint64_t scaled = half * own->functions, seed = scaled >> 32;
			if ((uint32_t)scaled > t->surely) {
				if (!take_words(&given, &further, 1)) return NO_RANDOMNESS;
				seed = smaller((half << 32 | further >> 32) / own->step, own->functions - 1);
			}
			nodes[i] = values[start + i] / (uint32_t)own->length;
			__builtin_prefetch(masks + (own->node + nodes[i]) * t->words);
			levels[start + i] = (uint8_t)number, seeds[start + i] = (uint32_t)seed;
		}
		if (!take_words(&given, words, rows)) return NO_RANDOMNESS;
		for (size_t i = 0; i < rows; i++) {
			const level *own = t->levels + levels[start + i];
			const uint64_t seed = seeds[start + i], *mask = masks + (own->node + nodes[i]) * t->words;
			const uint64_t line = seed + t->offsets[63 - __builtin_clzll(seed * t->factor + 1)], twice = line << 32 | line;
			uint64_t hash = own->direct * nodes[i];
			for (uint64_t word = 0; word < t->words; word++) {
				const uint64_t bits = mask[word] & twice;
				hash += (parity(bits & UINT32_MAX) | parity(bits >> 32) << 1) << 2 * word;
			}
			const uint64_t step = smaller(words[i] / own->spread, own->symbols - 1);
			symbols[start + i] = (uint16_t)moved((uint32_t)hash, (uint32_t)step, own->symbols);
		}
	}
	erase(nodes, sizeof nodes);
	erase(words, sizeof words);
	erase(&further, sizeof further);
	return DRAWN;
}
