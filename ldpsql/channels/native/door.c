// The scalar functions of DuckDB that draw in C: the same names as those in Python, for columns of whole numbers and of text.
//
// They draw ordinary vectors of mechanisms that `learn` has described. All else goes to Python: NULL and values outside of the
// domain, several domains, draws that a ledger counts, mechanisms without a recipe. So rules and messages are those of Python.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "kernels.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- what is used of DuckDB: declared here, looked up in its library
typedef struct opaque *handle;
typedef union {  // a text: up to 12 octets are in it
	struct { uint32_t length; char octets[12]; } near;
	struct { uint32_t length; char prefix[4]; const char *octets; } far;
} string;
static inline const char *octets_of(const string *s) { return s->near.length <= 12 ? s->near.octets : s->far.octets; }
typedef void (*function)(handle info, handle chunk, handle out);
#define DUCKDB(X) \
	X(int, connect, (handle, handle *)) X(void, disconnect, (handle *)) X(int, register_static_extension, (int32_t (*)(void *))) \
	X(handle, create_logical_type, (int)) X(void, destroy_logical_type, (handle *)) X(handle, create_scalar_function, (void)) \
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
	X(void, vector_assign_string_element_len, (handle, uint64_t, const char *, uint64_t))
#define MEMBER(result, name, parameters) result(*name) parameters;
static struct { DUCKDB(MEMBER) } duckdb;

enum { TINYINT = 2, SMALLINT, INTEGER, BIGINT, UTINYINT, USMALLINT, UINTEGER, UBIGINT, VARCHAR = 17, TYPES };
#define WHOLE(X) \
	X(TINYINT, int8_t, "tinyint") X(SMALLINT, int16_t, "smallint") X(INTEGER, int32_t, "integer") X(BIGINT, int64_t, "bigint") \
	X(UTINYINT, uint8_t, "utinyint") X(USMALLINT, uint16_t, "usmallint") X(UINTEGER, uint32_t, "uinteger") X(UBIGINT, uint64_t, "ubigint")

// --- recipes: how a mechanism draws. They are never freed, because vectors may point to the text of their reports.
enum { RECIPES = 1 << 14, NONE = UINT32_MAX };
typedef struct { const char *at; uint32_t length, place; } slot;
typedef struct recipe {
	uint64_t size, spread;
	const struct recipe *alike;  // the first over the same values in the same order, often itself
	int64_t least, most, low;   // of whole numbers: the smallest, the largest, and that of places[0]
	uint64_t span;              // of so many numbers from `low` on the places are known
	uint32_t *places;           // NONE for a number that is not listed
	int64_t *values;
	uint64_t mask;              // of text: mask + 1 slots, of which at least half are empty
	slot *slots;
	string *texts;
} recipe;
static _Atomic(recipe *) recipes[RECIPES];

static inline uint64_t hash_of(const char *text, uint32_t length) {
	uint64_t hash = length, word;
	for (; length >= 8; text += 8, length -= 8) {
		memcpy(&word, text, 8);
		hash = splitmix(hash ^ word);
	}
	word = 0;
	memcpy(&word, text, length);
	return splitmix(hash ^ word);
}

static bool same_values(const recipe *a, const recipe *b) {
	if (a->size != b->size || !a->values != !b->values) return false;
	if (a->values) return !memcmp(a->values, b->values, 8 * a->size);
	for (uint64_t i = 0; i < a->size; i++) {
		uint32_t length = a->texts[i].near.length;
		if (length != b->texts[i].near.length || memcmp(octets_of(a->texts + i), octets_of(b->texts + i), length)) return false;
	}
	return true;
}

static bool publish(int64_t number, recipe *r) {
	recipe *none = NULL;
	r->alike = r;
	for (int i = 0; i < RECIPES && r->alike == r; i++) {
		const recipe *other = atomic_load(&recipes[i]);
		if (other && same_values(r, other)) r->alike = other->alike;
	}
	if (atomic_compare_exchange_strong(&recipes[number], &none, r)) return true;
	free(r->places), free(r->values), free(r->slots), free(r->texts), free(r);
	return false;
}

// Describe k-ary randomised response over `size` distinct whole numbers whose largest is at most 2^24 above the smallest.
EXPORT bool ldpsql_learn_whole(int64_t number, uint64_t size, uint64_t spread, const int64_t *values) {
	recipe *r = calloc(1, sizeof *r);
	if (!r || number < 0 || number >= RECIPES || !size) return free(r), false;
	r->size = size, r->spread = spread, r->least = r->most = values[0];
	for (uint64_t i = 0; i < size; i++) {
		r->least = values[i] < r->least ? values[i] : r->least;
		r->most = values[i] > r->most ? values[i] : r->most;
	}
	r->low = r->least, r->span = (uint64_t)r->most - (uint64_t)r->least + 1;
	if (!r->span || r->span > (uint64_t)1 << 24) return free(r), false;
	r->places = malloc(4 * r->span), r->values = malloc(8 * size);
	if (!r->places || !r->values) return free(r->places), free(r->values), free(r), false;
	memset(r->places, 0xff, 4 * r->span);
	memcpy(r->values, values, 8 * size);
	for (uint64_t i = 0; i < size; i++) r->places[(uint64_t)values[i] - (uint64_t)r->low] = (uint32_t)i;
	return publish(number, r);
}

