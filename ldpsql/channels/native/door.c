// The scalar functions of DuckDB that draw in C: the same names as those in Python, for columns of the types in COLUMNS; and all
// others, which call Python: its own calls of Python put words before each error, and take longer.
//
// The first draw ordinary vectors of mechanisms that `learn` has described. All else goes to Python: NULL and values outside of the
// domain, several domains, draws that a ledger counts, mechanisms without a recipe. So rules and messages are those of Python.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "kernels.h"
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- what is used of DuckDB: declared here, looked up in its library
typedef struct opaque *handle;
typedef union {  // a text: up to 12 octets are in it, followed by zeros
	struct { uint32_t length; char octets[12]; } near;
	struct { uint32_t length; char prefix[4]; const char *octets; } far;
	uint64_t words[2];
} string;
typedef struct { uint64_t offset, length; } entry;  // a list, in the vector of the items of all lists
typedef void (*function)(handle info, handle chunk, handle out);
typedef void (*function_of_states)(handle info, handle chunk, void **states);
typedef void (*finish)(handle info, void **states, handle out, uint64_t count, uint64_t offset);
typedef struct { uint64_t words[6]; } result;
typedef struct arrow_type {  // the C data interface of Arrow: ArrowSchema and ArrowArray
	const char *format, *name, *metadata;
	int64_t flags, size;
	struct arrow_type **parts, *dictionary;
	void (*release)(struct arrow_type *);
	void *own;
} arrow_type;
typedef struct arrow_data {
	int64_t length, missing, offset, buffers_size, size;
	const void **buffers;
	struct arrow_data **parts, *dictionary;
	void (*release)(struct arrow_data *);
	void *own;
} arrow_data;
#define DUCKDB(X) \
	X(int, connect, (handle, handle *)) X(void, disconnect, (handle *)) X(int, register_static_extension, (int32_t (*)(void *))) \
	X(handle, create_logical_type, (int)) X(void, destroy_logical_type, (handle *)) X(handle, create_scalar_function, (void)) \
	X(handle, create_list_type, (handle)) X(handle, create_struct_type, (handle *, const char **, uint64_t)) \
	X(void, destroy_scalar_function, (handle *)) X(void, scalar_function_set_name, (handle, const char *)) \
	X(void, scalar_function_add_parameter, (handle, handle)) X(void, scalar_function_set_return_type, (handle, handle)) \
	X(void, scalar_function_set_volatile, (handle)) X(void, scalar_function_set_special_handling, (handle)) \
	X(void, scalar_function_set_function, (handle, function)) X(void, scalar_function_set_extra_info, (handle, void *, void *)) \
	X(void *, scalar_function_get_extra_info, (handle)) X(void, scalar_function_set_error, (handle, const char *)) \
	X(handle, create_scalar_function_set, (const char *)) X(void, destroy_scalar_function_set, (handle *)) \
	X(int, add_scalar_function_to_set, (handle, handle)) X(int, register_scalar_function_set, (handle, handle)) \
	X(uint64_t, data_chunk_get_size, (handle)) X(handle, data_chunk_get_vector, (handle, uint64_t)) \
	X(void *, vector_get_data, (handle)) X(uint64_t *, vector_get_validity, (handle)) \
	X(void, vector_ensure_validity_writable, (handle)) X(void, validity_set_row_invalid, (uint64_t *, uint64_t)) \
	X(handle, list_vector_get_child, (handle)) X(int, list_vector_reserve, (handle, uint64_t)) \
	X(int, list_vector_set_size, (handle, uint64_t)) X(uint64_t, list_vector_get_size, (handle)) \
	X(handle, struct_vector_get_child, (handle, uint64_t)) X(handle, create_map_type, (handle, handle)) \
	X(handle, create_aggregate_function, (void)) X(void, destroy_aggregate_function, (handle *)) \
	X(void, aggregate_function_set_name, (handle, const char *)) X(void, aggregate_function_add_parameter, (handle, handle)) \
	X(void, aggregate_function_set_return_type, (handle, handle)) X(void, aggregate_function_set_error, (handle, const char *)) \
	X(void, aggregate_function_set_functions, (handle, uint64_t (*)(handle), void (*)(handle, void *), function_of_states, \
	                                           void (*)(handle, void **, void **, uint64_t), finish)) \
	X(void, aggregate_function_set_destructor, (handle, void (*)(void **, uint64_t))) \
	X(int, register_aggregate_function, (handle, handle)) \
	X(void, scalar_function_set_varargs, (handle, handle)) X(int, register_scalar_function, (handle, handle)) \
	X(uint64_t, data_chunk_get_column_count, (handle)) X(void, destroy_data_chunk, (handle *)) \
	X(handle, vector_get_column_type, (handle)) X(void, vector_reference_vector, (handle, handle)) \
	X(void, connection_get_arrow_options, (handle, handle *)) X(void, destroy_arrow_converted_schema, (handle *)) \
	X(handle, to_arrow_schema, (handle, handle *, const char **, uint64_t, arrow_type *)) \
	X(handle, data_chunk_to_arrow, (handle, handle, arrow_data *)) X(handle, schema_from_arrow, (handle, arrow_type *, handle *)) \
	X(handle, data_chunk_from_arrow, (handle, arrow_data *, handle, handle *)) X(bool, error_data_has_error, (handle)) \
	X(void, destroy_error_data, (handle *)) X(int, open, (const char *, handle *)) \
	X(int, query, (handle, const char *, result *)) X(handle, column_logical_type, (result *, uint64_t)) \
	X(void, destroy_result, (result *))
