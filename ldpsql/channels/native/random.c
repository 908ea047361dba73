// A cryptographic generator for each thread: ChaCha20 (Bernstein 2008; RFC 8439) under a 256-bit key from the operating system.
//
// The first 256 bits of each buffer are the key of the next one and are never handed out ("fast key erasure", Bernstein 2017).
// Words are erased when they are handed out. A thread takes a new key from the operating system when it first draws, in a
// process that was forked, and after 1 GiB.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE  // getentropy
#endif
#include "kernels.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#ifdef __APPLE__
#include <sys/random.h>
#endif

enum { LANES = 8, BUFFER = 4096, KEY = 32 };
static const uint64_t MOST = (uint64_t)1 << 30;  // octets under one key of the operating system

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t wide __attribute__((vector_size(8 * LANES)));
typedef struct {
	uint64_t buffer[BUFFER / 8];
	size_t at;      // octets of the buffer that were handed out
	uint64_t left;  // octets until a new key of the operating system; 0 before the first
	pid_t process;
	unsigned forks;
	int way;  // to write a buffer
} generator;

static _Thread_local generator own;
static atomic_uint forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ended;

void erase(void *memory, size_t octets) {
	static void *(*const volatile set)(void *, int, size_t) = memset;  // a compiler cannot leave out a call that it does not know
	set(memory, 0, octets);
}

#define turned(a, bits) ((a) << (bits) | (a) >> (32 - (bits)))

#define QUARTER(a, b, c, d)                   \
	x[a] += x[b], x[d] = turn16(x[d] ^ x[a]); \
	x[c] += x[d], x[b] = turned(x[b] ^ x[c], 12); \
	x[a] += x[b], x[d] = turn8(x[d] ^ x[a]);  \
	x[c] += x[d], x[b] = turned(x[b] ^ x[c], 7)

// Write a buffer: the blocks of ChaCha20 with nonce 0, counted from 0, as many at a time as the vectors have lanes. Of LANES
// blocks, the first words of all come first, then their second words, and so on.
#define CHACHA20(vectors)                                                                                           \
	static const uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};                          \
	enum { PARTS = sizeof(vectors) / sizeof(lanes) };                                                               \
	vectors begun[16] = {{0}}, x[16];                                                                               \
	uint32_t words[8];                                                                                              \
	memcpy(words, key, KEY);                                                                                        \
	for (int i = 0; i < 12; i++) begun[i] += i < 4 ? constants[i] : words[i - 4];                                   \
	for (unsigned lane = 0; lane < PARTS * LANES; lane++) begun[12][lane] = lane;                                   \
	for (unsigned at = 0; at < BUFFER; at += sizeof x, begun[12] += PARTS * LANES) {                                \
		memcpy(x, begun, sizeof x);                                                                                 \
		for (int round = 0; round < 10; round++) {                                                                  \
			QUARTER(0, 4, 8, 12), QUARTER(1, 5, 9, 13), QUARTER(2, 6, 10, 14), QUARTER(3, 7, 11, 15);               \
			QUARTER(0, 5, 10, 15), QUARTER(1, 6, 11, 12), QUARTER(2, 7, 8, 13), QUARTER(3, 4, 9, 14);               \
		}                                                                                                           \
		for (int i = 0; i < 16; i++) x[i] += begun[i];                                                              \
		for (int part = 0; part < PARTS; part++)                                                                    \
			for (int i = 0; i < 16; i++)                                                                            \
				memcpy(out + at + sizeof(lanes) * (size_t)(16 * part + i), (uint8_t *)&x[i] + sizeof(lanes) * (size_t)part, sizeof(lanes)); \
	}                                                                                                               \
	erase(words, sizeof words);                                                                                     \
	erase(begun, sizeof begun);                                                                                     \
	erase(x, sizeof x)

#define turn16(a) turned(a, 16)
#define turn8(a) turned(a, 8)
static void chacha20(const uint8_t *key, uint8_t *out) { CHACHA20(lanes); }
#ifdef __x86_64__
// The same with the instructions of AVX-512, which turn words by any number of bits.
__attribute__((target("avx512f"))) static void chacha20_avx512(const uint8_t *key, uint8_t *out) { CHACHA20(wide); }
#undef turn16
#undef turn8