// The same over distinct texts, which follow each other: text i ends before ends[i].
EXPORT bool ldpsql_learn_text(int64_t number, uint64_t size, uint64_t spread, const char *text, const int32_t *ends) {
	if (number < 0 || number >= RECIPES || !size) return false;
	uint64_t slots = 4;
	while (slots < 4 * size) slots *= 2;
	recipe *r = calloc(1, sizeof *r);
	char *own = malloc((size_t)ends[size - 1] + 1);
	if (!r || !own) return free(r), free(own), false;
	r->size = size, r->spread = spread, r->mask = slots - 1;
	r->slots = calloc(slots, sizeof *r->slots), r->texts = calloc(size, sizeof *r->texts);
	if (!r->slots || !r->texts) return free(r->slots), free(r->texts), free(r), free(own), false;
	memcpy(own, text, (size_t)ends[size - 1]);
	for (uint64_t i = 0; i < size; i++) {
		const char *at = own + (i ? ends[i - 1] : 0);
		uint32_t length = (uint32_t)(own + ends[i] - at);
		uint64_t place = hash_of(at, length) & r->mask;
		while (r->slots[place].at) place = (place + 1) & r->mask;
		r->slots[place] = (slot){at, length, (uint32_t)i};
		r->texts[i].near.length = length;
		if (length <= 12) memcpy(r->texts[i].near.octets, at, length);
		else memcpy(r->texts[i].far.prefix, at, 4), r->texts[i].far.octets = at;
	}
	if (publish(number, r)) return true;
	return free(own), false;
}

// --- columns
#define READ(TYPE, C, name)                                                                     \
	case TYPE:                                                                                  \
		for (size_t i = 0; i < rows; i++) {                                                     \
			C value = ((const C *)column)[i];                                                   \
			uint64_t above = (uint64_t)value - (uint64_t)r->low;                                \
			bool inside = above < r->span && (TYPE != UBIGINT || (int64_t)value >= 0);          \
			places[i] = inside ? r->places[above] : NONE;                                       \
		}                                                                                       \
		return;

static void places_of(const recipe *r, int type, const void *column, size_t rows, uint32_t *places) {
	switch (type) {
		WHOLE(READ)
	}
	for (size_t i = 0; i < rows; i++) {
		const string *value = (const string *)column + i;
		const char *text = octets_of(value);
		uint32_t length = value->near.length;
		uint64_t at = hash_of(text, length) & r->mask;
		for (; r->slots[at].at; at = (at + 1) & r->mask)
			if (r->slots[at].length == length && !memcmp(r->slots[at].at, text, length)) break;
		places[i] = r->slots[at].at ? r->slots[at].place : NONE;
	}
}

#define WRITE(TYPE, C, name) \
	case TYPE:               \
		for (size_t i = 0; i < rows; i++) ((C *)out)[i] = (C)r->values[reports[i]]; \
		return;

static void write_reports(const recipe *r, int type, const uint32_t *reports, size_t rows, void *out) {
	switch (type) {
		WHOLE(WRITE)
	}
	for (size_t i = 0; i < rows; i++) ((string *)out)[i] = r->texts[reports[i]];
}

#define HOLDS(TYPE, C, name) \
	case TYPE: return (int64_t)(C)r->least == r->least && (int64_t)(C)r->most == r->most && (TYPE != UBIGINT || r->least >= 0);

// Return whether the mechanism takes text if the column is text, and its reports fit their type.
static bool fits(const recipe *r, int type, int out) {
	if (type == VARCHAR || out == VARCHAR) return type == out && r->slots;
	if (!r->values) return false;
	switch (out) {
		WHOLE(HOLDS)
	}
	return false;
}

static size_t width_of(int type) {
	static const uint8_t widths[TYPES] = {[TINYINT] = 1, 2, 4, 8, 1, 2, 4, 8, [VARCHAR] = sizeof(string)};
	return widths[type];
}

static const recipe *recipe_of(int64_t number) { return number < 0 || number >= RECIPES ? NULL : atomic_load(&recipes[number]); }