#define MEMBER(result, name, parameters) result(*name) parameters;
static struct { DUCKDB(MEMBER) } duckdb;

enum {
	ANY = 34, BOOLEAN = 1, TINYINT, SMALLINT, INTEGER, BIGINT, UTINYINT, USMALLINT, UINTEGER, UBIGINT, FLOAT, DOUBLE, TIMESTAMP, DATE,
	VARCHAR = 17,
	WORDS = 24, HASHED, PREFIXED, TYPES  // LIST of UBIGINT, STRUCT(seed UBIGINT, y UINTEGER), STRUCT(level UTINYINT, seed UINTEGER, y USMALLINT)
};
#define WHOLE(X) \
	X(BOOLEAN, uint8_t) X(TINYINT, int8_t) X(SMALLINT, int16_t) X(INTEGER, int32_t) X(BIGINT, int64_t) X(UTINYINT, uint8_t) \
	X(USMALLINT, uint16_t) X(UINTEGER, uint32_t) X(UBIGINT, uint64_t) X(TIMESTAMP, int64_t) X(DATE, int32_t)
static const uint8_t widths[TYPES] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 4, [VARCHAR] = sizeof(string), [HASHED] = 8, [PREFIXED] = 1};
static const char *const names[TYPES] = {
	NULL, "boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", NULL, NULL,
	"timestamp", "date", [VARCHAR] = "varchar", [WORDS] = "words", [HASHED] = "hashed", [PREFIXED] = "prefixed"};

static bool is_whole(int type) { return type >= TINYINT && type <= UBIGINT; }
static bool is_number(int type) { return type >= TINYINT && type <= DOUBLE; }

// --- lists of values and of reports, each shared by all mechanisms over it. They are never freed, as vectors point to their text.
enum { RECIPES = 1 << 14, MOST_SPAN = 1 << 24, NONE = UINT32_MAX };
typedef struct { uint32_t part, next; } slot;  // of the hash of a key, and the place after that of the key; 0 if it is empty
typedef struct {
	double low, high, step, off, last, each;  // off: how far from the next step, in steps, 0 for whole numbers; each: steps a bin
	double bins;                              // that hold all numbers between two steps; 0 if numbers lie on steps
	bool clip;                                // numbers beyond an end stand for the end
} interval;
typedef struct {
	int type;  // of text, booleans, dates, timestamps; BIGINT for all whole numbers, DOUBLE for an interval
	uint64_t size;
	int64_t least, most;  // of whole numbers
	uint64_t span;        // from the least to the most; 0 if they are looked up in the slots
	uint32_t *places;     // of so many numbers from the least on; NONE for one that is not listed
	int64_t *values;
	uint64_t mask;  // mask + 1 slots, of which at least half are empty
	slot *slots;
	string *texts;
	char *octets;  // of long texts
	interval within;
} list;

static inline uint64_t hash_of(const string *key) {
	uint64_t hash = key->words[0], word;
	if (key->near.length <= 12) return splitmix(splitmix(hash) ^ key->words[1]);
	const char *text = key->far.octets;
	for (uint32_t left = key->near.length; left; text += smaller(left, 8), left -= (uint32_t)smaller(left, 8)) {
		word = 0;
		memcpy(&word, text, smaller(left, 8));
		hash = splitmix(hash ^ word);
	}
	return hash;
}

static inline bool same(const string *a, const string *b) {
	if (a->words[0] != b->words[0]) return false;
	return a->near.length <= 12 ? a->words[1] == b->words[1] : !memcmp(a->far.octets, b->far.octets, a->near.length);
}

static inline string text_of(const char *octets, uint32_t length) {
	string text = {.near = {.length = length}};
	if (length <= 12) memcpy(text.near.octets, octets, length);
	else memcpy(text.far.prefix, octets, 4), text.far.octets = octets;
	return text;
}

// A value as a key: a text, or a whole number as a text of 8 octets.
static inline string key_at(const list *l, uint32_t place) {
	return l->texts ? l->texts[place] : text_of((const char *)(l->values + place), 8);
}

static inline uint32_t found(const list *l, const string *key, uint64_t hash) {
	for (uint64_t at = hash & l->mask; l->slots[at].next; at = (at + 1) & l->mask) {
		if (l->slots[at].part != hash >> 32) continue;
		const string own = key_at(l, l->slots[at].next - 1);
		if (same(&own, key)) return l->slots[at].next - 1;
	}
	return NONE;
}

// Find the keys of up to BLOCK rows. A long list is not in the cache of the core: its slots and texts are fetched for all rows at once.
static void find(const list *l, const string *keys, size_t rows, uint32_t *places) {
	uint64_t hashes[BLOCK];
	for (size_t i = 0; i < rows; i++) hashes[i] = hash_of(keys + i), __builtin_prefetch(l->slots + (hashes[i] & l->mask));
	for (size_t i = 0; i < rows; i++) __builtin_prefetch(l->texts + (uint32_t)(l->slots[hashes[i] & l->mask].next - 1));
	for (size_t i = 0; i < rows; i++) places[i] = found(l, keys + i, hashes[i]);
}