// The same with the instructions of AVX2, which turn by whole octets at once.
__attribute__((target("avx2"))) static void chacha20_avx2(const uint8_t *key, uint8_t *out) {
	const __m256i by16 = _mm256_set1_epi64x(0x0504070601000302) + _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
	const __m256i by8 = _mm256_set1_epi64x(0x0605040702010003) + _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
#define turn16(a) ((lanes)_mm256_shuffle_epi8((__m256i)(a), by16))
#define turn8(a) ((lanes)_mm256_shuffle_epi8((__m256i)(a), by8))
	CHACHA20(lanes);
}
#endif

// The best way to write a buffer that the processor has: 0, 1 with AVX2, 2 with AVX-512.
static int best_way(void) {
#ifdef __x86_64__
	return __builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
#else
	return 0;
#endif
}

static void expand(int way, const uint8_t *key, uint8_t *out) {
#ifdef __x86_64__
	if (way == 2) chacha20_avx512(key, out);
	else if (way == 1) chacha20_avx2(key, out);
	else
#endif
	chacha20(key, out);
}

static void forked(void) { atomic_fetch_add(&forks, 1); }
static void erase_generator(void *generator_of_thread) { erase(generator_of_thread, sizeof(generator)); }
static void set_up(void) {
	pthread_key_create(&ended, erase_generator);
	pthread_atfork(NULL, NULL, forked);
}

static bool refill(generator *g) {
	uint8_t key[KEY];
	if (g->left < BUFFER) {
		if (getentropy(key, KEY)) return false;
		g->left = MOST;
	} else {
		memcpy(key, g->buffer, KEY);
	}
	expand(g->way, key, (uint8_t *)g->buffer);
	erase(key, KEY);
	g->left -= BUFFER;
	g->at = KEY;
	return true;
}

// Return where the next words are, and how many of up to `count` follow each other; NULL if there is no key.
static uint64_t *next(generator *g, size_t *count) {
	if (g->at == BUFFER && !refill(g)) return NULL;
	uint64_t *words = g->buffer + g->at / 8;
	*count = smaller(*count, (BUFFER - g->at) / 8);
	g->at += 8 * *count;
	return words;
}

static bool hand_out(generator *g, uint64_t *out, size_t count) {
	for (size_t part; count; out += part, count -= part) {
		uint64_t *words = next(g, (part = count, &part));
		if (!words) return false;
		memcpy(out, words, 8 * part);
		memset(words, 0, 8 * part);
	}
	return true;
}

static generator *of_thread(void) {
	generator *g = &own;
	pid_t process = getpid();
	if (!g->left || g->process != process || g->forks != atomic_load(&forks)) {
		pthread_once(&once, set_up);
		pthread_setspecific(ended, g);
		erase(g, sizeof *g);
		g->at = BUFFER, g->process = process, g->forks = atomic_load(&forks), g->way = best_way();
	}
	return g;
}

bool random_words(uint64_t *out, size_t count) { return hand_out(of_thread(), out, count); }

uint64_t *some_words(size_t *count) { return next(of_thread(), count); }

bool take_words(const uint64_t **given, uint64_t *out, size_t count) {
	if (!*given) return random_words(out, count);
	memcpy(out, *given, 8 * count);
	*given += count;
	return true;
}

EXPORT int ldpsql_random_words(size_t count, uint64_t *out) { return random_words(out, count) ? DRAWN : NO_RANDOMNESS; }

// Write the words that a generator gives after a key, in one of the ways that the processor has: a test compares them with
// another implementation of the same cipher.
EXPORT void ldpsql_expand(const uint8_t *key, int way, uint64_t *out, size_t count) {
	generator g = {.left = UINT64_MAX, .at = BUFFER, .way = way < best_way() ? way : best_way()};
	memcpy(g.buffer, key, KEY);
	hand_out(&g, out, count);
	erase(&g, sizeof g);
}