// Draw a report for each value of a column without NULL; words may be given for one BLOCK of them. Returns OUTSIDE if the
// mechanism has no recipe for the type or for a value.
EXPORT int ldpsql_column(int64_t number, int type, int out_type, const void *column, size_t count, const uint64_t *given, void *out) {
	const recipe *r = recipe_of(number);
	if (!r || !fits(r, type, out_type)) return OUTSIDE;
	uint32_t places[BLOCK], reports[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		rows = smaller(BLOCK, count - start);
		places_of(r, type, (const char *)column + start * width_of(type), rows, places);
		int failure = ldpsql_keep_or_spread(places, rows, r->size, r->spread, given, reports);
		if (failure) return failure;
		write_reports(r, out_type, reports, rows, (char *)out + start * width_of(out_type));
	}
	return DRAWN;
}

// Draw with the mechanism of each row, all over the same values. Of a block, the rows of one mechanism are drawn together; each
// mechanism starts again at the given words. Returns OUTSIDE as well if the domains differ.
EXPORT int ldpsql_rows(const int64_t *numbers, int type, int out_type, const void *column, size_t count, const uint64_t *given, void *out) {
	const recipe *any = count ? recipe_of(numbers[0]) : NULL;
	if (!any || !fits(any, type, out_type)) return OUTSIDE;
	uint32_t places[BLOCK], own[BLOCK], reports[BLOCK], at[BLOCK];
	for (size_t start = 0, rows; start < count; start += rows) {
		bool drawn[BLOCK] = {false};
		rows = smaller(BLOCK, count - start);
		places_of(any, type, (const char *)column + start * width_of(type), rows, places);
		for (size_t i = 0; i < rows; i++) {
			if (drawn[i]) continue;
			const int64_t number = numbers[start + i];
			const recipe *r = recipe_of(number);
			if (!r || r->alike != any->alike) return OUTSIDE;
			size_t some = 0;
			for (size_t j = i; j < rows; j++) {
				if (numbers[start + j] != number) continue;
				drawn[j] = true, own[some] = places[j], at[some++] = (uint32_t)j;
			}
			int failure = ldpsql_keep_or_spread(own, some, r->size, r->spread, given, reports);
			if (failure) return failure;
			for (size_t j = 0; j < some; j++) places[at[j]] = reports[j];
		}
		write_reports(any, out_type, places, rows, (char *)out + start * width_of(out_type));
	}
	return DRAWN;
}

// --- the functions in DuckDB
// Python draws a vector into `out`, or writes what is wrong into the message; returns whether it has drawn.
typedef struct {
	const char *name;
	int32_t type, out_type;
	uint64_t count;
	const void *values;
	const int32_t *ends;  // of text, which follows each other in `values`
	const uint64_t *valid, *handles_valid;
	const int64_t *handles;
	handle out;
	char *message;
	uint64_t room;
} call;
typedef int (*in_python)(const call *);
static _Atomic(in_python) python;

static bool all_valid(handle vector, uint64_t count) {
	const uint64_t *valid = duckdb.vector_get_validity(vector);
	for (uint64_t i = 0; valid && i < count; i++)
		if (!(valid[i / 64] >> i % 64 & 1)) return false;
	return true;
}

// Write the text of a vector as Arrow has it: returns the memory, in which the texts follow their ends, NULL if there is none.
static int32_t *gathered(const string *texts, const uint64_t *valid, uint64_t count) {
	uint64_t octets = 0, at = 0;
	for (uint64_t i = 0; i < count; i++) octets += !valid || valid[i / 64] >> i % 64 & 1 ? texts[i].near.length : 0;
	int32_t *ends = octets > INT32_MAX ? NULL : malloc(4 * count + octets + 1);
	for (uint64_t i = 0; ends && i < count; i++) {
		if (!valid || valid[i / 64] >> i % 64 & 1) {
			memcpy((char *)(ends + count) + at, octets_of(texts + i), texts[i].near.length);
			at += texts[i].near.length;
		}
		ends[i] = (int32_t)at;
	}
	return ends;
}

typedef struct { char name[32]; int32_t type, out_type; } overload;