static void put(list *l, string key, uint64_t place) {
	const uint64_t hash = hash_of(&key);
	uint64_t at = hash & l->mask;
	while (l->slots[at].next) at = (at + 1) & l->mask;
	l->slots[at] = (slot){(uint32_t)(hash >> 32), (uint32_t)place + 1};
}

static bool make_slots(list *l) {
	for (l->mask = 3; l->mask < 2 * l->size; l->mask = 2 * l->mask + 1) {}
	return (l->slots = calloc(l->mask + 1, sizeof *l->slots));
}

static list *without(list *l) {
	free(l->places), free(l->values), free(l->slots), free(l->texts), free(l);
	return NULL;
}

// Return a list of distinct whole numbers, or of what DuckDB stores as such; NULL without memory.
EXPORT list *ldpsql_list_whole(int type, uint64_t size, const int64_t *values) {
	list *l = calloc(1, sizeof *l);
	if (!l || !size || size >= NONE) return free(l), NULL;
	l->type = is_whole(type) ? BIGINT : type, l->size = size, l->least = l->most = values[0];
	for (uint64_t i = 0; i < size; i++) {
		l->least = values[i] < l->least ? values[i] : l->least;
		l->most = values[i] > l->most ? values[i] : l->most;
	}
	l->span = (uint64_t)l->most - (uint64_t)l->least + 1;
	if (l->span > MOST_SPAN) l->span = 0;
	if (!(l->values = malloc(8 * size))) return without(l);
	memcpy(l->values, values, 8 * size);
	if (!l->span) {
		if (!make_slots(l)) return without(l);
		for (uint64_t i = 0; i < size; i++) put(l, text_of((const char *)(l->values + i), 8), i);
		return l;
	}
	if (!(l->places = malloc(4 * l->span))) return without(l);
	memset(l->places, 0xff, 4 * l->span);
	for (uint64_t i = 0; i < size; i++) l->places[(uint64_t)values[i] - (uint64_t)l->least] = (uint32_t)i;
	return l;
}

// Return a list of distinct texts, which follow each other: text i ends before ends[i].
EXPORT list *ldpsql_list_text(uint64_t size, const char *text, const int32_t *ends) {
	list *l = size && size < NONE ? calloc(1, sizeof *l) : NULL;
	char *own = l ? malloc((size_t)ends[size - 1] + 1) : NULL;
	if (!l || !own) return free(l), NULL;
	l->type = VARCHAR, l->size = size, l->octets = own;
	if (!make_slots(l) || !(l->texts = calloc(size, sizeof *l->texts))) return free(own), without(l);
	memcpy(own, text, (size_t)ends[size - 1]);
	for (uint64_t i = 0; i < size; i++) {
		const char *at = own + (i ? ends[i - 1] : 0);
		l->texts[i] = text_of(at, (uint32_t)(own + ends[i] - at));
		put(l, l->texts[i], i);
	}
	return l;
}

// Return the list of the values that stand for the numbers of an interval; see `placing` in domains/unlisted.py.
EXPORT list *ldpsql_list_interval(uint64_t size, const double *placing, bool clip) {
	list *l = calloc(1, sizeof *l);
	if (!l) return NULL;
	l->type = DOUBLE, l->size = size;
	l->within = (interval){placing[0], placing[1], placing[2], placing[3], placing[4], placing[5], placing[6], clip};
	return l;
}

// --- recipes: how a mechanism draws
enum { KEEP_OR_SPREAD, ALIAS, NOISE, BITS, HASH, LEVELS };
typedef struct {
	int structure;
	const list *values, *reports;  // no reports for words and hashes
	uint64_t a, b;                 // spread; bits of a table; bits of a table, number of reports; own, other
	hashing hash;
	const uint64_t *table;
} recipe;
static _Atomic(recipe *) recipes[RECIPES];

// Return a recipe with a copy of its table, if it has one; NULL without memory. For hashes the numbers are symbols, spread, seeds
// and the step between seeds, the last two 0 if each report draws its own seed. It is never freed.
EXPORT recipe *ldpsql_recipe(int structure, const list *values, const list *reports, const uint64_t *numbers, const void *table,
                             size_t octets) {
	recipe *r = calloc(1, sizeof *r);
	void *own = malloc(octets + 1);
	if (!r || !own) return free(r), free(own), NULL;
	if (octets) memcpy(own, table, octets);
	*r = (recipe){structure, values, reports, numbers[0], numbers[1], {values->size, numbers[0], numbers[1], numbers[2], numbers[3],
	                                                               octets ? own : NULL}, own};
	return r;
}

// Describe how the mechanism of a handle draws. Returns whether it will draw.
EXPORT bool ldpsql_learn(int64_t number, int structure, const list *values, const list *reports, const uint64_t *numbers,
                         const void *table, size_t octets) {
	if (number < 0 || number >= RECIPES) return false;
	recipe *r = ldpsql_recipe(structure, values, reports, numbers, table, octets), *none = NULL;
	if (!r || atomic_compare_exchange_strong(&recipes[number], &none, r)) return r != NULL;
	return free((void *)r->table), free(r), false;
}

