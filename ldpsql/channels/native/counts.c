// How often hashed reports occur: a table of those that were seen, from which they are read in order.
#include "kernels.h"
#include <stdlib.h>
#include <string.h>

static inline uint64_t place_in(const tally *t, uint64_t seed, uint64_t rest) {
	return ((splitmix(seed ^ t->salt) ^ rest) * 0x9E3779B97F4A7C15u >> 32) & t->mask;
}

static inline counted *slot_of(const tally *t, uint64_t seed, uint64_t rest) {
	uint64_t at = place_in(t, seed, rest);
	while (t->slots[at].n && (t->slots[at].seed != seed || t->slots[at].rest != rest)) at = (at + 1) & t->mask;
	return t->slots + at;
}

static bool resize(tally *t, uint64_t slots) {
	// Nobody who sends reports knows where they go, or could send many to the same place.
	if (!t->slots && !random_words(&t->salt, 1)) return false;
	tally larger = {.used = t->used, .mask = slots - 1, .salt = t->salt, .slots = calloc(slots, sizeof *larger.slots)};
	if (!larger.slots) return false;
	for (uint64_t i = 0; t->slots && i <= t->mask; i++)
		if (t->slots[i].n) *slot_of(&larger, t->slots[i].seed, t->slots[i].rest) = t->slots[i];
	free(t->slots);
	*t = larger;
	return true;
}

// Make room for one more report. Of a small table half is used at most, which is faster; of a large one three quarters.
static inline bool has_room(tally *t) {
	const uint64_t most = t->mask < 1 << 16 ? t->mask / 2 : t->mask / 4 * 3;
	return !t->slots ? resize(t, 4) : t->used <= most || resize(t, 2 * (t->mask + 1));
}

static inline bool is_valid(const uint64_t *valid, size_t row) { return !valid || valid[row / 64] >> row % 64 & 1; }

bool tally_rows(tally **tallies, const hashed_column *column, size_t count) {
	for (size_t i = 0; i < count; i++) {
		if (!is_valid(column->valid, i)) continue;
		uint64_t seed = UINT64_MAX, rest = 0;
		if (is_valid(column->seeds_valid, i)) seed = column->seeds[i];
		else rest = NO_SEED;  // after all seeds, as histogram() has it
		if (is_valid(column->symbols_valid, i)) rest |= column->symbols[i];
		else rest |= NO_SYMBOL;
		if (!has_room(tallies[i])) return false;
		counted *slot = slot_of(tallies[i], seed, rest);
		if (!slot->n) *slot = (counted){seed, rest, 0}, tallies[i]->used++;
		slot->n++;
	}
	return true;
}

bool tally_merge(tally *t, const tally *other) {
	for (uint64_t i = 0; other->slots && i <= other->mask; i++) {
		const counted *one = other->slots + i;
		if (!one->n) continue;
		if (!has_room(t)) return false;
		counted *slot = slot_of(t, one->seed, one->rest);
		t->used += !slot->n;
		*slot = (counted){one->seed, one->rest, slot->n + one->n};
	}
	return true;
}

static int in_order(const void *a, const void *b) {
	const counted *one = a, *other = b;
	if (one->seed != other->seed) return one->seed < other->seed ? -1 : 1;
	return one->rest < other->rest ? -1 : one->rest > other->rest;
}

// Many reports are first divided by the highest bits of their seeds, which are random unless somebody chose them, about 8 to a part.
counted *tally_sorted(const tally *t) {
	int bits = 0;
	while (bits < 16 && t->used >> bits > 8) bits++;
	const size_t parts = (size_t)1 << bits;
	counted *sorted = malloc((t->used + 1) * sizeof *sorted);
	uint64_t *ends = calloc(parts + 1, sizeof *ends);  // at first where the part before begins
	if (!sorted || !ends) return free(sorted), free(ends), NULL;
	for (uint64_t i = 0; t->slots && i <= t->mask; i++)
		if (t->slots[i].n) ends[(t->slots[i].seed >> 32 >> (32 - bits)) + 1]++;
	for (size_t part = 0; part < parts; part++) ends[part + 1] += ends[part];
	for (uint64_t i = 0; t->slots && i <= t->mask; i++)
		if (t->slots[i].n) sorted[ends[t->slots[i].seed >> 32 >> (32 - bits)]++] = t->slots[i];
	for (size_t part = 0, start = 0; part < parts; start = ends[part++])
		qsort(sorted + start, ends[part] - start, sizeof *sorted, in_order);
	free(ends);
	return sorted;
}