static void draw(handle info, handle chunk, handle out) {
	const overload *own = duckdb.scalar_function_get_extra_info(info);
	uint64_t count = duckdb.data_chunk_get_size(chunk);
	handle column = duckdb.data_chunk_get_vector(chunk, 0), handles = duckdb.data_chunk_get_vector(chunk, 1);
	const int64_t *numbers = duckdb.vector_get_data(handles);
	const void *values = duckdb.vector_get_data(column);
	void *reports = duckdb.vector_get_data(out);
	if (!count) return;
	if (all_valid(column, count) && all_valid(handles, count)) {
		bool one = true;
		for (uint64_t i = 0; i < count; i++) one &= numbers[i] == numbers[0];
		int drawn = one ? ldpsql_column(numbers[0], own->type, own->out_type, values, count, NULL, reports)
		                : ldpsql_rows(numbers, own->type, own->out_type, values, count, NULL, reports);
		if (drawn == DRAWN) return;
	}
	char message[4096] = "Python could not draw: the process ends, or the call was interrupted";
	const uint64_t *valid = duckdb.vector_get_validity(column);
	int32_t *ends = own->type == VARCHAR ? gathered(values, valid, count) : NULL;
	in_python function = atomic_load(&python);
	call c = {own->name, own->type, own->out_type, count, ends ? (const void *)(ends + count) : values, ends, valid,
	          duckdb.vector_get_validity(handles), numbers, out, message, sizeof message};
	if ((own->type == VARCHAR && !ends) || !function || !function(&c)) duckdb.scalar_function_set_error(info, message);
	free(ends);
}

// Write reports that Python drew; of text, text i ends before ends[i]. A report is NULL if its octet in `missing` is not 0.
EXPORT void ldpsql_write(const call *c, const void *reports, const int32_t *ends, const uint8_t *missing) {
	if (c->out_type != VARCHAR) memcpy(duckdb.vector_get_data(c->out), reports, c->count * width_of(c->out_type));
	for (uint64_t i = 0; i < c->count; i++) {
		if (missing[i]) {
			duckdb.vector_ensure_validity_writable(c->out);
			duckdb.validity_set_row_invalid(duckdb.vector_get_validity(c->out), i);
		} else if (c->out_type == VARCHAR) {
			int32_t start = i ? ends[i - 1] : 0;
			duckdb.vector_assign_string_element_len(c->out, i, (const char *)reports + start, (uint64_t)(ends[i] - start));
		}
	}
}

static bool add(handle set, const overload *own) {
	handle one = duckdb.create_scalar_function(), types[] = {duckdb.create_logical_type(own->type), duckdb.create_logical_type(BIGINT),
	                                                         duckdb.create_logical_type(own->out_type)};
	duckdb.scalar_function_set_name(one, own->name);
	duckdb.scalar_function_add_parameter(one, types[0]);
	duckdb.scalar_function_add_parameter(one, types[1]);
	duckdb.scalar_function_set_return_type(one, types[2]);
	duckdb.scalar_function_set_volatile(one);
	duckdb.scalar_function_set_special_handling(one);
	duckdb.scalar_function_set_extra_info(one, (void *)(uintptr_t)own, NULL);
	duckdb.scalar_function_set_function(one, draw);
	bool added = !duckdb.add_scalar_function_to_set(set, one);
	for (int i = 0; i < 3; i++) duckdb.destroy_logical_type(&types[i]);
	duckdb.destroy_scalar_function(&one);
	return added;
}

static overload overloads[9][8];  // of each type of reports, one for each type of column; filled before the first database

#define NAMED(TYPE, C, name) [TYPE] = name,
static void name_overloads(void) {
	static const char *const names[TYPES] = {WHOLE(NAMED)[VARCHAR] = "varchar"};
	for (int out = TINYINT, at = 0; out < TYPES; out++) {
		if (!names[out]) continue;
		for (int type = TINYINT, column = 0; type < TYPES; type++) {
			if (!names[type] || (type == VARCHAR) != (out == VARCHAR)) continue;
			overload *one = &overloads[at][column++];
			snprintf(one->name, sizeof one->name, "__ldp_perturb_%s", names[out]);
			one->type = type, one->out_type = out;
		}
		at++;
	}
}

static bool add_all(handle connection) {
	bool added = true;
	for (int i = 0; i < 9; i++) {
		handle set = duckdb.create_scalar_function_set(overloads[i][0].name);
		for (int j = 0; j < 8 && overloads[i][j].type; j++) added = added && add(set, &overloads[i][j]);
		added = added && !duckdb.register_scalar_function_set(connection, set);
		duckdb.destroy_scalar_function_set(&set);
	}
	return added;
}

// DuckDB calls this for each database that it opens: duckdb_static_extension.h and duckdb_extension.h of DuckDB 2.0.
typedef struct { void (*set_error)(handle, const char *); handle *(*get_database)(handle); const void *(*get_api)(handle, const char *); } access;
static bool enter(handle info, const access *given) {
	handle connection, *database = given->get_database(info);
	if (!database || duckdb.connect(*database, &connection)) return false;
	bool added = add_all(connection);
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
EXPORT bool ldpsql_open_door(void *library, in_python function) {
#define LOOK_UP(result, name, parameters) \
	*(void **)&duckdb.name = dlsym(library, "duckdb_" #name); \
	if (!duckdb.name) return false;
	DUCKDB(LOOK_UP)
	atomic_store(&python, function);
	name_overloads();
	return !duckdb.register_static_extension(describe);
}