static const recipe *recipe_of(int64_t number) { return number < 0 || number >= RECIPES ? NULL : atomic_load(&recipes[number]); }

// --- columns
static inline uint32_t bin_of(const list *l, double x) {
	const interval *in = &l->within;
	if (in->clip) x = x < in->low ? in->low : x > in->high ? in->high : x;
	if (in->bins != 0) {
		if (!(x >= in->low && x <= in->high)) return NONE;
		double place = (x - in->low) / in->step;
		return (uint32_t)(place < in->bins - 1 ? place : in->bins - 1);
	}
	double steps = (x - in->low) / in->step, whole = rint(steps);
	if (!(whole >= 0 && whole <= in->last && fabs(steps - whole) <= in->off) || (in->off == 0 && rint(x) != x)) return NONE;
	return (uint32_t)((uint64_t)whole / (uint64_t)in->each);
}

static inline uint32_t place_of(const list *l, int64_t value) {
	uint64_t above = (uint64_t)value - (uint64_t)l->least;
	if (l->span) return above < l->span ? l->places[above] : NONE;
	const string key = text_of((const char *)&value, 8);
	return found(l, &key, hash_of(&key));
}

static inline uint32_t place_of_double(const list *l, double value) {
	bool whole = value >= -0x1p63 && value < 0x1p63 && (double)(int64_t)value == value;
	return whole ? place_of(l, (int64_t)value) : NONE;
}

#define EACH(C, place)                                  \
	for (size_t i = 0; i < rows; i++) {                 \
		const C value = ((const C *)column)[i];         \
		places[i] = place;                              \
	}
#define READ(TYPE, C)                                                           \
	case TYPE:                                                                  \
		if (l->type == DOUBLE) EACH(C, bin_of(l, (double)value))                \
		else if (TYPE == UBIGINT) EACH(C, (int64_t)value < 0 ? NONE : place_of(l, (int64_t)value)) \
		else EACH(C, place_of(l, (int64_t)value))                               \
		return;
#define READ_DOUBLE(TYPE, C)                                     \
	case TYPE:                                                   \
		if (l->type == DOUBLE) EACH(C, bin_of(l, (double)value)) \
		else EACH(C, place_of_double(l, (double)value))          \
		return;

static void places_of(const list *l, int type, const void *column, size_t rows, uint32_t *places) {
	switch (type) {
		WHOLE(READ)
		READ_DOUBLE(FLOAT, float)
		READ_DOUBLE(DOUBLE, double)
	}
	find(l, column, rows, places);
}

#define WRITE(TYPE, C) \
	case TYPE:               \
		for (size_t i = 0; i < rows; i++) ((C *)out)[i] = (C)l->values[reports[i]]; \
		return;

static void write_reports(const list *l, int type, const uint32_t *reports, size_t rows, void *out) {
	switch (type) {
		WHOLE(WRITE)
	}
	for (size_t i = 0; i < rows; i++) ((string *)out)[i] = l->texts[reports[i]];
}

#define HOLDS(TYPE, C) \
	case TYPE: return (int64_t)(C)l->least == l->least && (int64_t)(C)l->most == l->most && (TYPE != UBIGINT || l->least >= 0);

// Return whether the mechanism takes columns of the first type, and the second holds its reports.
static bool fits(const recipe *r, int type, int out) {
	const list *l = r->reports;
	if (is_number(type) ? r->values->type != BIGINT && r->values->type != DOUBLE : r->values->type != type) return false;
	if (!l) return out == (r->structure == BITS ? WORDS : r->structure == HASH ? HASHED : PREFIXED);
	if (is_whole(out) ? l->type != BIGINT : l->type != out) return false;
	switch (out) {
		WHOLE(HOLDS)
	}
	return out == VARCHAR;
}

// Draw the positions of reports in their list, for at most BLOCK values.
static int positions(const recipe *r, const uint32_t *places, size_t rows, const uint64_t *given, uint32_t *reports) {
	const uint64_t size = r->values->size;
	if (r->structure == KEEP_OR_SPREAD) return ldpsql_keep_or_spread(places, rows, size, r->a, given, reports);
	if (r->structure == ALIAS) return ldpsql_alias(places, rows, size, (unsigned)r->a, r->table, given, reports);
	static const uint32_t same[BLOCK];
	for (size_t i = 0; i < rows; i++) if (places[i] >= size) return OUTSIDE;
	int failure = ldpsql_alias(same, rows, 1, (unsigned)r->a, r->table, given, reports);
	for (size_t i = 0; i < rows; i++) {
		int64_t moved = (int64_t)reports[i] + places[i] - (int64_t)(size - 1), most = (int64_t)r->b - 1;
		reports[i] = (uint32_t)(moved < 0 ? 0 : moved > most ? most : moved);
	}
	return failure;
}

// Draw a report for each value of a column without NULL; words may be given for one BLOCK of them. The symbols of hashes, or the
// functions of levels, go to `second`, the symbols of levels to `third`. Returns OUTSIDE if the mechanism has no recipe for the type or for a value.
EXPORT int ldpsql_draw(const recipe *r, int type, int out_type, const void *column, size_t count, const uint64_t *given, void *out,
                       uint32_t *second, uint16_t *third) {
	if (!r || !fits(r, type, out_type)) return OUTSIDE;
	const size_t width = out_type == WORDS ? 8 * words_of(r->values->size) : widths[out_type];
	uint32_t places[BLOCK], reports[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		char *to = (char *)out + start * width;
		const uint64_t *words = given;
		int failure;
		places_of(r->values, type, (const char *)column + start * widths[type], rows, places);
		if (r->structure == BITS) failure = ldpsql_bits(places, rows, r->values->size, r->a, r->b, words, (uint64_t *)to);
		else if (r->structure == HASH) failure = hash_block(&r->hash, places, rows, &words, (uint64_t *)to, second + start);
		else if (r->structure == LEVELS) failure = ldpsql_levels(places, rows, r->values->size, (const tree *)r->table, words, (uint8_t *)to, second + start, third + start);
		else failure = positions(r, places, rows, words, reports);
		if (failure) return failure;
		if (r->reports) write_reports(r->reports, out_type, reports, rows, to);
	}
	return DRAWN;
}

EXPORT int ldpsql_column(int64_t number, int type, int out_type, const void *column, size_t count, const uint64_t *given, void *out,
                         uint32_t *second, uint16_t *third) {
	return ldpsql_draw(recipe_of(number), type, out_type, column, count, given, out, second, third);
}

// Draw with the mechanism of each row, all with the same list of values and of reports. Of a block, the rows of one mechanism are
// drawn together; each mechanism starts again at the given words. Returns OUTSIDE as well if the lists differ.
EXPORT int ldpsql_rows(const int64_t *numbers, int type, int out_type, const void *column, size_t count, const uint64_t *given, void *out) {
	const recipe *any = count ? recipe_of(numbers[0]) : NULL;
	if (!any || !any->reports || !fits(any, type, out_type)) return OUTSIDE;
	uint32_t places[BLOCK], own[BLOCK], reports[BLOCK], at[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		bool drawn[BLOCK] = {false};
		rows = smaller(BLOCK, count - start);
		places_of(any->values, type, (const char *)column + start * widths[type], rows, places);
		for (size_t i = 0; i < rows; i++) {
			if (drawn[i]) continue;
			const int64_t number = numbers[start + i];
			const recipe *r = recipe_of(number);
			if (!r || r->values != any->values || r->reports != any->reports) return OUTSIDE;
			size_t some = 0;
			for (size_t j = i; j < rows; j++) {
				if (numbers[start + j] != number) continue;
				drawn[j] = true, own[some] = places[j], at[some++] = (uint32_t)j;
			}
			int failure = positions(r, own, some, given, reports);
			if (failure) return failure;
			for (size_t j = 0; j < some; j++) places[at[j]] = reports[j];
		}
		write_reports(any->reports, out_type, places, rows, (char *)out + start * widths[out_type]);
	}
	return DRAWN;
}

// --- what is left to Python, which reads the arguments, and writes the result or a message
typedef struct { const char *name; handle type; bool changes; } offered;  // changes: from call to call, as a function that draws
typedef struct {
	const offered *own;
	uint64_t count;
	arrow_type *types;
	arrow_data *columns;
	arrow_type *type;
	arrow_data *result;
	char *message;
	uint64_t room;
} question;
typedef void (*answer)(const question *);
static _Atomic(answer) python;

// A database of its own turns columns into those of Arrow and back: a function in C knows no connection to that which calls it.
typedef struct { handle connection, options; } translator;
static _Atomic(translator *) translates;
static _Thread_local bool opening;  // that database, which needs none of the functions

static translator *translating(void) {
	translator *t = atomic_load(&translates), *none = NULL;
	handle database;
	if (t || !(t = calloc(1, sizeof *t))) return t;
	opening = true;
	bool failed = duckdb.open(NULL, &database) || duckdb.connect(database, &t->connection) ||
	              duckdb.query(t->connection, "SET threads = 1; SET TimeZone = 'UTC'", NULL);
	opening = false;
	if (failed) return free(t), NULL;
	duckdb.connection_get_arrow_options(t->connection, &t->options);
	return atomic_compare_exchange_strong(&translates, &none, t) ? t : none;
}

static struct { int (*ensure)(void); void (*release)(int); int (*check)(void); void (*clear)(void); } signals;  // of Python

// Whether Ctrl-C was pressed. Where Python begins a function that C calls, it would only print that.
static bool pressed(void) {
	if (!signals.ensure || !signals.release || !signals.check || !signals.clear) return false;
	int state = signals.ensure();
	bool was = signals.check() != 0;
	if (was) signals.clear();
	signals.release(state);
	return was;
}

static bool fails(handle info, handle error) {
	bool has = error && duckdb.error_data_has_error(error);  // whose message may hold a value
	if (has) duckdb.scalar_function_set_error(info, "[LDP304] a column of this type cannot be read here. Hint: cast it.");
	if (error) duckdb.destroy_error_data(&error);
	return has;
}

static void ask(handle info, handle chunk, handle out) {
	enum { MOST = 64 };
	uint64_t count = duckdb.data_chunk_get_size(chunk), size = duckdb.data_chunk_get_column_count(chunk);
	if (!count) return;
	if (size > MOST) return duckdb.scalar_function_set_error(info, "this function has too many arguments");
	const translator *t = translating();
	if (!t) return duckdb.scalar_function_set_error(info, "there is not enough memory to call Python");
	handle types[MOST], converted = NULL, made = NULL;
	const char *no_names[MOST];
	for (uint64_t i = 0; i < size; i++) no_names[i] = "", types[i] = duckdb.vector_get_column_type(duckdb.data_chunk_get_vector(chunk, i));
	arrow_type of_columns = {0}, of_result = {0};
	arrow_data columns = {0}, answered = {0};
	char message[8192] = "Python could not answer: the process ends, or the call was interrupted";
	const question q = {duckdb.scalar_function_get_extra_info(info), count, &of_columns, &columns, &of_result, &answered, message, sizeof message};
	bool failed = fails(info, duckdb.to_arrow_schema(t->options, types, no_names, size, &of_columns)) ||
	              fails(info, duckdb.data_chunk_to_arrow(t->options, chunk, &columns));
	if (!failed && !pressed()) atomic_load(&python)(&q);
	if (!failed && !answered.release) failed = true, duckdb.scalar_function_set_error(info, message);
	failed = failed || fails(info, duckdb.schema_from_arrow(t->connection, &of_result, &converted)) ||
	         fails(info, duckdb.data_chunk_from_arrow(t->connection, &answered, converted, &made));
	if (!failed) duckdb.vector_reference_vector(out, duckdb.data_chunk_get_vector(made, 0));  // keeps the memory, too
	for (uint64_t i = 0; i < size; i++) duckdb.destroy_logical_type(&types[i]);
	if (made) duckdb.destroy_data_chunk(&made);
	if (converted) duckdb.destroy_arrow_converted_schema(&converted);
	if (of_columns.release) of_columns.release(&of_columns);
	if (columns.release) columns.release(&columns);
	if (of_result.release) of_result.release(&of_result);
	if (answered.release) answered.release(&answered);
}

// --- the functions in DuckDB
static bool all_valid(handle vector, uint64_t count) {
	const uint64_t *valid = duckdb.vector_get_validity(vector);
	for (uint64_t i = 0; valid && i < count; i++)
		if (!(valid[i / 64] >> i % 64 & 1)) return false;
	return true;
}

typedef struct { offered own; int32_t type, out_type; char name[32]; } overload;  // `ask` reads the first member

// Make room for `items` items of lists, and return the data of their vector; NULL without memory.
static uint64_t *room_for_items(handle out, uint64_t items) {
	if (duckdb.list_vector_reserve(out, items) || duckdb.list_vector_set_size(out, items)) return NULL;
	return duckdb.vector_get_data(duckdb.list_vector_get_child(out));
}

static void *data_of(handle out, uint64_t part) { return duckdb.vector_get_data(duckdb.struct_vector_get_child(out, part)); }

// Draw a vector with one mechanism.
static int draw_one(const overload *own, int64_t number, const void *values, uint64_t count, handle out) {
	const recipe *r = recipe_of(number);
	if (own->out_type > WORDS) {
		uint16_t *third = own->out_type == PREFIXED ? data_of(out, 2) : NULL;
		return ldpsql_column(number, own->type, own->out_type, values, count, NULL, data_of(out, 0), data_of(out, 1), third);
	}
	if (own->out_type != WORDS) return ldpsql_column(number, own->type, own->out_type, values, count, NULL, duckdb.vector_get_data(out), NULL, NULL);
	if (!r || !fits(r, own->type, WORDS)) return OUTSIDE;
	const uint64_t width = words_of(r->values->size);
	uint64_t *words = room_for_items(out, count * width);
	int failure = words ? ldpsql_column(number, own->type, WORDS, values, count, NULL, words, NULL, NULL) : OUTSIDE;
	entry *lists = duckdb.vector_get_data(out);
	for (uint64_t i = 0; !failure && i < count; i++) lists[i] = (entry){i * width, width};
	return failure;
}

static void draw(handle info, handle chunk, handle out) {
	const overload *own = duckdb.scalar_function_get_extra_info(info);
	uint64_t count = duckdb.data_chunk_get_size(chunk);
	handle column = duckdb.data_chunk_get_vector(chunk, 0), handles = duckdb.data_chunk_get_vector(chunk, 1);
	const int64_t *numbers = duckdb.vector_get_data(handles);
	const void *values = duckdb.vector_get_data(column);
	if (!count) return;
	if (all_valid(column, count) && all_valid(handles, count)) {
		bool one = true;
		for (uint64_t i = 0; i < count; i++) one &= numbers[i] == numbers[0];
		int drawn = one ? draw_one(own, numbers[0], values, count, out)
		                : ldpsql_rows(numbers, own->type, own->out_type, values, count, NULL, duckdb.vector_get_data(out));
		if (drawn == DRAWN) return;
	}
	ask(info, chunk, out);
}

static void set_missing(handle vector, uint64_t row) {
	duckdb.vector_ensure_validity_writable(vector);
	duckdb.validity_set_row_invalid(duckdb.vector_get_validity(vector), row);
}

static handle type_of(int type) {
	if (type < WORDS || type >= TYPES) return duckdb.create_logical_type(type);
	const int kinds[] = {UTINYINT, type == PREFIXED ? UINTEGER : UBIGINT, type == PREFIXED ? USMALLINT : UINTEGER};
	const char *fields[] = {"level", "seed", "y"};
	handle parts[3];
	for (int i = 0; i < 3; i++) parts[i] = duckdb.create_logical_type(kinds[i]);
	const uint64_t first = type == PREFIXED ? 0 : 1;
	handle made = type == WORDS ? duckdb.create_list_type(parts[1]) : duckdb.create_struct_type(parts + first, fields + first, 3 - first);
	for (int i = 0; i < 3; i++) duckdb.destroy_logical_type(&parts[i]);
	return made;
}

static handle function_of(const offered *own, function called) {
	handle one = duckdb.create_scalar_function();
	duckdb.scalar_function_set_name(one, own->name);
	duckdb.scalar_function_set_return_type(one, own->type);
	if (own->changes) duckdb.scalar_function_set_volatile(one);
	duckdb.scalar_function_set_special_handling(one);
	duckdb.scalar_function_set_extra_info(one, (void *)(uintptr_t)own, NULL);
	duckdb.scalar_function_set_function(one, called);
	return one;
}

static bool add(handle set, const overload *own) {
	handle one = function_of(&own->own, draw), types[] = {type_of(own->type), type_of(BIGINT)};
	for (int i = 0; i < 2; i++) duckdb.scalar_function_add_parameter(one, types[i]), duckdb.destroy_logical_type(&types[i]);
	bool added = !duckdb.add_scalar_function_to_set(set, one);
	duckdb.destroy_scalar_function(&one);
	return added;
}

static overload overloads[TYPES][TYPES];  // by the type of reports, then that of the column; filled before the first database

static void name_overloads(void) {
	for (int out = 0; out < TYPES; out++) {
		for (int type = 0; names[out] && type <= VARCHAR; type++) {
			const bool listed = out < WORDS;
			if (!widths[type] || (listed && (is_whole(out) ? !is_number(type) : type != out))) continue;
			overload *one = &overloads[out][type];
			snprintf(one->name, sizeof one->name, "__ldp_perturb_%s", names[out]);
			one->type = type, one->out_type = out, one->own = (offered){one->name, type_of(out), true};
		}
	}
}

static bool add_all(handle connection) {
	bool added = true;
	for (int out = 0; out < TYPES; out++) {
		if (!names[out]) continue;
		char name[sizeof overloads[0][0].name];
		snprintf(name, sizeof name, "__ldp_perturb_%s", names[out]);
		handle set = duckdb.create_scalar_function_set(name);
		for (int type = 0; type < TYPES; type++) added = added && (!overloads[out][type].type || add(set, &overloads[out][type]));
		added = added && !duckdb.register_scalar_function_set(connection, set);
		duckdb.destroy_scalar_function_set(&set);
	}
	return added;
}

// --- an aggregate: how often each hashed report occurs, as histogram() counts them
static const char no_memory[] = "there is not enough memory to count the reports";
static uint64_t size_of_state(handle info) { return (void)info, sizeof(tally); }
static void begin_state(handle info, void *state) { (void)info, memset(state, 0, sizeof(tally)); }

static void count_reports(handle info, handle chunk, void **states) {
	handle reports = duckdb.data_chunk_get_vector(chunk, 0), seeds = duckdb.struct_vector_get_child(reports, 0);
	handle symbols = duckdb.struct_vector_get_child(reports, 1);
	const hashed_column column = {duckdb.vector_get_validity(reports), duckdb.vector_get_data(seeds), duckdb.vector_get_validity(seeds),
	                              duckdb.vector_get_data(symbols), duckdb.vector_get_validity(symbols)};
	if (!tally_rows((tally **)states, &column, duckdb.data_chunk_get_size(chunk))) duckdb.aggregate_function_set_error(info, no_memory);
}

static void merge_states(handle info, void **from, void **to, uint64_t count) {
	for (uint64_t i = 0; i < count; i++)
		if (!tally_merge(to[i], from[i])) duckdb.aggregate_function_set_error(info, no_memory);
}

static void write_counts(handle info, void **states, handle out, uint64_t count, uint64_t offset) {
	uint64_t at = duckdb.list_vector_get_size(out), end = at;
	for (uint64_t i = 0; i < count; i++) end += ((const tally *)states[i])->used;
	if (duckdb.list_vector_reserve(out, end) || duckdb.list_vector_set_size(out, end)) {
		duckdb.aggregate_function_set_error(info, no_memory);
		return;
	}
	handle items = duckdb.list_vector_get_child(out), reports = duckdb.struct_vector_get_child(items, 0);
	uint64_t *seeds = data_of(reports, 0), *numbers = data_of(items, 1);
	uint32_t *symbols = data_of(reports, 1);
	entry *maps = duckdb.vector_get_data(out);
	for (uint64_t i = 0; i < count; i++) {
		const tally *t = states[i];
		counted *sorted = tally_sorted(t);
		if (!sorted) {
			duckdb.aggregate_function_set_error(info, no_memory);
			return;
		}
		maps[offset + i] = (entry){at, t->used};
		if (!t->used) set_missing(out, offset + i);
		for (uint64_t j = 0; j < t->used; j++, at++) {
			seeds[at] = sorted[j].seed, symbols[at] = (uint32_t)sorted[j].rest, numbers[at] = sorted[j].n;
			if (sorted[j].rest & NO_SEED) set_missing(duckdb.struct_vector_get_child(reports, 0), at);
			if (sorted[j].rest & NO_SYMBOL) set_missing(duckdb.struct_vector_get_child(reports, 1), at);
		}
		free(sorted);
	}
}

static void end_states(void **states, uint64_t count) {
	for (uint64_t i = 0; i < count; i++) free(((tally *)states[i])->slots);
}

static bool add_aggregate(handle connection) {
	handle one = duckdb.create_aggregate_function(), types[] = {type_of(HASHED), duckdb.create_logical_type(UBIGINT), NULL};
	types[2] = duckdb.create_map_type(types[0], types[1]);
	duckdb.aggregate_function_set_name(one, "__ldp_count_hashed");
	duckdb.aggregate_function_add_parameter(one, types[0]);
	duckdb.aggregate_function_set_return_type(one, types[2]);
	duckdb.aggregate_function_set_functions(one, size_of_state, begin_state, count_reports, merge_states, write_counts);
	duckdb.aggregate_function_set_destructor(one, end_states);
	bool added = !duckdb.register_aggregate_function(connection, one);
	for (int i = 0; i < 3; i++) duckdb.destroy_logical_type(&types[i]);
	duckdb.destroy_aggregate_function(&one);
	return added;
}

// --- the functions in Python
static struct { offered *all; _Atomic(uint64_t) size; } offer;
static void (*_Atomic prepare)(void);  // makes the offer, if Python can already

// Write the type in Arrow of what a function returns. Returns whether there is one.
EXPORT bool ldpsql_type(const offered *own, arrow_type *type) {
	const translator *t = translating();
	handle one = own->type, error = t ? duckdb.to_arrow_schema(t->options, &one, (const char *[]){""}, 1, type) : NULL;
	bool failed = error && duckdb.error_data_has_error(error);
	if (error) duckdb.destroy_error_data(&error);
	return t && !failed;
}

// Give each database that is opened from now on these functions, whose types are those of the columns of a query. They are kept as
// long as the process lives. Returns whether DuckDB reads the query.
EXPORT bool ldpsql_offer(offered *all, uint64_t size, const char *query) {
	const translator *t = translating();
	result types;
	if (!t) return false;
	bool failed = duckdb.query(t->connection, query, &types);
	for (uint64_t i = 0; i < size && !failed; i++) all[i].type = duckdb.column_logical_type(&types, i);
	duckdb.destroy_result(&types);
	if (failed) return false;
	offer.all = all;
	atomic_store(&offer.size, size);
	return true;
}

static bool add_offered(handle connection) {
	handle any = duckdb.create_logical_type(ANY);
	bool added = true;
	for (uint64_t i = 0, size = atomic_load(&offer.size); i < size; i++) {
		handle one = function_of(&offer.all[i], ask);
		duckdb.scalar_function_set_varargs(one, any);
		added = added && !duckdb.register_scalar_function(connection, one);
		duckdb.destroy_scalar_function(&one);
	}
	duckdb.destroy_logical_type(&any);
	return added;
}

// DuckDB calls this for each database that it opens: duckdb_static_extension.h and duckdb_extension.h of DuckDB 2.0.
typedef struct { void (*set_error)(handle, const char *); handle *(*get_database)(handle); const void *(*get_api)(handle, const char *); } access;
static bool enter(handle info, const access *given) {
	handle connection, *database = given->get_database(info);
	if (opening) return true;
	if (!atomic_load(&offer.size)) atomic_load(&prepare)();
	if (!database || duckdb.connect(*database, &connection)) return false;
	bool added = add_all(connection) && add_aggregate(connection) && add_offered(connection);
	duckdb.disconnect(&connection);
	return added;
}

typedef struct {
	uint32_t version;
	void *set_error, *internal;
	const char *name, *extension_version, *api_version;
	void (*entry_cpp)(void), (*entry_capi_v1)(void), (*entry_capi_v2)(void);
} descriptor;
static int32_t describe(void *described) {
	descriptor *d = described;
	d->version = 1, d->name = "ldpsql", d->extension_version = "1", d->api_version = "v1.2.0", d->entry_capi_v1 = (void (*)(void))enter;
	return 0;
}

// Give each database that is opened from now on the functions. Returns whether DuckDB's library has all that they need.
EXPORT bool ldpsql_open_door(void *library, answer function, void (*make_offer)(void)) {
#define LOOK_UP(result, name, parameters) \
	*(void **)&duckdb.name = dlsym(library, "duckdb_" #name); \
	if (!duckdb.name) return false;
	DUCKDB(LOOK_UP)
	*(void **)&signals.ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure"), *(void **)&signals.release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
	*(void **)&signals.check = dlsym(RTLD_DEFAULT, "PyErr_CheckSignals"), *(void **)&signals.clear = dlsym(RTLD_DEFAULT, "PyErr_Clear");
	atomic_store(&python, function), atomic_store(&prepare, make_offer);
	name_overloads();
	return !duckdb.register_static_extension(describe);
}
